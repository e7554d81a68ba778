"""Talking with an agent: `segue new`, `prompt`, `resume`."""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from segue.interfaces.cli.arguments import cwd_option, session_argument
from segue.interfaces.cli.main import Where, located
from segue.interfaces.cli.output.formats import formatted, write_value
from segue.interfaces.cli.output.text import USER, one_line, safe, show_event
from segue.interfaces.cli.terminal_input import typed
from segue.model.errors import InvalidInput, NotFound
from segue.model.event import Delta, Option, PermissionAnswered, PermissionAsked, StatusChanged

if TYPE_CHECKING:
    import asyncio

    from segue.hub import Hub
    from segue.model.principal import Principal
    from segue.model.session import Session


@click.command("new")
@cwd_option("Its working directory.  [default: this one]", default=".")
@click.option("--title", help="Its title; without one, the first prompt gives it.")
@click.option("--tag", help="A tag to find it by.")
@formatted
@located
def new_command(
    where: Where, cwd: str, title: str | None, tag: str | None, format: str | None
) -> None:
    """Make a session and print its id.

    Example: segue new --title "Fix the parser"
    """
    path = place(cwd)
    made = where.run(
        lambda hub, principal: hub.editor.create(
            principal, cwd=path, title=title, tag=tag, origin="cli"
        )
    )
    show_made(made, format)


def place(given: str) -> str:
    """A working directory. One that is not here may be elsewhere, but more often it is mistyped."""
    path = os.path.abspath(given)
    if not os.path.isdir(path):
        click.echo(f"segue: there is no directory {path} here; it is taken all the same", err=True)
    return path


def show_made(session: Session, format: str | None) -> None:
    """A new session: its id, or its fields."""
    from segue.interfaces.cli.output.output_fields import session_fields

    if format is None:
        click.echo(session.id)
    else:
        write_value(format, session if format == "raw" else session_fields(session))


@click.command("prompt")
@session_argument
@click.argument("text")
@click.option("--title", help="With `new`: the session's title.")
@located
def prompt_command(where: Where, session: str, text: str, title: str | None) -> None:
    """Ask a session's agent something and watch the answer; `new` as SESSION begins one.

    A TEXT of `-` is read from standard input. Ctrl-C cancels the turn. The exit code is 1 when
    the turn did not end well.

    Example: segue prompt new "What can you do?"
    """
    asked = sys.stdin.read() if text == "-" else text
    if not asked.strip():
        raise InvalidInput("the prompt is empty; give a TEXT, or `-` to read it from a pipe")
    if title is not None and session != "new":
        raise InvalidInput("--title goes with `new`; `segue rename` names a session that exists")

    async def prompt(hub: Hub, principal: Principal) -> str:
        if session == "new":
            made = await hub.editor.create(principal, cwd=os.getcwd(), title=title, origin="cli")
            click.echo(click.style(made.id, dim=True), err=True)
        else:
            made = await hub.sessions.resolve(principal, session)
            if (keeper := await hub.sessions.owner(principal, made.id)) is not None:
                await hub.turns.prepare_for_prompt(principal, made.id)
                click.echo(f"Copied from {keeper} into the store.", err=True)
        return await converse(hub, principal, made.id, asked)

    if not ended_well(where.run(prompt)):
        sys.exit(1)


def ended_well(reason: str) -> bool:
    """Whether a turn ended as it should; if not, that is said."""
    if reason != "end_turn":
        click.echo(click.style(f"({reason.replace('_', ' ')})", fg="yellow"), err=True)
    return reason == "end_turn"


@click.command("resume")
@session_argument
@click.option(
    "--here", is_flag=True, help="Go on here, in a fork, whatever tool the session is of."
)
@located
def resume_command(where: Where, session: str, here: bool) -> None:
    """Go on with a session, in the tool that keeps it or here.

    Another tool is started in the session's directory. segue's own sessions go on here, line by
    line, until Ctrl-D.

    Example: segue resume "fix the parser"
    """
    found = where.read(lambda hub, principal: hub.sessions.resolve(principal, session))
    resume(where, found, here=here)


def resume(where: Where, session: Session, *, here: bool = False) -> None:
    """Go on with a session where it belongs. Does not return where that is another program."""
    from segue.interfaces.cli import external_tools

    keeper = where.read(lambda hub, principal: hub.sessions.owner(principal, session.id))
    command = None if here or keeper is None else external_tools.command(session)
    if command is not None:
        external_tools.start(command, session)
    where.run(lambda hub, principal: _talk(hub, principal, session, fork=keeper is not None))


async def _talk(hub: Hub, principal: Principal, session: Session, *, fork: bool) -> None:
    if fork:
        session = await hub.editor.fork(principal, session.id, origin="cli", in_store=True)
        click.echo(f"Going on in a fork, {session.id}.", err=True)
    for event in (await hub.history.events(principal, session.id, limit=20, backward=True))[-8:]:
        show_event(event)
    while True:
        try:
            text = await _interruptible(_line())
        except EOFError:
            click.echo()
            return
        if text.strip():
            ended_well(await _interruptible(converse(hub, principal, session.id, text)))


