"""The child processes, one a command: begun when they are needed, ended when nobody does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ...acp.client import AcpClient
from ...acp.process import AgentProcess
from ...acp.rpc import Disconnected, RpcError
from ...model.errors import AgentFailed
from .offered import learned

log = logging.getLogger("segue.agents.acp")

START_SECONDS = 60.0
IDLE_SECONDS = 300.0  # without a turn, after which a child is ended

_OFFERS = ("available_commands_update", "current_mode_update", "config_option_update")

Command = tuple[str, ...]
Update = Callable[[dict[str, Any]], Awaitable[None]]
Permission = Callable[[dict[str, Any]], Awaitable[str | None]]


class Child:
    """One agent at work. `hear` is who is told of a session, by the child's own id of it."""

    def __init__(self, process: AgentProcess) -> None:
        self._process = process
        lines = process.lines
        self.client = AcpClient(lines, lines, on_update=self._told, on_permission=self._asked)
        self._serving = asyncio.ensure_future(self.client.serve())
        self._hearers: dict[str, tuple[Update, Permission]] = {}
        self.open: set[str] = set()  # the child's sessions that were opened in it
        self.ours: dict[str, str] = {}  # the child's session, by ours
        self.offered: dict[str, dict[str, Any]] = {}  # what each of its sessions can be told to do
        self.working: dict[str, asyncio.Task[Any]] = {}  # prompts, by the child's session

    @classmethod
    async def start(cls, command: Command, cwd: str) -> Child:
        try:
            child = cls(await AgentProcess.start(command, cwd=cwd))
        except OSError as error:
            why = f"{error.strerror}: {error.filename}"
            raise AgentFailed(f"{command[0]} could not be started: {why}") from error
        try:
            async with asyncio.timeout(START_SECONDS):
                await child.client.initialize()
        except (RpcError, Disconnected, TimeoutError) as error:
            why = await child.why(error)
            await child.end()
            raise AgentFailed(f"{command[0]} is no agent that can be talked to: {why}") from error
        except BaseException:
            await child.end()
            raise
        return child

    @property
    def gone(self) -> bool:
        return self._serving.done()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def why(self, error: Exception) -> str:
        """What an error of the connection means, in words."""
        if isinstance(error, Disconnected):
            return await self._process.last_words()
        if isinstance(error, TimeoutError):
            return f"it did not answer within {START_SECONDS:.0f} s"
        return error.message if isinstance(error, RpcError) else str(error)

    def work(self, session: str, work: asyncio.Task[Any]) -> None:
        """Note a prompt that the child is at, for as long as it is: who cancels may not wait."""

        def over(task: asyncio.Task[Any]) -> None:
            if self.working.get(session) is task:
                del self.working[session]
                self.unhear(session)
            if not task.cancelled():
                task.exception()  # heard, so that nobody warns that it was not

        self.working[session] = work
        work.add_done_callback(over)

    def busy(self) -> list[str]:
        """The child's sessions in which it is at a prompt."""
        return list(self.working)

    def hear(self, session: str, update: Update, permission: Permission) -> None:
        self._hearers[session] = (update, permission)

    def unhear(self, session: str) -> None:
        self._hearers.pop(session, None)

    def opened(self, session: str, ours: str | None = None) -> None:
        """The child has a session open: one of ours, or one that will be."""
        self.open.add(session)
        if ours is not None:
            self.ours[ours] = session
        self.learn(session, self.client.setups.pop(session, {}))

    def learn(self, session: str, told: dict[str, Any]) -> dict[str, Any]:
        """What is offered for a session, after the child told something."""
        found = learned(self.offered.get(session, {}), told)
        self.offered[session] = found
        return found

    async def _told(self, session: str, update: dict[str, Any]) -> None:
        if update.get("sessionUpdate") in _OFFERS:
            self.learn(session, update)
        if hearer := self._hearers.get(session):
            await hearer[0](update)

    async def _asked(self, request: dict[str, Any]) -> str | None:
        hearer = self._hearers.get(str(request.get("sessionId")))
        return None if hearer is None else await hearer[1](request)

    async def end(self) -> None:
        # Not obeying is no reason to wait for it.
        await self._process.end(0.0 if self.working else 2.0)
        await self._serving
        await asyncio.gather(*self.working.values(), return_exceptions=True)


class Children:
    """All children of this process."""

    def __init__(self) -> None:
        self._children: dict[Command, Child] = {}
        self._starting: dict[Command, asyncio.Lock] = {}
        self._users: dict[Command, int] = {}
        self._timers: dict[Command, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def borrow(self, command: Command, cwd: str) -> Child:
        """The child, begun if it is not at work; to be given back after the turn."""
        self._users[command] = self._users.get(command, 0) + 1
        if timer := self._timers.pop(command, None):
            timer.cancel()
        try:
            return await self.begun(command, cwd)
        except BaseException:
            self.give_back(command)
            raise

    async def begun(self, command: Command, cwd: str) -> Child:
        async with self._starting.setdefault(command, asyncio.Lock()):
            child = self._children.get(command)
            if child is None or child.gone:
                if child is not None:
                    await child.end()
                child = self._children[command] = await Child.start(command, cwd)
            return child

    def give_back(self, command: Command) -> None:
        self._users[command] -= 1
        if not self._users[command]:
            loop = asyncio.get_running_loop()
            self._timers[command] = loop.call_later(IDLE_SECONDS, self._idle, command)

    def unused(self, command: Command) -> bool:
        """Whether nobody has the child now."""
        return not self._users.get(command)

    def peek(self, command: Command) -> Child | None:
        return self._children.get(command)

    async def discard(self, command: Command, child: Child) -> None:
        """End a child that is of no use any more; the next turn begins another."""
        if self._children.get(command) is child:
            del self._children[command]
        await child.end()

    def _idle(self, command: Command) -> None:
        self._timers.pop(command, None)
        if child := self._children.get(command):
            task = asyncio.get_running_loop().create_task(self.discard(command, child))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        children: Sequence[Child] = list(self._children.values())
        self._children.clear()
        await asyncio.gather(*(child.end() for child in children), *self._ending)
