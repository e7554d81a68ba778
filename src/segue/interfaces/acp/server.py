"""The ACP door: greeting one client, and handing its requests on.

Which methods exist in a version, and with what parameters, is the version's own table. Opening the
store, and all that is needed for it, waits until a client asks for a session: editors start their
agents early, and wait for nothing but the answer to `initialize`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from segue.acp import v1, v2, wire
from segue.acp.methods import REQUEST_TYPES
from segue.acp.rpc import (
    AUTH_REQUIRED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    Connection,
    RpcError,
)
from segue.model.errors import SegueError
from segue.model.principal import Principal

from .capabilities import OURS, Offers, initialized_v1, initialized_v2, leniently, logins
from .client_proxy import ClientProxy

if TYPE_CHECKING:
    from segue.agents.base import Agent, NeedsLogin
    from segue.hub import Hub

    from .attached_session import Opened
    from .sessions import Sessions

    OpenHub = Callable[[], Awaitable[Hub]]

VERSIONS = (v1.VERSION, v2.VERSION)
_LOGINS = ("authenticate", "auth/login")
_LOGOUTS = ("logout", "auth/logout")
OTHER = "acp"  # the kind of agent that somebody else made
GREETING_SECONDS = 10.0  # that a client is kept waiting for such an agent's start

T = TypeVar("T")
log = logging.getLogger("segue.acp")


class Program(NamedTuple):
    """The agent that a program brings along, and how sessions that it makes remember it.

    Without `agent`, it is built from the specification.
    """

    name: str
    spec: dict[str, Any]
    agent: Agent | None = None


class Door:
    """Answers one client."""

    def __init__(
        self,
        open_hub: OpenHub,
        principal: Principal,
        *,
        program: Program | None = None,
        offers: Offers | None = None,
    ) -> None:
        self.connection: Connection
        self._open_hub = open_hub
        self._principal = principal
        self._program = program
        self._offers = offers or Offers()
        self._version = 0
        self._client = v1.ClientCapabilities()  # of version 2, as far as it has the same
        self._settled = False  # by the first request after `initialize`, which then is not repeated
        self._logged_out = False
        self._opening = asyncio.Lock()
        self._hub: Hub | None = None
        self._held: Sessions | None = None
        self._logins: list[wire.LoginMethod] = []  # those of the program's agent
        self._asking: asyncio.Future[None] | None = None  # it for them

    async def close(self) -> None:
        """The client is gone: cancel what it began, let its sessions go."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        if self._held is not None:
            await self._held.close()

    async def request(self, method: str, params: Any) -> Any:
        if method == "initialize":
            return await self._asked(self._initialize(params), None)
        if self._version == 0:
            raise RpcError(INVALID_REQUEST, "initialize first")
        self._settled = True
        kind = REQUEST_TYPES.get((method, self._version))
        if kind is None or not self._offers.method(method, self._version):
            raise RpcError(METHOD_NOT_FOUND, f"method not found: {method}", {"method": method})
        if method in _LOGINS:
            return await self._log_in(_convert(params, kind))
        if method in _LOGOUTS:
            return await self._log_out(_convert(params, kind))
        if self._logged_out:
            raise RpcError(AUTH_REQUIRED, "authentication required")
        wanted = _convert(params, kind)
        return await self._asked(self._do(method, wanted), wanted)

    async def _do(self, method: str, wanted: Any) -> Any:
        return await (await self._sessions()).method(method)(wanted)

    async def _asked(self, work: Awaitable[T], request: Any) -> T:
        try:
            return await work
        except SegueError as error:
            raise _refusal(error, request) from error

    async def notification(self, method: str, params: Any) -> None:
        if self._held is not None and method == "session/cancel":
            wanted: wire.SessionRequest = _convert(params, wire.SessionRequest)
            try:
                await self._held.cancel(wanted)
            except SegueError as error:
                raise _refusal(error, wanted) from error

    async def _sessions(self) -> Sessions:
        async with self._opening:  # in order: who asks first is the first to be answered
            if self._held is None:
                from .base import Client
                from .sessions import Sessions

                client = Client(self.connection, self._principal, self._version, self._client)
                hub = await self._open()
                self._held = Sessions(hub, client, self._offers, self._program)
        return self._held

    async def _open(self) -> Hub:
        """The hub, with the program's agent."""
        if self._hub is None:
            self._hub = await self._open_hub()
            self._hub.agent_registry.client_proxy = ClientProxy(
                self.connection, self._client, self._opened
            )
            program = self._program
            if program is not None and program.agent is None:
                agent = await self._hub.agents.register_agent(
                    self._principal, program.name, program.spec
                )
                self._program = program._replace(agent=agent)
        return self._hub

    def _opened(self, id: str) -> Opened | None:
        return None if self._held is None else self._held.opened(id)

    async def _guard(self) -> NeedsLogin | None:
        """The program's agent, if it is one that people log in to."""
        if self._program is None or self._program.spec.get("kind") != OTHER:
            return None
        from segue.agents.base import NeedsLogin

        async with self._opening:
            await self._open()
        agent = self._program.agent
        return agent if isinstance(agent, NeedsLogin) else None

    async def _ways(self, terminal: bool) -> list[wire.LoginMethod]:
        """How one logs in: an agent of somebody else's is asked, which starts it."""
        guard = await self._guard()
        if guard is not None:
            self._asking = asyncio.ensure_future(self._learn(guard))
            await asyncio.wait([self._asking], timeout=GREETING_SECONDS)
        return logins(self._offers, self._logins, terminal)

    async def _learn(self, guard: NeedsLogin) -> None:
        try:
            self._logins = list(await guard.logins())
        except SegueError as error:  # which whoever opens a session is told
            log.warning("%s", error.message)

    async def _initialize(self, params: Any) -> Any:
        given = params if isinstance(params, dict) else {}
        requested = given.get("protocolVersion")
        if isinstance(requested, bool) or not isinstance(requested, int):
            raise RpcError(INVALID_PARAMS, "protocolVersion must be an integer")
        if self._settled:
            raise RpcError(INVALID_REQUEST, "this connection is initialized already")
        if requested < min(VERSIONS):
            why = {"requested": max(requested, 0), "supported": list(VERSIONS)}
            raise RpcError(UNSUPPORTED_VERSION, "unsupported protocol version", why)
        if requested == v1.VERSION:
            self._client = leniently(given.get("clientCapabilities"), v1.ClientCapabilities)
            self._version = v1.VERSION
            return initialized_v1(self._offers, await self._ways(self._client.auth.terminal))
        # A client of a later version may say things in ways we do not know; of ours it may not.
        if requested == v2.VERSION:
            _convert(given.get("info"), wire.Implementation)
        client = leniently(given.get("capabilities"), v2.ClientCapabilities)
        self._client = v1.ClientCapabilities(elicitation=client.elicitation)
        self._version = v2.VERSION
        terminal = client.auth is not None and client.auth.terminal is not None
        return initialized_v2(self._offers, await self._ways(terminal))

    async def _log_in(self, request: wire.AuthRequest) -> wire.Empty:
        # A method in a terminal is the client's own to run, and cannot be asked for.
        known = [each.id for each in self._logins or OURS if each.args is None]
        if request.method_id not in known:
            raise RpcError(INVALID_PARAMS, f"no authentication method {request.method_id!r}")
        if self._logins and (guard := await self._guard()):
            await self._asked(guard.log_in(request.method_id), request)
        self._logged_out = False
        return wire.Empty()

    async def _log_out(self, request: Any) -> wire.Empty:
        self._logged_out = True
        await self.close()
        if self._logins and (guard := await self._guard()):
            await self._asked(guard.log_out(), request)
        return wire.Empty()


def _convert(params: Any, kind: type[Any]) -> Any:
    given = {} if params is None else params
    if isinstance(given, dict) and not isinstance(given.get("_meta"), dict | None):
        given = {name: value for name, value in given.items() if name != "_meta"}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_PARAMS, str(error)) from None


def _refusal(error: SegueError, request: Any) -> RpcError:
    # The session as the client spelt it; the hub knows one spelling only.
    spelt = getattr(request, "session_id", "")
    about = "session" in error.data and spelt
    return RpcError(error.rpc_code, error.message, {"sessionId": spelt} if about else None)
