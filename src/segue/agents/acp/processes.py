"""The child processes, one a command: begun when they are needed, ended when nobody does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from segue.acp.client import AcpClient
from segue.acp.methods import (
    ELICITATION_COMPLETE,
    ELICITATION_CREATE,
    READ_FILE,
    TERMINAL_OUTPUT,
    TERMINAL_RELEASE,
    WRITE_FILE,
)
from segue.acp.process import AgentProcess
from segue.acp.rpc import METHOD_NOT_FOUND, NOT_FOUND, Disconnected, RpcError
from segue.model.errors import AgentFailed

from .agent_options import learned
from .client_requests import ClientProxy, Files, capabilities

log = logging.getLogger("segue.agents.acp")

START_SECONDS = 60.0
IDLE_SECONDS = 300.0  # without a turn, after which a child is ended

_OFFERS = ("available_commands_update", "current_mode_update", "config_option_update")

Command = tuple[str, ...]
Update = Callable[[dict[str, Any]], Awaitable[None]]
Permission = Callable[[dict[str, Any]], Awaitable[str | None]]
Output = Callable[[str, str], None]


class Hearer(NamedTuple):
    """Who is told of a session. Whoever has a turn has its files too, and keeps what is seen in
    terminals."""

    update: Update
    permission: Permission
    files: Files | None = None
    seen: Output | None = None


class Child:
    """One agent at work. `hear` is who is told of a session, by the child's own id of it."""

    def __init__(self, process: AgentProcess, client_proxy: ClientProxy | None) -> None:
        self._process = process
        self._editor = client_proxy
        self.client = AcpClient(
            process.stream,
            process.stream,
            on_update=self._told,
            on_permission=self._asked,
            on_request=self._wanted,
            on_notification=self._noticed,
            capabilities=capabilities(client_proxy),
        )
        self._serving = asyncio.ensure_future(self.client.serve())
        self._hearers: dict[str, Hearer] = {}
        self._forms: dict[asyncio.Task[Any], str] = {}  # that are shown, with the child's session
        self.open: set[str] = set()  # the child's sessions that were opened in it
        self.ours: dict[str, str] = {}  # the child's session, by ours
        self.offered: dict[str, dict[str, Any]] = {}  # what each of its sessions can be told to do
        self.working: dict[str, asyncio.Task[Any]] = {}  # prompts, by the child's session

    @classmethod
    async def start(cls, command: Command, cwd: str, client_proxy: ClientProxy | None) -> Child:
        try:
            child = cls(await AgentProcess.start(command, cwd=cwd), client_proxy)
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
            return await self._process.exit_reason()
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

    def hear(self, session: str, hearer: Hearer) -> None:
        self._hearers[session] = hearer

    def unhear(self, session: str) -> None:
        self._hearers.pop(session, None)

    def opened(self, session: str, ours: str | None = None) -> None:
        """The child has a session open: one of ours, or one that will be."""
        self.open.add(session)
        if ours is not None:
            self.ours[ours] = session
        self.learn(session, self.client.setup_results.pop(session, {}))

    def learn(self, session: str, told: dict[str, Any]) -> dict[str, Any]:
        """What is offered for a session, after the child told something."""
        found = learned(self.offered.get(session, {}), told)
        self.offered[session] = found
        return found

    async def _told(self, session: str, update: dict[str, Any]) -> None:
        if update.get("sessionUpdate") in _OFFERS:
            self.learn(session, update)
        if hearer := self._hearers.get(session):
            await hearer.update(update)

    async def _asked(self, request: dict[str, Any]) -> str | None:
        hearer = self._hearers.get(str(request.get("sessionId")))
        return None if hearer is None else await hearer.permission(request)

    def _ours(self, native: str) -> str | None:
        """Our session that one of the child's is."""
        return next((each for each, own in self.ours.items() if own == native), None)

    async def _wanted(self, method: str, params: dict[str, Any]) -> Any:
        """What the child asks for beside permission."""
        native = str(params.get("sessionId"))
        hearer = self._hearers.get(native)
        files = method in (READ_FILE, WRITE_FILE)
        client_proxy = self._editor
        if files and client_proxy is not None and not client_proxy.has(self._ours(native) or ""):
            client_proxy = None  # a turn that somebody else asked for
        if client_proxy is not None and method in client_proxy.methods:
            return await self._pass_on(client_proxy, method, native, params)
        if not files:
            raise RpcError(METHOD_NOT_FOUND, f"method not found: {method}")
        if hearer is None or hearer.files is None:
            raise RpcError(NOT_FOUND, f"no turn of session {native}", {"sessionId": native})
        return await hearer.files.answer(method, params)

    async def _pass_on(
        self, client_proxy: ClientProxy, method: str, native: str, params: dict[str, Any]
    ) -> Any:
        """Have the client_proxy do it, who knows the session by our name for it."""
        if method == ELICITATION_CREATE and params.get("sessionId") is None:
            return {"action": "cancel"}  # of a request that the client_proxy knows nothing of
        ours = self._ours(native)
        if ours is None:
            raise RpcError(NOT_FOUND, f"no session {native}", {"sessionId": native})
        own = {name: value for name, value in params.items() if name != "sessionId"}
        if method == ELICITATION_CREATE:
            return await self._fill_in(
                native, client_proxy.request(ours, ELICITATION_CREATE, _form(own))
            )
        terminal = str(params.get("terminalId"))
        if method == TERMINAL_RELEASE:  # what was to be seen there is gone then
            with suppress(RpcError):
                self._saw(native, terminal, await client_proxy.request(ours, TERMINAL_OUTPUT, own))
        answer = await client_proxy.request(ours, method, own)
        if method == TERMINAL_OUTPUT:
            self._saw(native, terminal, answer)
        return answer

    async def _fill_in(self, native: str, asking: Coroutine[Any, Any, Any]) -> Any:
        """What becomes of a form, which may be taken back."""
        task = asyncio.get_running_loop().create_task(asking)
        self._forms[task] = native
        task.add_done_callback(self._forms.pop)
        try:
            return await task
        except asyncio.CancelledError:
            if (own := asyncio.current_task()) and own.cancelling():
                raise
            return {"action": "cancel"}

    def take_back(self, session: str) -> None:
        """A turn was cancelled: nobody is to fill in its forms any more."""
        for task, native in self._forms.items():
            if native == session:
                task.cancel()

    def _saw(self, native: str, terminal: str, answer: Any) -> None:
        hearer = self._hearers.get(native)
        output = answer.get("output") if isinstance(answer, dict) else None
        if hearer is not None and hearer.seen is not None and isinstance(output, str):
            hearer.seen(terminal, output)

    async def _noticed(self, method: str, params: dict[str, Any]) -> None:
        if (
            method == ELICITATION_COMPLETE
            and self._editor is not None
            and ELICITATION_CREATE in self._editor.methods
        ):
            await self._editor.notify(method, params)

    async def end(self) -> None:
        # Not obeying is no reason to wait for it.
        await self._process.end(0.0 if self.working else 2.0)
        await self._serving
        await asyncio.gather(*self.working.values(), return_exceptions=True)


def _form(params: dict[str, Any]) -> dict[str, Any]:
    """A form as every version takes it. The call that it is about has another name at our door."""
    schema = params.get("requestedSchema")
    if isinstance(schema, dict):
        params["requestedSchema"] = {"type": "object", "properties": {}, **schema}
    return {name: value for name, value in params.items() if name != "toolCallId"}


class Children:
    """All children of this process."""

    def __init__(self, client_proxy: ClientProxy | None = None) -> None:
        self._editor = client_proxy
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
                child = self._children[command] = await Child.start(command, cwd, self._editor)
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
