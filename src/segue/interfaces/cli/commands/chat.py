"""Talk with an agent: `segue new`, `prompt`, `resume`."""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from segue.interfaces.cli.arguments import cwd_option, session_argument
from segue.interfaces.cli.output.formats import format_option, write_value
from segue.interfaces.cli.output.text import (
    USER_PROMPT,
    OpenCalls,
    one_line,
    request_text,
    safe,
    show_event,
)
from segue.interfaces.cli.target import Target, target_options
from segue.interfaces.cli.terminal_input import terminal_lines
from segue.model.errors import InvalidInput, NotFound
from segue.model.event import (
    Delta,
    Option,
    PermissionAnswered,
    PermissionAsked,
    StatusChanged,
    ToolCall,
)
from segue.model.tools.titles import request_title

if TYPE_CHECKING:
    import asyncio

    from segue.hub import Hub
    from segue.hub.sync.continuing import Continuation, Handoff
    from segue.model.principal import Principal
    from segue.model.session import Session

_RECENT_EVENTS = 8  # shown when a session is resumed


@click.command("new")
@cwd_option("The working directory.  [default: the current directory]", default=".")
@click.option("--title", help="The title.  [default: from the first prompt]")
@click.option("--tag", help="A tag, for `segue list --tag`.")
@format_option
@target_options
def new_command(
    target: Target, cwd: str, title: str | None, tag: str | None, format: str | None
) -> None:
    """Create a session and print its id.

    Example: segue new --title "Fix the parser"
    """
    path = resolve_directory(cwd)
    session = target.run(
        lambda hub, principal: hub.editor.create(
            principal, cwd=path, title=title, tag=tag, origin="cli"
        )
    )
    show_new_session(session, format)


def resolve_directory(directory: str) -> str:
    """Return the absolute path; warn if it does not exist on this machine."""
    path = os.path.abspath(directory)
    if not os.path.isdir(path):
        click.echo(f"segue: warning: directory {path} does not exist on this machine", err=True)
    return path


def show_new_session(session: Session, format: str | None) -> None:
    """Print the id of a new session, or its fields with --format."""
    from segue.interfaces.cli.output.output_fields import session_fields

    if format is None:
        click.echo(session.id)
    else:
        write_value(format, session if format == "raw" else session_fields(session))


@click.command("prompt")
@session_argument
@click.argument("text")
@click.option("--title", help="With `new`: the session's title.")
@target_options
def prompt_command(target: Target, session: str, text: str, title: str | None) -> None:
    """Send a prompt to a session and print the answer; `new` as SESSION creates one.

    `-` as TEXT reads the prompt from standard input. Ctrl-C cancels the turn. The exit code is
    130 after Ctrl-C, and 1 if the turn fails or stops before its end.

    Example: segue prompt new "What can you do?"
    """
    prompt = sys.stdin.read() if text == "-" else text
    if not prompt.strip():
        raise InvalidInput("the prompt is empty; pass a TEXT, or `-` to read standard input")
    if title is not None and session != "new":
        raise InvalidInput(
            "--title is only for `new`; use `segue rename` for a session that exists"
        )

    async def send(hub: Hub, principal: Principal) -> str:
        if session == "new":
            created = await hub.editor.create(principal, cwd=os.getcwd(), title=title, origin="cli")
            click.echo(click.style(created.id, dim=True), err=True)
            return await run_turn(hub, principal, created.id, prompt)
        existing = await hub.sessions.resolve(principal, session)
        if (owner := await hub.sessions.owner(principal, existing.id)) is not None:
            await hub.turns.prepare_for_prompt(principal, existing.id)
            click.echo(f"Imported from {owner} into segue's store.", err=True)
        return await run_turn(hub, principal, existing.id, prompt)

    if not show_stop_reason(target.run(send)):
        sys.exit(1)


def show_stop_reason(reason: str) -> bool:
    """Return True if the turn ended normally; otherwise print why it stopped."""
    if reason != "end_turn":
        click.echo(click.style(f"({reason.replace('_', ' ')})", fg="yellow"), err=True)
    return reason == "end_turn"


