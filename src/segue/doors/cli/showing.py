"""Reading one session: `segue show`, `tail`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from .formats import formatted, write_rows, write_value
from .main import Where, located
from .naming import session_argument
from .pager import paged, show_text

if TYPE_CHECKING:
    from ...hub import Hub
    from ...model.event import Event
    from ...model.principal import Principal
    from ...model.session import Session, Thread


@click.command("show")
@session_argument
@click.option("--info", is_flag=True, help="The session's own fields instead of its conversation.")
@click.option("--agent", metavar="ID", help="What an agent did that the session started.")
@paged
@formatted
@located
def show_command(
    where: Where, session: str, info: bool, agent: str | None, format: str | None
) -> None:
    """Show a session's conversation; with --format its events.

    SESSION is an id, the beginning of one, or a title. Where the session had another agent do
    something, a line names the --agent that shows what it did.

    Example: segue show 0198c2a4-77b1
    """

    async def read(hub: Hub, principal: Principal) -> tuple[Session, list[Event], list[Thread]]:
        found = await hub.named(principal, session)
        if info:
            return found, [], []
        if agent is not None:
            return found, [event async for event in hub.thread(principal, found.id, agent)], []
        events = [event async for event in hub.conversation(principal, found.id)]
        return found, events, list(await hub.threads(principal, found.id))

    found, events, threads = where.read(read)
    if info:
        _show_info(found, format)
    elif format is not None:
        _write_events(events, format)
    else:
        _show_events(events, threads)


def _show_info(session: Session, format: str | None) -> None:
    from .views import session_fields

    if format == "raw":
        write_value("raw", session)
    else:
        write_value(format or "yaml", session_fields(session))


def _write_events(events: list[Event], format: str) -> None:
    from .views import event_fields

    write_rows(format, ((event, event_fields(event)) for event in events))


def _show_events(
    events: list[Event], threads: Iterable[Thread] = (), *, wait: bool = False
) -> None:
    from .output import event_text, thread_text

    texts: list[str | None] = []
    begun = sorted(threads, key=lambda thread: thread.seq or 0)[::-1]
    for event in events:
        while begun and (begun[-1].seq or 0) < event.seq:
            texts.append(thread_text(begun.pop()))
        texts.append(event_text(event))
    texts += map(thread_text, reversed(begun))
    shown = "".join(f"{text}\n" for text in texts if text is not None)
    if not shown:
        click.echo("Nothing has been said in it yet.", err=True)
    show_text(shown, wait=wait)


def show_session(where: Where, id: str, *, wait: bool = False) -> None:
    """A session's conversation; `wait` for a key before the screen is used for something else."""

    async def read(hub: Hub, principal: Principal) -> tuple[list[Event], list[Thread]]:
        events = [event async for event in hub.conversation(principal, id)]
        return events, list(await hub.threads(principal, id))

    _show_events(*where.read(read), wait=wait)


@click.command("tail")
@session_argument
@click.option("-f", "--follow", is_flag=True, help="Go on: show what comes, until Ctrl-C.")
@click.option(
    "-n", "--lines", "count", default=10, show_default=True, help="How many to begin with."
)
@formatted
@located
def tail_command(where: Where, session: str, follow: bool, count: int, format: str | None) -> None:
    """Show the end of a session's conversation; with --follow also what comes, from any program.

    Example: segue tail -f 0198c2a4-77b1
    """
    if count < 0:
        raise click.BadParameter("must be 0 or more", param_hint="'-n'")

    async def tail(hub: Hub, principal: Principal) -> None:
        found = await hub.named(principal, session)
        events, seq = await _last(hub, principal, found, count, format is None)
        for event in events:
            _show_one(event, format)
        if follow:
            async for item in hub.follow(principal, found.id, seq):
                _show_one(item, format)  # type: ignore[arg-type]  # without deltas, events alone

    where.run(tail)


async def _last(
    hub: Hub, principal: Principal, session: Session, count: int, shown: bool
) -> tuple[list[Event], int]:
    """The last events, of those that are shown, and the seq to go on from."""
    from .output import event_text

    found: list[Event] = []
    before = session.last_seq + 1
    while len(found) < count and before > 1:
        batch = await hub.events(
            principal, session.id, before=before, limit=max(50, count), backward=True
        )
        if not batch:
            break
        before = batch[0].seq
        found = [each for each in batch if not shown or event_text(each) is not None] + found
    return found[-count:] if count else [], session.last_seq


def _show_one(event: Event, format: str | None) -> None:
    from .output import show_event
    from .views import event_fields

    if format is None:
        show_event(event)
    elif format == "raw":
        write_value("raw", event)
    else:
        # One after the other: what follows is not known yet.
        write_value("jsonl" if format == "csv" else format, event_fields(event))
