"""Run turns in the terminal: print them as they happen, and chat line by line."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from segue.interfaces.cli.output.tables import terminal_columns
from segue.interfaces.cli.output.text import (
    USER_PROMPT,
    ConversationFormatter,
    OpenCalls,
    header_text,
    one_line,
)
from segue.interfaces.cli.terminal_input import terminal_lines
from segue.model.errors import Busy, NotFound
from segue.model.event import (
    AnyBody,
    Delta,
    Event,
    PermissionAnswered,
    PermissionAsked,
    StatusChanged,
    ToolCall,
)
from segue.model.tools.titles import request_title

from .display import TurnDisplay, open_display
from .requests import OnPermission, PermissionRequests, choose_handling

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.model.principal import Principal
    from segue.model.session import Session

_RECENT_EVENTS = 8  # shown when a session is resumed


def show_stop_reason(reason: str) -> bool:
    """Return True if the turn ended normally; otherwise print why it stopped."""
    if reason != "end_turn":
        click.echo(click.style(f"({reason.replace('_', ' ')})", fg="yellow"), err=True)
    return reason == "end_turn"


async def show_key_hint(hub: Hub, principal: Principal) -> None:
    """Print how to use an API key, if one is set and no model is configured."""
    import os

    from segue.hub.access.config import unused_key_hint

    hint = unused_key_hint(await hub.config.all(principal.workspace), os.environ)
    if hint is not None:
        click.echo(f"No model is configured. {hint}.", err=True)


async def chat(hub: Hub, principal: Principal, session: Session) -> None:
    """Show the last events of a session, then send the lines that the user types, until Ctrl-D."""
    await show_key_hint(hub, principal)
    is_terminal = sys.stdout.isatty()
    if is_terminal:
        click.echo(header_text(session), nl=False)
    events = await hub.history.events(principal, session.id, limit=20, backward=True)
    formatter = ConversationFormatter(terminal_columns() if is_terminal else None)
    for event in events[-_RECENT_EVENTS:]:
        if (text := formatter.text(event)) is not None:
            click.echo(text)
    reason = await _interruptible(answer_waiting_turn(hub, principal, session.id))
    if reason == "requires_action":  # Ctrl-D
        click.echo()
        return
    if reason:
        show_stop_reason(reason)
    while True:
        try:
            text = await _interruptible(_read_prompt())
        except EOFError:
            click.echo()
            return
        if text.strip():
            show_stop_reason(await _interruptible(run_turn(hub, principal, session.id, text)))


async def _interruptible(work: Coroutine[Any, Any, str]) -> str:
    """Return the result of `work`, or "cancelled" if Ctrl-C cancels it.

    Raises KeyboardInterrupt if Ctrl-C is pressed at the prompt, where no turn runs.
    """
    import asyncio
    import signal

    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    with suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await task
    except _InterruptedAtPrompt:
        raise KeyboardInterrupt from None
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
        return "cancelled"
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)


class _InterruptedAtPrompt(Exception):
    """Ctrl-C while no turn runs: it ends the conversation."""


async def _read_prompt() -> str:
    import asyncio

    try:
        return await terminal_lines.read_line(USER_PROMPT)
    except asyncio.CancelledError:
        raise _InterruptedAtPrompt from None


async def run_turn(
    hub: Hub,
    principal: Principal,
    id: str,
    text: str,
    on_permission: OnPermission | None = None,
) -> str:
    """Send a prompt, print its turn as it happens, and return the stop reason.

    Permission requests are answered in the terminal, those of a turn that waits for answers first.
    `on_permission` is the user's choice for requests that are not to be asked. Raises NotFound if
    the session is deleted during the turn.
    """
    if await answer_waiting_turn(hub, principal, id, on_permission) == "requires_action":
        return "requires_action"
    turn = await hub.turns.submit(principal, id, text)
    requests = PermissionRequests(hub, principal, id, turn, on_permission=on_permission)
    return await _show_turn(hub, principal, id, turn, requests)


async def answer_waiting_turn(
    hub: Hub, principal: Principal, id: str, on_permission: OnPermission | None = None
) -> str:
    """Ask for the answers that a session's turn waits for, and print the rest of the turn.

    Returns its stop reason: `requires_action` if the user gives no answer. Returns an empty string
    if no turn waits for answers, or if other clients are to give them, as they give the results of
    their tools. Raises Busy if permissions are not asked for here and the user did not choose to
    wait.
    """
    session = await hub.sessions.get(principal, id)
    if session.turn is None or not session.pending:
        return ""
    handling = choose_handling(on_permission)
    if not session.open_asks or handling is not None:
        for line in await waiting_lines(hub, principal, session):
            click.echo(line, err=True)
        if session.open_asks and handling in ("deny", "fail"):
            raise Busy(
                f"a turn of session {id} waits for these answers, so no prompt was sent; answer"
                " them, or add --on-permission wait to `segue prompt`"
            )
        return ""
    # Another process may have been unable to continue the turn with answers that it took.
    await hub.turns.engine.kick((principal.workspace, id))
    turn = session.turn
    requests = PermissionRequests(hub, principal, id, turn, of_earlier_turn=True)
    for request, call in await hub.history.open_requests(principal, session):
        await requests.add(request, call)
    try:
        return await _show_turn(hub, principal, id, turn, requests, after=session.last_seq)
    except EOFError:
        return "requires_action"


async def waiting_lines(hub: Hub, principal: Principal, session: Session) -> list[str]:
    """Return a line for each answer or result that a session's turn waits for."""
    requests = await hub.history.open_requests(principal, session)
    lines = [
        f"Waiting for an answer: {one_line(request_title(request, call))}"
        for request, call in requests
    ]
    if requests:
        lines.append(f"`segue resume {session.id}` asks for it in a terminal.")
    if any(call in session.pending for call in session.open_calls):
        lines.append("Waiting for the result of a tool that a client runs.")
    return lines