@click.command("resume")
@session_argument
@click.option("--here", is_flag=True, help="Continue here, in a fork if another tool owns it.")
@click.option(
    "--in",
    "in_tool",
    metavar="TOOL",
    help="Continue in another tool, such as codex or claude: with the whole conversation, in a "
    "new session of that tool. `segue` answers with a configured model.",
)
@click.option(
    "--model",
    help="With `--in segue`: the model that answers, with --compact the one that writes the "
    "summary, as PROVIDER:NAME.  [default: the configured one]",
)
@click.option(
    "--compact",
    is_flag=True,
    help="With --in: a summary that a model writes instead of the whole conversation, and the "
    "last turns.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    metavar="TURNS",
    help="With --compact: how many of the last turns stay whole.  [default: 3]",
)
@click.option(
    "--dry-run", is_flag=True, help="With --in: show what the tool cannot hold, and write nothing."
)
@format_option
@target_options
def resume_command(
    target: Target,
    session: str,
    here: bool,
    in_tool: str | None,
    model: str | None,
    compact: bool,
    keep: int | None,
    dry_run: bool,
    format: str | None,
) -> None:
    """Resume a session in the tool that owns it, in another tool, or here.

    Another tool is started in the session's directory. segue's own sessions continue here, line
    by line, until Ctrl-D. The original of a session that continues in another tool stays as it is.

    \b
    Example: segue resume "fix the parser"
             segue resume "fix the parser" --in codex
             segue resume 0198c2a4-77b1 --in segue --model openai:gpt-5
    """
    if in_tool is None:
        options = {"--model": model, "--compact": compact, "--dry-run": dry_run, "--format": format}
        if unused := [name for name, value in options.items() if value]:
            raise InvalidInput(f"{unused[0]} is only for --in TOOL")
    elif here:
        raise InvalidInput("use --here or --in, not both; `--in segue` continues here")
    if keep is not None and not compact:
        raise InvalidInput("--keep is only for --compact")
    resolved = target.read(lambda hub, principal: hub.sessions.resolve(principal, session))
    if in_tool is None:
        resume(target, resolved, here=here)
    else:
        from segue.hub.sync.continuing import Handoff

        handoff = None
        if compact:
            handoff = Handoff(model=model) if keep is None else Handoff(keep, model)
            model = None
        resume_in(
            target, resolved, in_tool, model=model, handoff=handoff, dry_run=dry_run, format=format
        )


def resume(target: Target, session: Session, *, here: bool = False) -> None:
    """Resume a session. Does not return if another program resumes it."""
    from segue.hub.tools import deletes_resumed, find_tool
    from segue.interfaces.cli import external_tools

    owner = target.read(lambda hub, principal: hub.sessions.owner(principal, session.id))
    tool_name = target.read(lambda hub, principal: hub.sync.resuming_tool(principal, session))
    tool = None if here else find_tool(tool_name)
    if tool is not None:
        external_tools.find_program(tool.program, session)  # before anything is written
        if deletes_resumed(tool):
            _keep_copy(target, session, tool.label)
        command = tool.resume_command(session, local=True)
        external_tools.start(list(command.arguments), session)
    fork = owner is not None or tool_name is not None
    target.run(lambda hub, principal: _chat_here(hub, principal, session, fork=fork))


def _keep_copy(target: Target, session: Session, label: str) -> None:
    """Import a session before a tool starts that is known to delete resumed sessions."""
    if target.run(lambda hub, principal: hub.continuing.keep_copy(principal, session)):
        message = f"Imported into segue's store, since {label} may delete sessions that it resumes."
    else:
        message = f"Not imported: the store is read-only. {label} may delete the session."
    click.echo(message, err=True)


