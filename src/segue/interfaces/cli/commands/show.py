"""Read one session: `segue show`, `tail`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import click

from segue.interfaces.cli.arguments import (
    open_session,
    optional_session_argument,
    session_argument,
    session_or_newest,
)
from segue.interfaces.cli.output.formats import format_option, write_rows, write_value
from segue.interfaces.cli.output.pager import pager_option, show_text
from segue.interfaces.cli.target import HubReader, Target, target_options

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.interfaces.cli.output.text import ConversationFormatter
    from segue.model.event import Event, ForkPoint
    from segue.model.principal import Principal
    from segue.model.session import Session, Thread

_BATCH_EVENTS = 200
_MIN_TAIL_PAGE_EVENTS = 50


@click.command("show")
@optional_session_argument
@click.option("--info", is_flag=True, help="Show the session's fields, not its conversation.")
@click.option("--agent", metavar="ID", help="Show what a subagent of the session did.")
@pager_option
@format_option
@target_options
def show_command(
    target: Target, session: str | None, info: bool, agent: str | None, format: str | None
) -> None:
    """Show a session's conversation; with --format its events.

    SESSION is an id, an id prefix, the id that its tool shows, or a title; `@` is the newest
    session of this directory, which is also shown without SESSION, and `@2` the second newest.
    Where the session started a subagent, a line names the --agent option that shows it.

    \b
    Example: segue show 0198c2a4-77b1
             segue show @2
    """
    name = session_or_newest(target, session, "show")
    with target.reader() as reader:
        resolved = reader(lambda hub, principal: open_session(hub, principal, name))
        if resolved.state == "trashed" and format is None:
            click.echo(f"In the trash; `segue restore {resolved.id}` restores it.", err=True)
        if info:
            _show_info(resolved, format)
        elif agent is not None:
            events = _read_events(
                reader,
                lambda hub, principal: hub.history.thread_events(principal, resolved.id, agent),
            )
            _show_events(events, format)
        else:
            _show_conversation(reader, resolved, format)
            if format is None:
                _show_waiting(reader, resolved)
                _show_usage(resolved)


def _show_conversation(
    reader: HubReader, session: Session, format: str | None, *, wait: bool = False
) -> None:
    id = session.id
    threads = reader(lambda hub, principal: hub.history.threads(principal, id))
    events = _read_events(reader, lambda hub, principal: _ended_conversation(hub, principal, id))
    header = ""
    if format is None and sys.stdout.isatty():
        from segue.interfaces.cli.output.text import header_text

        header = header_text(session)
    _show_events(events, format, threads=threads, fork=session.fork, header=header, wait=wait)


def _show_waiting(reader: HubReader, session: Session) -> None:
    """Print what a session's turn waits for, below its conversation."""
    if session.pending:
        from segue.interfaces.cli.conversation.turns import waiting_lines

        for line in reader(lambda hub, principal: waiting_lines(hub, principal, session)):
            click.echo(line, err=True)


def _show_usage(session: Session) -> None:
    """Print the tokens and the cost of a session below its conversation, in a terminal."""
    from segue.render.format import session_cost, short

    if session.usage.tokens and sys.stdout.isatty():
        usage = f"{short(session.usage.tokens)} tokens, {session_cost(session)}"
        click.echo(click.style(f"-- {usage} --", dim=True), err=True)


async def _ended_conversation(hub: Hub, principal: Principal, id: str) -> AsyncIterator[Event]:
    """Yield the conversation, with the text that had arrived when the turn's process died."""
    history = await hub.history.as_ended(principal, id)
    async for event in history.conversation(principal, id):
        yield event


def _read_events(
    reader: HubReader, start: Callable[[Hub, Principal], AsyncIterator[Event]]
) -> Iterator[Event]:
    """Yield events in batches, since a history may not fit into memory."""
    current_hub: Hub | None = None
    events: AsyncIterator[Event] | None = None
    count = 0

    async def read_batch(hub: Hub, principal: Principal) -> list[Event]:
        nonlocal current_hub, events
        batch: list[Event] = []
        skip = 0
        # The reader opens another hub if a read needs an event loop.
        if events is None or current_hub is not hub:
            current_hub, events, skip = hub, start(hub, principal), count
        async for event in events:
            if skip:
                skip -= 1
                continue
            batch.append(event)
            if len(batch) == _BATCH_EVENTS:
                break
        return batch

    while batch := reader(read_batch):
        yield from batch
        count += len(batch)


def _show_info(session: Session, format: str | None) -> None:
    from segue.interfaces.cli.output.output_fields import session_fields

    if format == "raw":
        write_value("raw", session)
    else:
        write_value(format or "yaml", session_fields(session))


