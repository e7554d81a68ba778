"""A REST request as a handler sees it, and the declaration of an endpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any, NamedTuple, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope

from segue.http.body import MAX_INLINE_BYTES, decode_json, read_body
from segue.http.routing import path_names
from segue.hub import Hub
from segue.model import codec, ids
from segue.model.errors import InvalidInput, NotFound
from segue.model.principal import Principal
from segue.model.session import Session

from .context import RestContext
from .params import Params

_HALF_CHARACTER = re.compile(  # a surrogate without its other half
    rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]"
)

API_VERSIONS = (b"2023-06-01", b"2026-10-21")
MANAGED_AGENTS = frozenset({"managed-agents-2026-04-01"})
UNAUTHENTICATED = Principal(workspace="")

T = TypeVar("T")


class Endpoint(NamedTuple):
    """One method on one path: its handler, valid query parameters and required beta headers."""

    method: str
    path: str
    handler: Callable[[RestRequest], Awaitable[Any]]
    query: tuple[str, ...] = ()
    betas: frozenset[str] = MANAGED_AGENTS
    request_type: Any = None
    # Needed only if the handler's return annotation is not the type of the response.
    response_type: Any = None
    returns_secret: bool = False

    @property
    def path_names(self) -> tuple[str, ...]:
        """Return the names of the path's parameters, in order."""
        return path_names(self.path)


class RestRequest:
    """A request. `principal`, `params` and `path_params` are set once it has been checked."""

    def __init__(self, context: RestContext, scope: Scope, receive: Receive) -> None:
        self.context = context
        self.scope = scope
        self.receive = receive
        self.request_id = ids.format_id("req", ids.new_id())
        self.endpoint: Endpoint | None = None
        self.principal = UNAUTHENTICATED
        self.key = ""
        self.path_params: Mapping[str, str] = {}
        self._body_bytes = 0
        self.reservations = AsyncExitStack()  # of quotas; they end when the handler returns
        self.params = Params((), ())
        request_id = (b"request-id", self.request_id.encode())
        self.response_headers: list[tuple[bytes, bytes]] = [request_id]

    @property
    def http(self) -> Request:
        return Request(self.scope, self.receive)

    @property
    def hub(self) -> Hub:
        return self.context.hub

    @property
    def has_large_body(self) -> bool:
        """Return whether the body is large: the response may be as large."""
        return self._body_bytes > MAX_INLINE_BYTES

    @property
    def workspace(self) -> str:
        return self.principal.workspace

    async def session(self, name: str | None = None) -> Session:
        """Return the session with this id, by default the one in the path.

        Raises NotFound if it does not exist or is in the trash, which this API does not have.
        """
        if name is None:
            name = self.path_params["session_id"]
        not_found = NotFound(f"session {name} not found")
        session_id = ids.parse(name, "sesn")
        if session_id is None:
            raise not_found
        try:
            await self.hub.sync.ensure_current(self.principal, session_id)
            session = await self.hub.sessions.get(self.principal, session_id)
        except NotFound:
            raise not_found from None
        if session.state == "trashed":
            raise not_found
        return session

    async def body(self, type: type[T]) -> T:
        """Return the request's JSON body as a struct. Raises InvalidInput that names the field."""
        # The OpenAPI document is made from the endpoint's type.
        assert self.endpoint is not None and self.endpoint.request_type is type
        data = await read_body(self.http.stream(), drain=True)
        self._body_bytes = len(data)
        try:
            return await decode_json(data or b"{}", type)
        except msgspec.ValidationError as error:
            problem = codec.explain(error)
            if "[...]" in problem and len(data) <= MAX_INLINE_BYTES:
                problem = _with_key(problem, data, type)
            raise InvalidInput(problem) from None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            problem = "is not valid JSON"
            if _HALF_CHARACTER.search(data):
                problem = "has text with half a character, such as \\ud83d; send whole characters"
            raise InvalidInput(f"the request body {problem}") from None

    async def stored_body(self, type: type[T]) -> T:
        """Return the request's JSON body, which becomes a record.

        Its bytes are reserved until the request ends. Raises QuotaExceeded if the workspace has no
        bytes left for it, else what `body` raises.
        """
        body = await self.body(type)
        reservation = self.hub.quotas.reserve(self.principal, bytes=max(1, self._body_bytes))
        await self.reservations.enter_async_context(reservation)
        return body

    async def wait_for_disconnect(self) -> None:
        """Wait until the client disconnects. The request's body is read and dropped."""
        with suppress(ClientDisconnect):
            async for _ in self.http.stream():
                pass
            await self.receive()


def _with_key(problem: str, data: bytes, type: Any) -> str:
    """Return a problem of a body with the key of the value, for which msgspec writes `[...]`."""
    path, _, rest = problem.partition("[...]")
    try:
        body = parent = json.loads(data)
        *parents, name = path.split(".")
        for field in parents:
            parent = parent[field]
        values = parent[name]
        keys = list(values)
        while len(keys) > 1:
            half = len(keys) // 2
            parent[name] = {key: values[key] for key in keys[:half]}
            keys = keys[:half] if _problem(body, type) == problem else keys[half:]
        return f"{path}[{keys[0][:64]!r}]{rest}"
    except (ValueError, LookupError, TypeError, RecursionError, msgspec.DecodeError):
        return problem  # the rest of the body is no JSON, or the path leads through a list


def _problem(body: Any, type: Any) -> str | None:
    """Return what is wrong with a decoded body; None if nothing is."""
    try:
        msgspec.json.decode(json.dumps(body), type=type)
    except msgspec.ValidationError as error:
        return codec.explain(error)
    return None
