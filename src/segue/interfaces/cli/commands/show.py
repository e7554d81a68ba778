"""Reading one session: `segue show`, `tail`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import click

from segue.interfaces.cli.arguments import open_session, session_argument
from segue.interfaces.cli.main import Ask, Where, located
from segue.interfaces.cli.output.formats import formatted, write_rows, write_value
from segue.interfaces.cli.output.pager import paged, show_text

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.interfaces.cli.output.text import Telling
    from segue.model.event import Event
    from segue.model.principal import Principal
    from segue.model.session import Session, Thread

_SOME = 200  # events that are read at a time


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

    with where.asking() as ask:
        found = ask(lambda hub, principal: open_session(hub, principal, session))
        if found.state == "trashed" and format is None:
            click.echo(f"It is in the trash; `segue restore {found.id}` takes it back.", err=True)
        if info:
            _show_info(found, format)
        elif agent is not None:
            _show(
                _read(ask, lambda *by: by[0].history.thread_events(by[1], found.id, agent)),
                (),
                format,
            )
        else:
            _show_session(ask, found.id, format)


def _show_session(ask: Ask, id: str, format: str | None, *, wait: bool = False) -> None:
    threads = ask(lambda hub, principal: hub.history.threads(principal, id))
    events = _read(ask, lambda hub, principal: hub.history.conversation(principal, id))
    _show(events, threads, format, wait=wait)


def _read(ask: Ask, begin: Callable[[Hub, Principal], AsyncIterator[Event]]) -> Iterator[Event]:
    """A history, some events at a time: it need not fit into memory."""
    by: Hub | None = None
    events: AsyncIterator[Event] | None = None
    given = 0

    async def some(hub: Hub, principal: Principal) -> list[Event]:
        nonlocal by, events
        found: list[Event] = []
        left = 0
        if events is None or by is not hub:  # which another one may take the place of
            by, events, left = hub, begin(hub, principal), given
        async for event in events:
            if left:
                left -= 1
                continue
            found.append(event)
            if len(found) == _SOME:
                break
        return found

    while batch := ask(some):
        yield from batch
        given += len(batch)


def _show_info(session: Session, format: str | None) -> None:
    from segue.interfaces.cli.output.output_fields import session_fields

    if format == "raw":
        write_value("raw", session)
    else:
        write_value(format or "yaml", session_fields(session))


def _show(
    events: Iterator[Event], threads: Iterable[Thread], format: str | None, *, wait: bool = False
) -> None:
    if format is not None:
        from segue.interfaces.cli.output.output_fields import event_fields

        write_rows(format, ((event, event_fields(event)) for event in events))
        return
    texts = _texts(events, threads)
    first = next(texts, None)
    if first is None:
        click.echo("Nothing has been said in it yet.", err=True)
    show_text(chain([first or ""], texts), wait=wait)


def _texts(events: Iterable[Event], threads: Iterable[Thread]) -> Iterator[str]:
    from segue.interfaces.cli.output.text import Telling, thread_text

    telling = Telling()
    begun = sorted(threads, key=lambda thread: thread.seq or 0)[::-1]
    for event in events:
        while begun and (begun[-1].seq or 0) < event.seq:
            yield f"{thread_text(begun.pop())}\n"
        if (text := telling.text(event)) is not None:
            yield f"{text}\n"
    for thread in reversed(begun):
        yield f"{thread_text(thread)}\n"


def show_session(where: Where, id: str, *, wait: bool = False) -> None:
    """A session's conversation; `wait` for a key before the screen is used for something else."""
    with where.asking() as ask:
        _show_session(ask, id, None, wait=wait)


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
    from segue.interfaces.cli.output.text import Telling

    if count < 0:
        raise click.BadParameter("must be 0 or more", param_hint="'-n'")

    async def tail(hub: Hub, principal: Principal) -> None:
        found = await open_session(hub, principal, session)
        events, seq = await _last(hub, principal, found, count, format is None)
        telling = Telling()
        for event in events:
            _show_one(event, format, telling)
        if follow:
            async for item in hub.history.follow(principal, found.id, seq):
                # Without deltas, events alone.
                _show_one(item, format, telling)  # type: ignore[arg-type]

    where.run(tail)


async def _last(
    hub: Hub, principal: Principal, session: Session, count: int, shown: bool
) -> tuple[list[Event], int]:
    """The last events, of those that are shown, and the seq to go on from."""
    from segue.interfaces.cli.output.text import event_text

    found: list[Event] = []
    before = session.last_seq + 1
    while len(found) < count and before > 1:
        batch = await hub.history.events(
            principal, session.id, before=before, limit=max(50, count), backward=True
        )
        if not batch:
            break
        before = batch[0].seq
        found = [each for each in batch if not shown or event_text(each) is not None] + found
    return found[-count:] if count else [], session.last_seq


def _show_one(event: Event, format: str | None, telling: Telling) -> None:
    from segue.interfaces.cli.output.output_fields import event_fields

    if format is None:
        if (text := telling.text(event)) is not None:
            click.echo(text)
    elif format == "raw":
        write_value("raw", event)
    else:
        # One after the other: what follows is not known yet.
        write_value("jsonl" if format == "csv" else format, event_fields(event))