def _show_events(
    events: Iterator[Event],
    format: str | None,
    *,
    threads: Iterable[Thread] = (),
    fork: ForkPoint | None = None,
    header: str = "",
    wait: bool = False,
) -> None:
    if format is not None:
        from segue.interfaces.cli.output.output_fields import event_fields

        write_rows(format, ((event, event_fields(event)) for event in events))
        return
    texts = _format_conversation(events, threads, fork)
    first = next(texts, None)
    if first is None:
        click.echo("The session has no messages yet.", err=True)
    show_text(chain([header, first or ""], texts), wait=wait)


def _format_conversation(
    events: Iterable[Event], threads: Iterable[Thread], fork: ForkPoint | None
) -> Iterator[str]:
    """Yield each event as text, with subagents' threads where they started.

    In a fork, a line ends the messages of its parent.
    """
    from segue.interfaces.cli.output.text import ConversationFormatter, fork_text, thread_text

    formatter = ConversationFormatter(_text_columns())
    newest_first = sorted(threads, key=lambda thread: thread.seq or 0)[::-1]
    is_shared = False  # whether the last event was one of the parent
    for event in events:
        if fork is not None and is_shared and event.seq > fork.seq:
            yield f"{fork_text(fork.session)}\n"
        is_shared = fork is not None and event.seq <= fork.seq
        while newest_first and (newest_first[-1].seq or 0) < event.seq:
            yield f"{thread_text(newest_first.pop())}\n"
        if (text := formatter.text(event)) is not None:
            yield f"{text}\n"
    for thread in reversed(newest_first):
        yield f"{thread_text(thread)}\n"
    if fork is not None and is_shared:
        yield f"{fork_text(fork.session)}\n"


def _text_columns() -> int | None:
    """Return the width at which text is wrapped; None if it does not go to a terminal."""
    if not sys.stdout.isatty():
        return None
    from segue.interfaces.cli.output.tables import terminal_columns

    return terminal_columns()


def show_session(target: Target, id: str, *, wait: bool = False) -> None:
    """Show a session's conversation; with `wait`, until a key is pressed."""
    with target.reader() as reader:
        session = reader(lambda hub, principal: hub.sessions.get(principal, id))
        _show_conversation(reader, session, None, wait=wait)


@click.command("tail")
@session_argument
@click.option("-f", "--follow", is_flag=True, help="Also show new events, until Ctrl-C.")
@click.option(
    "-n", "--lines", "count", default=10, show_default=True, help="How many events to start with."
)
@format_option
@target_options
def tail_command(
    target: Target, session: str, follow: bool, count: int, format: str | None
) -> None:
    """Show the end of a session's conversation; with --follow also new events, live.

    Example: segue tail -f 0198c2a4-77b1
    """
    from segue.interfaces.cli.output.text import ConversationFormatter

    if count < 0:
        raise click.BadParameter("must be 0 or more", param_hint="'-n'")

    async def tail(hub: Hub, principal: Principal) -> None:
        resolved = await open_session(hub, principal, session)
        events = await _last_events(
            hub, principal, resolved, count, conversation_only=format is None
        )
        formatter = ConversationFormatter(_text_columns())
        for event in events:
            _show_event(event, format, formatter)
        if follow:
            async for item in hub.history.follow(principal, resolved.id, resolved.last_seq):
                _show_event(item, format, formatter)

    target.run(tail)


async def _last_events(
    hub: Hub, principal: Principal, session: Session, count: int, *, conversation_only: bool
) -> list[Event]:
    """Return the last `count` events, or the last that are part of the conversation."""
    from segue.interfaces.cli.output.text import event_text

    events: list[Event] = []
    before = session.last_seq + 1
    while len(events) < count and before > 1:
        batch = await hub.history.events(
            principal,
            session.id,
            before=before,
            limit=max(_MIN_TAIL_PAGE_EVENTS, count),
            backward=True,
        )
        if not batch:
            break
        before = batch[0].seq
        events = [
            event
            for event in batch
            if not conversation_only or (event.body.thread is None and event_text(event))
        ] + events
    return events[-count:] if count else []


def _show_event(event: Event, format: str | None, formatter: ConversationFormatter) -> None:
    from segue.interfaces.cli.output.output_fields import event_fields

    if format is None and event.body.thread is not None:
        return
    if format is None:
        if (text := formatter.text(event)) is not None:
            click.echo(text)
    elif format == "raw":
        write_value("raw", event)
    else:
        # A CSV header would repeat for each event.
        write_value("jsonl" if format == "csv" else format, event_fields(event))
