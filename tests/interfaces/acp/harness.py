"""A client that believes nothing: it checks every message against the schema as it comes."""

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from tests.interfaces.acp.schema import check

SECONDS = 60.0  # for anything at all; nothing here takes one
_CLOSING = ("session/close", "session/delete", "session/archive")
_OPENING = ("session/new", "session/load", "session/resume", "session/fork")


class Refused(Exception):
    """The agent answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']} {error['message']}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


class Line(Protocol):
    """The other end of a connection."""

    async def send(self, line: bytes) -> None: ...
    async def receive(self) -> bytes: ...


class Update(NamedTuple):
    """A `session/update`, by the session it is about."""

    session: str
    kind: str
    body: dict[str, Any]


class Client:
    """One client. `log` is all that came, in order: updates, and the methods that were answered."""

    def __init__(self, line: Line, version: int) -> None:
        self._line = line
        self._ids = itertools.count(1000)
        self._waiting: dict[Any, tuple[str, dict[str, Any], asyncio.Future[Any]]] = {}
        self._moved = asyncio.Condition()
        self._closed: set[str] = set()
        self._ended = False
        self._broken: BaseException | None = None
        self._task = asyncio.create_task(self._read())
        self.version = version
        self.log: list[Update | str] = []
        self.asked: list[dict[str, Any]] = []
        self._asking: list[Any] = []
        self.withdrawn: list[Any] = []
        self.refusals: list[dict[str, Any]] = []  # errors that answer no request
        self.choose: Callable[[dict[str, Any]], Any] = lambda params: selected("allow")
        self.can: dict[str, Callable[[dict[str, Any]], Any]] = {}  # what else it answers
        self.wanted: list[tuple[str, dict[str, Any]]] = []  # what else was asked and told

    # Asking.

    async def initialize(self, **more: Any) -> dict[str, Any]:
        params: dict[str, Any] = {"protocolVersion": self.version}
        if self.version == 2:
            params["info"] = {"name": "harness", "version": "1"}
        result: dict[str, Any] = await self.ask("initialize", {**params, **more})
        return result

    async def ask(self, method: str, params: Any = None) -> Any:
        """The result of a request; raises Refused."""
        return await self.answer(await self.post(method, params))

    async def post(self, method: str, params: Any = None, id: Any = None) -> Any:
        """Send a request without waiting for its answer; its id."""
        id = next(self._ids) if id is None else id
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if id not in self._waiting:
            self._waiting[id] = (method, params or {}, future)
        if method in _OPENING and isinstance(params, dict):
            self._closed -= {str(params.get("sessionId"))}
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        await self.send(message if params is None else {**message, "params": params})
        return id

    async def answer(self, id: Any) -> Any:
        """The answer to a request that was posted."""
        async with asyncio.timeout(SECONDS):
            message = await self._waiting[id][2]
        if "error" in message:
            raise Refused(message["error"])
        return message["result"]

    async def refusal(self, method: str, params: Any = None) -> Refused:
        """The error that a request gets; it is a failure to get none."""
        try:
            result = await self.ask(method, params)
        except Refused as refused:
            return refused
        raise AssertionError(f"{method} was not refused: {result!r}")

    async def tell(self, method: str, params: Any) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def send(self, message: Any) -> None:
        await self.raw(json.dumps(message).encode() + b"\n")

    async def raw(self, data: bytes) -> None:
        await self._line.send(data)

    # What every test does.

    async def new(self, cwd: Any, **more: Any) -> str:
        params = {"cwd": str(cwd), "mcpServers": [], **more}
        id: str = (await self.ask("session/new", params))["sessionId"]
        return id

    async def open(self, method: str, id: str, cwd: Any, **more: Any) -> Any:
        params = {"sessionId": id, "cwd": str(cwd), "mcpServers": [], **more}
        return await self.ask(f"session/{method}", params)

    async def replay(self, id: str, cwd: Any) -> list[Update]:
        """Everything that opening with replay sends, by the version's own method."""
        before = len(self.log)
        if self.version == 1:
            await self.open("load", id, cwd)
        else:
            await self.open("resume", id, cwd, replayFrom={"type": "start"})
        return [item for item in self.log[before:] if isinstance(item, Update)]

    def prompting(self, id: str, text: str) -> dict[str, Any]:
        return {"sessionId": id, "prompt": [{"type": "text", "text": text}]}

    async def run(self, id: str, text: str) -> str:
        """A whole turn; its stop reason, wherever the version says it."""
        result = await self.ask("session/prompt", self.prompting(id, text))
        if self.version == 1:
            return str(result["stopReason"])
        # The rest that comes after this prompt's message: another client's turn may end before it.
        own = result["messageId"]
        await self.until(lambda update: update.body.get("messageId") == own, session=id)
        begun = next(
            place
            for place, item in enumerate(self.log)
            if isinstance(item, Update) and item.body.get("messageId") == own
        )
        idle = await self.until(is_rest, begun, session=id)
        return str(idle.body["stopReason"])

    async def begin(self, id: str, text: str) -> Any:
        """Post a prompt, and wait until its turn shows that it runs (say something first)."""
        before = len(self.log)
        request = await self.post("session/prompt", self.prompting(id, text))
        await self.until(lambda update: update.kind.startswith("agent_"), before, session=id)
        return request

    async def until(
        self, seen: Callable[[Update], bool], after: int = 0, session: str | None = None
    ) -> Update:
        """The first update like that, from a place in the log on."""

        def found() -> Update | None:
            self._check()
            for item in self.log[after:]:
                if isinstance(item, Update) and session in (None, item.session) and seen(item):
                    return item
            if self._ended:
                raise AssertionError(f"the agent went away first: {self.log[-5:]}")
            return None

        async with asyncio.timeout(SECONDS), self._moved:
            await self._moved.wait_for(found)
        result = found()
        assert result is not None
        return result

    async def eventually(self, true: Callable[[], bool]) -> None:
        """Until something about this client is true."""
        async with asyncio.timeout(SECONDS), self._moved:
            await self._moved.wait_for(lambda: self._check() or true() or self._ended)
        assert true()

    def told_before(self, method: str) -> Update:
        """The last update before the last answer to a method."""
        place = len(self.log) - 1 - self.log[::-1].index(method)
        return self.updates(0, place)[-1]

    def updates(self, after: int = 0, before: int | None = None) -> list[Update]:
        return [item for item in self.log[after:before] if isinstance(item, Update)]

    def kinds(self, after: int = 0) -> list[str]:
        return [update.kind for update in self.updates(after)]

    # Reading.

    async def _read(self) -> None:
        try:
            while line := await self._line.receive():
                await self._take(json.loads(line))
        except BaseException as error:
            self._broken = error
            for _, _, future in self._waiting.values():
                if not future.done():
                    future.set_exception(error)
                    future.exception()
        finally:
            self._ended = True
            async with self._moved:
                self._moved.notify_all()

    async def _take(self, message: Any) -> None:
        id = message.get("id")
        method, params, future = self._waiting.get(id, (None, {}, None))
        check(self.version, message, method)
        if message.get("method") == "session/update":
            body = message["params"]["update"]
            update = Update(message["params"]["sessionId"], body["sessionUpdate"], body)
            assert update.session not in self._closed, f"told of a closed session: {update}"
            self.log.append(update)
        elif message.get("method") == "session/request_permission":
            assert message["params"]["sessionId"] not in self._closed
            self.asked.append(message["params"])
            self._asking.append(id)
            self.log.append("session/request_permission")
            if (outcome := self.choose(message["params"])) is not None:
                await self.respond(id, outcome)
        elif message.get("method") == "$/cancel_request":
            self.withdrawn.append(message["params"]["requestId"])
        elif "method" in message:
            self.wanted.append((message["method"], message["params"]))
            assert message["params"].get("sessionId") not in self._closed
            if id is not None:
                answer = self.can[message["method"]](message["params"])
                if answer is not None:
                    await self.respond(id, answer)
        elif future is None or future.done():
            self.refusals.append(message["error"])
        else:
            assert method is not None
            self._note(method, params, message)
            future.set_result(message)
        async with self._moved:
            self._moved.notify_all()

    def _note(self, method: str, params: dict[str, Any], message: Any) -> None:
        self.log.append(method)
        if method in _CLOSING and "result" in message:
            self._closed.add(params["sessionId"])

    async def allow(self) -> None:
        """Say yes to the last question, when it has come."""
        await self.eventually(lambda: bool(self._asking))
        await self.respond(self._asking.pop(), selected("allow"))

    async def respond(self, id: Any, outcome: Any) -> None:
        # An error is answered as one; anything else is a result.
        kind = "error" if "code" in outcome else "result"
        await self.send({"jsonrpc": "2.0", "id": id, kind: outcome})

    def _check(self) -> None:
        if self._broken is not None:
            raise self._broken

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._broken is not None and not isinstance(self._broken, asyncio.CancelledError):
            raise self._broken


def selected(option: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


def is_rest(update: Update) -> bool:
    """Whether version 2 says here that a turn ended."""
    body = update.body
    return update.kind == "state_update" and body["state"] == "idle" and "stopReason" in body
