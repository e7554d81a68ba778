"""An ACP client for tests, which checks every message that it receives against the schema."""

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from tests.interfaces.acp.schema import check

SECONDS = 60.0  # timeout of every wait; each normally takes less than one second
_CLOSING_METHODS = ("session/close", "session/delete", "session/archive")
_OPENING_METHODS = ("session/new", "session/load", "session/resume", "session/fork")


class ErrorResponse(Exception):
    """The agent answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']} {error['message']}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


class Transport(Protocol):
    """A connection to a server."""

    async def send(self, line: bytes) -> None: ...
    async def receive(self) -> bytes: ...


class Update(NamedTuple):
    """A `session/update` notification."""

    session: str
    kind: str
    body: dict[str, Any]


class Client:
    """A client. `log` has the updates and the methods of responses, in the order of arrival."""

    def __init__(self, transport: Transport, version: int, *, checked: bool = True) -> None:
        self._transport = transport
        self._ids = itertools.count(1000)
        self._requests: dict[Any, tuple[str, dict[str, Any], asyncio.Future[Any]]] = {}
        self._received = asyncio.Condition()
        self._closed: set[str] = set()
        self._ended = False
        self._broken: BaseException | None = None
        self._task = asyncio.create_task(self._read())
        self.version = version
        self.checked = checked  # False: messages may differ from the schema, as real agents' do
        self.log: list[Update | str] = []
        self.permission_requests: list[dict[str, Any]] = []
        self._open_permission_requests: list[Any] = []
        self.cancelled_requests: list[Any] = []
        self.unmatched_errors: list[dict[str, Any]] = []  # errors without a request
        self.answer_permission: Callable[[dict[str, Any]], Any] = lambda params: selected("allow")
        # Other requests and notifications of the agent, and the functions that answer requests.
        self.request_handlers: dict[str, Callable[[dict[str, Any]], Any]] = {}
        self.agent_requests: list[tuple[str, dict[str, Any]]] = []

    # Requests.

    async def initialize(self, **more: Any) -> dict[str, Any]:
        params: dict[str, Any] = {"protocolVersion": self.version}
        if self.version == 2:
            params["info"] = {"name": "harness", "version": "1"}
        result: dict[str, Any] = await self.request("initialize", {**params, **more})
        return result

    async def request(self, method: str, params: Any = None) -> Any:
        """Send a request and return its result. Raises ErrorResponse."""
        return await self.wait_response(await self.send_request(method, params))

    async def send_request(self, method: str, params: Any = None, id: Any = None) -> Any:
        """Send a request without waiting for the response, and return its id."""
        id = next(self._ids) if id is None else id
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if id not in self._requests:
            self._requests[id] = (method, params or {}, future)
        if method in _OPENING_METHODS and isinstance(params, dict):
            self._closed -= {str(params.get("sessionId"))}
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        await self.send(message if params is None else {**message, "params": params})
        return id

    async def wait_response(self, id: Any) -> Any:
        """Return the result of a request that was sent. Raises ErrorResponse."""
        async with asyncio.timeout(SECONDS):
            message = await self._requests[id][2]
        if "error" in message:
            raise ErrorResponse(message["error"])
        return message["result"]

    async def request_error(self, method: str, params: Any = None) -> ErrorResponse:
        """Send a request that must fail, and return its error."""
        try:
            result = await self.request(method, params)
        except ErrorResponse as error:
            return error
        raise AssertionError(f"{method} did not fail: {result!r}")

    async def notify(self, method: str, params: Any) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def send(self, message: Any) -> None:
        await self.send_bytes(json.dumps(message).encode() + b"\n")

    async def send_bytes(self, data: bytes) -> None:
        await self._transport.send(data)

    # Steps that many tests share.

    async def new_session(self, cwd: Any, **more: Any) -> str:
        params = {"cwd": str(cwd), "mcpServers": [], **more}
        id: str = (await self.request("session/new", params))["sessionId"]
        return id

    async def open_session(self, method: str, id: str, cwd: Any, **more: Any) -> Any:
        params = {"sessionId": id, "cwd": str(cwd), "mcpServers": [], **more}
        return await self.request(f"session/{method}", params)

    async def replay(self, id: str, cwd: Any) -> list[Update]:
        """Open a session with its history, and return the updates of the replay."""
        before = len(self.log)
        if self.version == 1:
            await self.open_session("load", id, cwd)
        else:
            await self.open_session("resume", id, cwd, replayFrom={"type": "start"})
        return [item for item in self.log[before:] if isinstance(item, Update)]

    def prompt_params(self, id: str, text: str) -> dict[str, Any]:
        return {"sessionId": id, "prompt": [{"type": "text", "text": text}]}

    async def run_prompt(self, id: str, text: str) -> str:
        """Run a turn, and return its stop reason."""
        result = await self.request("session/prompt", self.prompt_params(id, text))
        if self.version == 1:
            return str(result["stopReason"])
        # Wait for the idle state after this message; the turn of another client may end before it.
        message_id = result["messageId"]
        await self.wait_for_update(
            lambda update: update.body.get("messageId") == message_id, session=id
        )
        start = next(
            index
            for index, item in enumerate(self.log)
            if isinstance(item, Update) and item.body.get("messageId") == message_id
        )
        idle = await self.wait_for_update(is_idle, start, session=id)
        return str(idle.body["stopReason"])

    async def start_prompt(self, id: str, text: str) -> Any:
        """Send a prompt, and wait for the first message of its turn. Return the request's id."""
        before = len(self.log)
        request = await self.send_request("session/prompt", self.prompt_params(id, text))
        await self.wait_for_update(
            lambda update: update.kind.startswith("agent_"), before, session=id
        )
        return request

    async def wait_for_update(
        self, matches: Callable[[Update], bool], after: int = 0, session: str | None = None
    ) -> Update:
        """Return the first matching update at or after index `after` of the log."""

        def find() -> Update | None:
            self._check()
            for item in self.log[after:]:
                if isinstance(item, Update) and session in (None, item.session) and matches(item):
                    return item
            if self._ended:
                raise AssertionError(f"the server disconnected first: {self.log[-5:]}")
            return None

        async with asyncio.timeout(SECONDS), self._received:
            await self._received.wait_for(find)
        result = find()
        assert result is not None
        return result

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition of this client holds."""
        async with asyncio.timeout(SECONDS), self._received:
            await self._received.wait_for(lambda: self._check() or condition() or self._ended)
        assert condition()

    def last_update_before(self, method: str) -> Update:
        """Return the last update before the last response to a method."""
        index = len(self.log) - 1 - self.log[::-1].index(method)
        return self.updates(0, index)[-1]

    def updates(self, after: int = 0, before: int | None = None) -> list[Update]:
        return [item for item in self.log[after:before] if isinstance(item, Update)]

    def kinds(self, after: int = 0) -> list[str]:
        return [update.kind for update in self.updates(after)]

    # Reading.

    async def _read(self) -> None:
        try:
            while line := await self._transport.receive():
                if line.strip() or self.checked:  # some agents send empty lines
                    await self._handle(json.loads(line))
        except BaseException as error:
            self._broken = error
            for _, _, future in self._requests.values():
                if not future.done():
                    future.set_exception(error)
                    future.exception()
        finally:
            self._ended = True
            async with self._received:
                self._received.notify_all()

    async def _handle(self, message: Any) -> None:
        id = message.get("id")
        method, params, future = self._requests.get(id, (None, {}, None))
        if self.checked:
            check(self.version, message, method)
        if message.get("method") == "session/update":
            body = message["params"]["update"]
            update = Update(message["params"]["sessionId"], body["sessionUpdate"], body)
            assert update.session not in self._closed, f"update of a closed session: {update}"
            self.log.append(update)
        elif message.get("method") == "session/request_permission":
            assert message["params"]["sessionId"] not in self._closed
            self.permission_requests.append(message["params"])
            self._open_permission_requests.append(id)
            self.log.append("session/request_permission")
            if (outcome := self.answer_permission(message["params"])) is not None:
                await self.respond(id, outcome)
        elif message.get("method") == "$/cancel_request":
            self.cancelled_requests.append(message["params"]["requestId"])
        elif "method" in message:
            self.agent_requests.append((message["method"], message["params"]))
            assert message["params"].get("sessionId") not in self._closed
            if id is not None:
                answer = self.request_handlers[message["method"]](message["params"])
                if answer is not None:
                    await self.respond(id, answer)
        elif future is None or future.done():
            self.unmatched_errors.append(message["error"])
        else:
            assert method is not None
            self._log_response(method, params, message)
            future.set_result(message)
        async with self._received:
            self._received.notify_all()

    def _log_response(self, method: str, params: dict[str, Any], message: Any) -> None:
        self.log.append(method)
        if method in _CLOSING_METHODS and "result" in message:
            self._closed.add(params["sessionId"])

    async def allow_last_request(self) -> None:
        """Allow the last permission request, when it has arrived."""
        await self.wait_until(lambda: bool(self._open_permission_requests))
        await self.respond(self._open_permission_requests.pop(), selected("allow"))

    async def respond(self, id: Any, outcome: Any) -> None:
        # A dictionary with a code is an error.
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


def is_idle(update: Update) -> bool:
    """Whether version 2 says here that a turn ended."""
    body = update.body
    return update.kind == "state_update" and body["state"] == "idle" and "stopReason" in body
