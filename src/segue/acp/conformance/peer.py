"""The client of the checks: it sends any message, and records everything that the agent sends."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from .shapes import problem_with_error, problem_with_params, problem_with_response

QUIET_SECONDS = 0.3  # in which messages that should not come would come


class Transport(Protocol):
    """A connection to an agent, with one message in each line."""

    async def write(self, data: bytes) -> None: ...
    async def read_line(self) -> bytes: ...


class CheckFailed(Exception):
    """The agent breaks the rule."""


class CheckSkipped(Exception):
    """The rule does not apply to the agent, or cannot be checked with it."""


class AgentError(Exception):
    """The agent answered with an error."""

    def __init__(self, error: Any) -> None:
        fields = error if isinstance(error, dict) else {}
        self.code = fields.get("code")
        self.message = str(fields.get("message"))
        self.data = fields.get("data")
        super().__init__(f"{self.code} {self.message}")


class Update(NamedTuple):
    """A `session/update` notification."""

    session: str
    kind: str
    body: dict[str, Any]


class Answered(NamedTuple):
    """The answer to a request."""

    method: str


class Peer:
    """A client connection. `log` has updates and answers in the order of their arrival."""

    def __init__(
        self,
        transport: Transport,
        version: int,
        timeout: float,
        exit_reason: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        """Create it. `exit_reason` returns how the agent's process ended."""
        self._transport = transport
        self._timeout = timeout
        self._exit_reason = exit_reason
        self._ids = itertools.count(1)
        self._waiting: dict[Any, tuple[str, asyncio.Future[Any]]] = {}
        self._arrived = asyncio.Event()
        self._reader = asyncio.ensure_future(self._read())
        self.version = version
        self.ended = False
        self.sessions: set[str] = set()  # made by the agent and not deleted yet
        self.log: list[Update | Answered] = []
        self.shape_problems: list[str] = []
        self.line_problems: list[str] = []
        self.agent_requests: list[str] = []
        self.unmatched: list[dict[str, Any]] = []  # responses without a request

    async def close(self) -> None:
        """Stop reading."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def request(self, method: str, params: Any, id: Any = None) -> Any:
        """Send a request and return its result. Raises AgentError or CheckFailed."""
        return await self.wait(await self.send_request(method, params, id))

    async def send_request(self, method: str, params: Any, id: Any = None) -> Any:
        """Send a request, and return its id for `wait`."""
        id = f"check-{next(self._ids)}" if id is None else id
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[id] = (method, future)
        if method == "session/delete":
            self.sessions.discard(params["sessionId"])
        await self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    async def wait(self, id: Any) -> Any:
        """Return the result of a request. Raises AgentError or CheckFailed."""
        method, future = self._waiting[id]
        try:
            async with asyncio.timeout(self._timeout):
                message = await asyncio.shield(future)
        except TimeoutError:
            raise CheckFailed(f"no answer to {method} within {self._timeout:g} s") from None
        if "error" in message:
            raise AgentError(message["error"])
        return message.get("result")

    async def expect_error(self, method: str, params: Any, *codes: int) -> AgentError:
        """Send a request that must fail with one of these codes, or with any."""
        try:
            result = await self.request(method, params)
        except AgentError as error:
            if codes and error.code not in codes:
                expected = " or ".join(map(str, codes))
                message = f"{method}: expected {expected}, got {error}"
                raise CheckFailed(message) from None
            return error
        raise CheckFailed(f"{method} succeeded with {_short(result)}, but must fail")

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def send(self, message: Any) -> None:
        """Send any message."""
        await self.send_line(json.dumps(message).encode())

    async def send_line(self, line: bytes) -> None:
        """Send any line. Raises CheckFailed if the agent has ended."""
        try:
            await self._transport.write(line + b"\n")
        except Exception as error:  # each transport has its own
            raise CheckFailed(f"the agent ended: {await self._explain_end(error)}") from None

    async def wait_for(self, what: str, condition: Any) -> Any:
        """Wait until a function of the log returns a value that is not None."""
        try:
            async with asyncio.timeout(self._timeout):
                while (value := condition()) is None:
                    if self.ended:
                        reason = await self._explain_end("it closed its output")
                        raise CheckFailed(f"the agent ended before {what}: {reason}")
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            raise CheckFailed(f"no {what} within {self._timeout:g} s") from None
        return value

    async def quiet(self) -> int:
        """Wait for messages that may be on their way, and return the length of the log."""
        await asyncio.sleep(QUIET_SECONDS)
        return len(self.log)

    def updates(self, after: int = 0, before: int | None = None) -> list[Update]:
        """Return the updates in a part of the log."""
        return [item for item in self.log[after:before] if isinstance(item, Update)]

    def position(self, method: str, after: int = 0) -> int:
        """Return the position of the answer to a method in the log."""
        for index in range(after, len(self.log)):
            if self.log[index] == Answered(method):
                return index
        raise CheckFailed(f"no answer to {method}")

    async def _explain_end(self, otherwise: object) -> str:
        """Return how the agent's process ended, with its last error output, if it has one."""
        return str(otherwise) if self._exit_reason is None else await self._exit_reason()

    async def _read(self) -> None:
        reason = "it closed its output"
        try:
            while line := await self._transport.read_line():
                await self._handle_line(line)
            reason = await self._explain_end(reason)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # each transport has its own
            self.line_problems.append(f"reading failed: {error}")
        finally:
            self.ended = True
            self._arrived.set()
            for method, future in self._waiting.values():
                if not future.done():
                    future.set_exception(
                        CheckFailed(f"the agent ended before it answered {method}: {reason}")
                    )
                    future.exception()

    async def _handle_line(self, line: bytes) -> None:
        try:
            message = json.loads(line.decode())
        except ValueError:
            self.line_problems.append(f"not a JSON message in UTF-8: {_short(line)}")
            return
        if isinstance(message, list):  # the answer to a batch, which only one check sends
            self.unmatched.append({"batch": message})
            self._arrived.set()
            return
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            self.line_problems.append(f"not a JSON-RPC 2.0 message: {_short(message)}")
            return
        method = message.get("method")
        if isinstance(method, str):
            await self._handle_agent_message(method, message)
        else:
            self._handle_response(message)
        self._arrived.set()

    async def _handle_agent_message(self, method: str, message: dict[str, Any]) -> None:
        params = message.get("params")
        self._note_shape(problem_with_params(method, self.version, params))
        if method == "session/update" and isinstance(params, dict):
            update = params.get("update")
            if isinstance(update, dict):
                kind = str(update.get("sessionUpdate"))
                self.log.append(Update(str(params.get("sessionId")), kind, update))
        elif "id" in message:
            self.agent_requests.append(method)
            await self._answer(method, message["id"], params)

    async def _answer(self, method: str, id: Any, params: Any) -> None:
        """Refuse permissions, and everything that the client has not advertised."""
        answer: dict[str, Any] = {"error": {"code": -32601, "message": "method not found"}}
        if method == "session/request_permission":
            options = params.get("options") if isinstance(params, dict) else None
            rejections = [
                option.get("optionId")
                for option in options or ()
                if isinstance(option, dict) and str(option.get("kind")).startswith("reject")
            ]
            outcome: dict[str, Any] = {"outcome": "cancelled"}
            if rejections:
                outcome = {"outcome": "selected", "optionId": rejections[0]}
            answer = {"result": {"outcome": outcome}}
        await self.send({"jsonrpc": "2.0", "id": id, **answer})

    def _handle_response(self, message: dict[str, Any]) -> None:
        id = message.get("id")
        method, future = self._waiting.get(id, ("", None)) if _is_id(id) else ("", None)
        if future is None or future.done():
            self.unmatched.append(message)
            return
        if "error" in message:
            self._note_shape(problem_with_error(message["error"]))
        else:
            result = message.get("result")
            self._note_shape(problem_with_response(method, self.version, result))
            if method in ("session/new", "session/fork") and isinstance(result, dict):
                self.sessions.add(str(result.get("sessionId")))
        self.log.append(Answered(method))
        future.set_result(message)

    def _note_shape(self, problem: str | None) -> None:
        if problem is not None and problem not in self.shape_problems:
            self.shape_problems.append(problem)


def _is_id(id: Any) -> bool:
    return isinstance(id, str | int)


def _short(value: Any) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
