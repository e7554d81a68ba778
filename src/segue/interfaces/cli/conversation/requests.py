"""Ask for permissions in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import click

from segue.interfaces.cli.output.text import one_line, request_text
from segue.interfaces.cli.terminal_input import terminal_lines
from segue.model.errors import NoAgent, NotFound
from segue.model.event import Option, PermissionAsked, ToolCall

from .planned_changes import planned_changes

if TYPE_CHECKING:
    import asyncio

    from segue.hub import Hub
    from segue.model.principal import Principal

# A turn counts as not continued if other processes ignore its answers for so many checks.
_CHECKS = 3
_CHECK_SECONDS = 1.0


# What happens to a permission request that is not asked in the terminal: it is rejected, it waits
# for another client, or its turn is cancelled.
OnPermission = Literal["deny", "wait", "fail"]


def choose_handling(chosen: OnPermission | None) -> OnPermission | None:
    """Return what happens to permission requests; None means that they are asked in the terminal.

    Without a choice of the user, they are asked, or rejected if there is no terminal.
    """
    return chosen or (None if sys.stdin.isatty() else "deny")


class PermissionRequests:
    """The permission requests of one turn, asked in the terminal until they are answered."""

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        id: str,
        turn_id: str,
        *,
        on_permission: OnPermission | None = None,
        of_earlier_turn: bool = False,
    ) -> None:
        """Create an empty set. An earlier turn still waits after the user has ended the input.

        `on_permission` is the user's choice for requests that are not to be asked.
        """
        import asyncio

        self._chosen, self._handling = on_permission, choose_handling(on_permission)

        self._hub, self._principal, self._id, self._turn_id = hub, principal, id, turn_id
        self.of_earlier_turn = of_earlier_turn
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._terminal_lock = asyncio.Lock()  # one request is asked at a time
        self._turn = asyncio.current_task()
        self._continuation: asyncio.Task[None] | None = None
        self.error: BaseException | None = None

    @property
    def is_asking(self) -> bool:
        """Return whether a request waits for an answer in this terminal."""
        return bool(self._tasks)

    async def add(self, request: PermissionAsked, call: ToolCall | None) -> None:
        """Ask in the terminal, or handle the request as the user chose."""
        import asyncio

        if self._handling is None:
            task = self._tasks[request.ask_id] = asyncio.ensure_future(self._ask(request, call))
            task.add_done_callback(self._on_done)
            return
        click.echo(request_text(request, call))
        reason = (
            "no terminal to ask in" if self._chosen is None else f"--on-permission {self._chosen}"
        )
        if self._handling == "wait":
            click.echo(
                f"  (waiting for an answer in a browser, an editor or `segue resume {self._id}`)",
                err=True,
            )
            return
        if self._handling == "fail":
            click.echo(f"  (cancelled: {reason})", err=True)
            await self._hub.turns.cancel(self._principal, self._id, self._turn_id)
            return
        reject = next(
            (option.id for option in request.options if option.kind.startswith("reject")), None
        )
        click.echo(f"  (rejected: {reason})", err=True)
        with suppress(NotFound):  # another client has answered meanwhile
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
        if self._continuation is not None:
            self._continuation.cancel()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.error = error
            if self._turn is not None:
                self._turn.cancel()

    async def _ask(self, request: PermissionAsked, call: ToolCall | None) -> None:
        import asyncio

        async with self._terminal_lock:
            session = await self._hub.sessions.get(self._principal, self._id)
            for line in planned_changes(call, session.directory):
                click.echo(line)
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
        if self.of_earlier_turn and not self._tasks:
            self._continuation = asyncio.ensure_future(self._require_continuation())
            self._continuation.add_done_callback(self._on_done)

    async def _require_continuation(self) -> None:
        """Raise NoAgent if no process continues the turn with the answers."""
        import asyncio

        name, checks = (self._principal.workspace, self._id), 0
        while checks < _CHECKS:
            await asyncio.sleep(_CHECK_SECONDS)
            error = await self._hub.turns.engine.why_left(name)
            checks = 0 if error is None else checks + 1
        raise NoAgent(
            "your answer is stored, but this process cannot continue the turn:"
            f" {str(error).rstrip('.')}. Then run `segue resume {self._id}` again"
        )


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