async def _interruptible(work: Coroutine[Any, Any, str]) -> str:
    """Do something that Ctrl-C ends: a turn alone, and all of it where nothing else goes on."""
    import asyncio
    import signal

    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    with suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await task
    except _Left:
        raise KeyboardInterrupt from None
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
        return "cancelled"
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)


class _Left(Exception):
    """Ctrl-C, where nothing goes on that it could end but the conversation."""


async def _line() -> str:
    import asyncio

    try:
        return await typed.next(USER)
    except asyncio.CancelledError:
        raise _Left from None


async def converse(hub: Hub, principal: Principal, id: str, text: str) -> str:
    """Send a prompt and show its turn as it happens, asking here what the agent asks."""
    import asyncio

    seq = (await hub.turns.prepare_for_prompt(principal, id)).last_seq
    turn = await hub.turns.submit(principal, id, text)
    streamed = ""
    questions = _Questions(hub, principal, id)
    try:
        async for item in hub.history.follow(principal, id, seq, deltas=True):
            if isinstance(item, Delta):
                piece = click.style(safe(item.text), dim=item.kind == "thought")
                click.echo(piece, nl=False)
                streamed = item.message
                continue
            if streamed == item.id:
                click.echo()
            elif item.id != turn:
                show_event(item)
            if isinstance(item.body, PermissionAsked):
                await questions.put(item.body)
            if isinstance(item.body, PermissionAnswered):
                questions.settle(item.body.ask_id)
            if isinstance(item.body, StatusChanged) and item.body.turn == turn:
                reason = item.body.stop_reason
                if reason is not None and reason != "requires_action":
                    return reason
    except asyncio.CancelledError:
        questions.close()
        if questions.failed is not None:
            raise questions.failed from None
        await hub.turns.cancel(principal, id)
        await hub.turns.wait(principal, id, turn)
        raise
    finally:
        questions.close()
    raise NotFound(f"session {id} was deleted meanwhile")


class _Questions:
    """What an agent asks in a turn: put to the terminal until it is answered, here or elsewhere."""

    def __init__(self, hub: Hub, principal: Principal, id: str) -> None:
        import asyncio

        self._hub, self._principal, self._id = hub, principal, id
        self._open: dict[str, asyncio.Task[None]] = {}
        self._one = asyncio.Lock()  # at a time, however many there are
        self._turn = asyncio.current_task()
        self.failed: BaseException | None = None

    async def put(self, asked: PermissionAsked) -> None:
        import asyncio

        if sys.stdin.isatty():
            question = self._open[asked.ask_id] = asyncio.ensure_future(self._ask(asked))
            question.add_done_callback(self._done)
            return
        reject = next((o.id for o in asked.options if o.kind.startswith("reject")), None)
        click.echo("  (no terminal to ask in: rejected)", err=True)
        await self._hub.turns.answer(self._principal, self._id, asked.ask_id, reject)

    def settle(self, ask_id: str) -> None:
        """Somebody has answered one."""
        question = self._open.pop(ask_id, None)
        if question is not None:
            click.echo("\n  (answered elsewhere)")
            question.cancel()

    def close(self) -> None:
        for question in self._open.values():
            question.cancel()
        self._open.clear()

    def _done(self, question: asyncio.Task[None]) -> None:
        if not question.cancelled() and (error := question.exception()) is not None:
            self.failed = error
            if self._turn is not None:
                self._turn.cancel()

    async def _ask(self, asked: PermissionAsked) -> None:
        async with self._one:
            for number, option in enumerate(asked.options, 1):
                click.echo(f"  {number}. {one_line(option.name)}")
            chosen: str | None = None
            while chosen is None:
                try:
                    chosen = _chosen(asked.options, await typed.next("  Which: "))
                except EOFError:
                    await self._hub.turns.cancel(self._principal, self._id)
                    return
            self._open.pop(asked.ask_id, None)
            with suppress(NotFound):  # somebody else was quicker
                await self._hub.turns.answer(self._principal, self._id, asked.ask_id, chosen)


def _chosen(options: Sequence[Option], text: str) -> str | None:
    """The option that is meant by its number, the beginning of its name, or y or n.

    "Yes" is to this call, and not to all that will ever come: options for good are to be named.
    """
    said = text.strip().casefold()
    if said.isdecimal():
        meant = [options[int(said) - 1]] if 0 < int(said) <= len(options) else []
    elif said in ("y", "yes", "n", "no"):
        kind = "allow_once" if said[0] == "y" else "reject_once"
        meant = [each for each in options if each.kind == kind]
    else:
        named = [(each.name.casefold(), each) for each in options]
        meant = [each for name, each in named if name == said]
        meant = meant or [each for name, each in named if said and name.startswith(said)]
    if len(meant) == 1:
        return meant[0].id
    names = [f"{at} ({one_line(each.name)})" for at, each in enumerate(options, 1)]
    click.echo(f"  {text!r} is none of them, or several: answer {' or '.join(names)}")
    return None