async def _show_turn(
    hub: Hub,
    principal: Principal,
    id: str,
    turn: str,
    requests: PermissionRequests,
    after: int | None = None,
) -> str:
    """Print a turn as it happens, from its start or after a seq, and return the stop reason."""
    import asyncio

    display = open_display()
    try:
        if not requests.is_asking:
            display.wait()
        if after is None:
            # A turn of another client may come first.
            seq = await hub.turns.wait_started(principal, id, turn)
            if seq is None:
                return "cancelled"
            after = seq - 1
        calls = OpenCalls()
        async for item in hub.history.follow(principal, id, after, deltas=True):
            if isinstance(item, Delta):
                if item.thread is None:
                    display.add_delta(item)
                continue
            await _show_event(item, calls.find(item), turn, display, requests)
            if (reason := _stop_reason(item.body, turn)) is not None:
                return reason
    except asyncio.CancelledError:
        display.close()
        requests.close()
        if requests.error is not None:
            raise requests.error from None
        if not requests.of_earlier_turn or not (await hub.sessions.get(principal, id)).pending:
            await hub.turns.cancel(principal, id, turn)
            await hub.turns.wait(principal, id, turn)
        raise
    finally:
        display.close()
        requests.close()
    raise NotFound(f"session {id} was deleted during the turn")


async def _show_event(
    event: Event,
    call: ToolCall | None,
    turn: str,
    display: TurnDisplay,
    requests: PermissionRequests,
) -> None:
    """Print an event of a turn, or ask the user; `call` is the tool call that it belongs to."""
    body = event.body
    if display.finish_message(event):
        pass
    elif isinstance(body, PermissionAsked):
        display.pause()
        await requests.add(body, call)
    elif event.id != turn and body.thread is None:
        display.show(event, call)
    if isinstance(body, PermissionAnswered):
        requests.settle(body.ask_id)
        if not requests.is_asking:
            display.wait()


def _stop_reason(body: AnyBody, turn: str) -> str | None:
    """Return why a turn ended, if this event ends it."""
    if not isinstance(body, StatusChanged) or body.turn != turn:
        return None
    return None if body.stop_reason == "requires_action" else body.stop_reason
