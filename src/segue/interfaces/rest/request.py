"""One request, as a handler sees it; and an address, as the door knows it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope

from segue.http.errors import TooLarge
from segue.hub import Hub
from segue.model import ids
from segue.model.errors import InvalidInput, NotFound
from segue.model.principal import Principal
from segue.model.session import Session

from .params import Params

if TYPE_CHECKING:
    from .app import RestApp

MAX_BODY_BYTES = 32 * 1024 * 1024
MANAGED = frozenset({"managed-agents-2026-04-01"})

T = TypeVar("T")

_AT = re.compile(r"(.*) - at (?:`key` in )?`\$\.?(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")


class Endpoint(NamedTuple):
    """A method on an address, which needs one of some beta headers and takes some parameters."""

    method: str
    path: str
    handle: Callable[[RestRequest], Awaitable[Any]]
    query: tuple[str, ...] = ()
    betas: frozenset[str] = MANAGED
    # The body's type; and the answer's, where the handler's own annotation does not say it.
    request_type: Any = None
    response_type: Any = None

    @property
    def names(self) -> list[str]:
        """The names of what stands in the path."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]


NOBODY = Principal(workspace="")


class RestRequest:
    """A request. What stands in it is known once it has passed the gates."""

    def __init__(self, app: RestApp, scope: Scope, receive: Receive) -> None:
        self.app = app
        self.scope = scope
        self.receive = receive
        self.request_id = ids.format_id("req", ids.new_id())
        self.endpoint: Endpoint | None = None
        self.principal = NOBODY
        self.key = ""  # with which the request was made, if with one
        self.path_params: Mapping[str, str] = {}
        self.params = Params((), ())
        # Headers that the answer is to have.
        self.response_headers: list[tuple[bytes, bytes]] = [
            (b"request-id", self.request_id.encode())
        ]

    @property
    def http(self) -> Request:
        return Request(self.scope, self.receive)

    @property
    def hub(self) -> Hub:
        return self.app.hub

    @property
    def workspace(self) -> str:
        return self.principal.workspace

    async def session(self, named: str | None = None) -> Session:
        """The session that the address names. The trash is no place that this dialect knows."""
        given = self.path_params["session_id"] if named is None else named
        missing = NotFound(f"session {given} not found")
        id = ids.parse(given, "sesn")
        if id is None:
            raise missing
        try:
            session = await self.hub.get(self.principal, id)
        except NotFound:
            raise missing from None
        if session.state == "trashed":
            raise missing
        return session

    async def body(self, type: type[T]) -> T:
        """The request's body as a type; InvalidInput says what is wrong with it, and where."""
        assert (
            self.endpoint is not None and self.endpoint.request_type is type
        )  # or it is told wrongly
        data = await self._bytes()
        try:
            return msgspec.json.decode(data or b"{}", type=type)
        except msgspec.ValidationError as error:
            raise InvalidInput(explain(str(error))) from None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise InvalidInput("the request body is not valid JSON") from None

    async def wait_for_disconnect(self) -> None:
        """Wait until whoever asks has gone away; for requests whose body nobody wants."""
        with suppress(ClientDisconnect):
            async for _ in self.http.stream():
                pass
            await self.receive()

    async def _bytes(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        # Read to the end even when it is too long: a client that is still writing hears no answer.
        async for part in self.http.stream():
            size += len(part)
            if size <= MAX_BODY_BYTES:
                parts.append(part)
            else:
                parts.clear()
        if size > MAX_BODY_BYTES:
            raise TooLarge(f"the request body exceeds {MAX_BODY_BYTES} bytes")
        return b"".join(parts)


def explain(message: str) -> str:
    """A validation error as `field: what is wrong`."""
    where = ""
    if match := _AT.fullmatch(message):
        message, where = match[1], match[2]
    for pattern, words in ((_MISSING, "field is required"), (_UNKNOWN, "unknown field")):
        if found := pattern.fullmatch(message):
            where = f"{where}.{found[1]}" if where else found[1]
            message = words
    message = message.replace("`", "")
    return f"{where}: {message[:1].lower()}{message[1:]}" if where else message