def resume_in(
    target: Target,
    session: Session,
    tool_name: str,
    *,
    model: str | None = None,
    handoff: Handoff | None = None,
    dry_run: bool = False,
    format: str | None = None,
) -> None:
    """Continue a session in another tool, after a report. Does not return if the tool starts."""
    from segue.hub.tools import find_tool
    from segue.interfaces.cli import external_tools
    from segue.interfaces.cli.output.conversion_report import show_report

    if dry_run:
        report = target.run(
            lambda hub, principal: hub.continuing.report(
                principal, session.id, tool_name, handoff=handoff
            )
        )
        show_report(report, format, to_stderr=False)
        return
    if (tool := find_tool(tool_name)) is not None:
        external_tools.find_program(tool.program, session)  # before anything is written

    async def run(hub: Hub, principal: Principal) -> Continuation:
        continuation = await hub.continuing.continue_in(
            principal, session.id, tool_name, model=model, handoff=handoff, origin="cli"
        )
        show_report(continuation.report, format, to_stderr=format is None)
        if continuation.command is None:
            click.echo(f"Continuing in a fork: {continuation.session.id}", err=True)
            await _chat(hub, principal, continuation.session)
        return continuation

    continuation = target.run(run)
    if continuation.command is not None:
        external_tools.start(list(continuation.command.arguments), continuation.session)


async def _chat_here(hub: Hub, principal: Principal, session: Session, *, fork: bool) -> None:
    """Chat in a session, or in a fork of it that a model answers."""
    if fork:
        session, _, _ = await hub.continuing.continue_in(
            principal, session.id, "segue", origin="cli"
        )
        click.echo(f"Continuing in a fork: {session.id}", err=True)
    await _chat(hub, principal, session)


async def _chat(hub: Hub, principal: Principal, session: Session) -> None:
    """Show the last events of a session, then send the lines that the user types, until Ctrl-D."""
    events = await hub.history.events(principal, session.id, limit=20, backward=True)
    calls = OpenCalls()
    for event in events[-_RECENT_EVENTS:]:
        show_event(event, calls.find(event))
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


async def run_turn(hub: Hub, principal: Principal, id: str, text: str) -> str:
    """Send a prompt, print its turn as it happens, and return the stop reason.

    Permission requests are answered in the terminal, those of a turn that waits for answers first.
    Raises NotFound if the session is deleted during the turn.
    """
    if await answer_waiting_turn(hub, principal, id) == "requires_action":
        return "requires_action"
    turn = await hub.turns.submit(principal, id, text)
    return await _show_turn(hub, principal, id, turn, _PermissionRequests(hub, principal, id, turn))


async def answer_waiting_turn(hub: Hub, principal: Principal, id: str) -> str:
    """Ask for the answers that a session's turn waits for, and print the rest of the turn.

    Returns its stop reason: `requires_action` if the user gives no answer. Returns an empty string
    if no turn waits for answers. Without a terminal, the requests are only printed.
    """
    session = await hub.sessions.get(principal, id)
    if session.turn is None or not session.pending:
        return ""
    if not session.open_asks or not sys.stdin.isatty():
        for line in await waiting_lines(hub, principal, session):
            click.echo(line, err=True)
        return ""
    turn = session.turn
    requests = _PermissionRequests(hub, principal, id, turn, of_earlier_turn=True)
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
    requests: _PermissionRequests,
    after: int | None = None,
) -> str:
    """Print a turn as it happens, from its start or after a seq, and return the stop reason."""
    import asyncio

    streamed_message = ""
    calls = OpenCalls()
    try:
        if after is None:
            # A turn of another client may come first.
            seq = await hub.turns.wait_started(principal, id, turn)
            if seq is None:
                return "cancelled"
            after = seq - 1
        async for item in hub.history.follow(principal, id, after, deltas=True):
            if isinstance(item, Delta) and item.thread is not None:
                continue
            if isinstance(item, Delta):
                click.echo(click.style(safe(item.text), dim=item.kind == "thought"), nl=False)
                streamed_message = item.message
                continue
            call = calls.find(item)
            if streamed_message == item.id:
                click.echo()
            elif isinstance(item.body, PermissionAsked):
                await requests.add(item.body, call)
            elif item.id != turn and item.body.thread is None:
                show_event(item, call)
            if isinstance(item.body, PermissionAnswered):
                requests.settle(item.body.ask_id)
            if isinstance(item.body, StatusChanged) and item.body.turn == turn:
                reason = item.body.stop_reason
                if reason is not None and reason != "requires_action":
                    return reason
    except asyncio.CancelledError:
        requests.close()
        if requests.error is not None:
            raise requests.error from None
        if not requests.of_earlier_turn or not (await hub.sessions.get(principal, id)).pending:
            await hub.turns.cancel(principal, id, turn)
            await hub.turns.wait(principal, id, turn)
        raise
    finally:
        requests.close()
    raise NotFound(f"session {id} was deleted during the turn")


class _PermissionRequests:
    """The permission requests of one turn, asked in the terminal until they are answered."""

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        id: str,
        turn_id: str,
        *,
        of_earlier_turn: bool = False,
    ) -> None:
        """Create an empty set. An earlier turn still waits after the user has ended the input."""
        import asyncio

        self._hub, self._principal, self._id, self._turn_id = hub, principal, id, turn_id
        self.of_earlier_turn = of_earlier_turn
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._terminal_lock = asyncio.Lock()  # one request is asked at a time
        self._turn = asyncio.current_task()
        self.error: BaseException | None = None

    async def add(self, request: PermissionAsked, call: ToolCall | None) -> None:
        """Ask in the terminal; without one, reject the request."""
        import asyncio

        if sys.stdin.isatty():
            task = self._tasks[request.ask_id] = asyncio.ensure_future(self._ask(request, call))
            task.add_done_callback(self._on_done)
            return
        click.echo(request_text(request, call))
        reject = next(
            (option.id for option in request.options if option.kind.startswith("reject")), None
        )
        click.echo("  (rejected: no terminal to ask in)", err=True)
        await self._hub.turns.answer(self._principal, self._id, request.ask_id, reject)

    def settle(self, ask_id: str) -> None:
        """Stop asking about a request that was answered by another client."""
        task = self._tasks.pop(ask_id, None)
        if task is not None:
            click.echo("\n  (answered elsewhere)")
            task.cancel()

    def close(self) -> None:
        """Stop asking."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.error = error
            if self._turn is not None:
                self._turn.cancel()

    async def _ask(self, request: PermissionAsked, call: ToolCall | None) -> None:
        async with self._terminal_lock:
            click.echo(request_text(request, call))
            for number, option in enumerate(request.options, 1):
                click.echo(f"  {number}. {one_line(option.name)}")
            answer: Option | None = None
            while answer is None:
                try:
                    text = await terminal_lines.read_line("  Your choice: ")
                except EOFError:
                    if self.of_earlier_turn:
                        raise
                    await self._hub.turns.cancel(self._principal, self._id, self._turn_id)
                    return
                answer = _match_option(request.options, text)
                if answer is None:
                    click.echo(f"  {text!r} matches no single option: {_choices(request.options)}")
            self._tasks.pop(request.ask_id, None)
            with suppress(NotFound):  # another client has answered meanwhile
                await self._hub.turns.answer(self._principal, self._id, request.ask_id, answer.id)


def _choices(options: Sequence[Option]) -> str:
    names = [f"{number} ({one_line(option.name)})" for number, option in enumerate(options, 1)]
    return f"enter {' or '.join(names)}"


def _match_option(options: Sequence[Option], text: str) -> Option | None:
    """Return the option with this number, name or name prefix, or for y or n; None if unclear.

    y and n mean this call only. An option that holds for later calls must be named.
    """
    answer = text.strip().casefold()
    if answer.isdecimal():
        index = int(answer) - 1
        return options[index] if 0 <= index < len(options) else None
    if answer in ("y", "yes", "n", "no"):
        kind = "allow_once" if answer[0] == "y" else "reject_once"
        matches = [option for option in options if option.kind == kind]
    else:
        matches = [option for option in options if option.name.casefold() == answer]
        if not matches and answer:
            matches = [option for option in options if option.name.casefold().startswith(answer)]
    return matches[0] if len(matches) == 1 else None
