"""The ACP server of one client: `initialize`, authentication, and dispatch of session methods.

REQUEST_TYPES says which methods a protocol version has, and with what parameters. The server opens
the hub, and imports the code that needs it, when the client first uses a session: editors start
their agents early and wait for the answer to `initialize` only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from segue.acp import v1, v2, wire
from segue.acp.methods import (
    MCP_MESSAGE,
    OPTIONAL_METHODS,
    REQUEST_TYPES,
    SYSTEM_PROMPT,
    is_extension,
)
from segue.acp.rpc import (
    AUTH_REQUIRED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    Connection,
    RpcError,
)
from segue.model import codec
from segue.model.errors import AgentRefused, SegueError
from segue.model.principal import Principal

from .attached_sessions import AttachedSessions
from .capabilities import (
    AgentProfile,
    available_login_methods,
    initialize_response_v1,
    initialize_response_v2,
    parse_leniently,
)
from .errors import invalid_params, to_rpc_error
from .served_agent import ServedAgent

if TYPE_CHECKING:
    from segue.agents.base import HandlesLogin, NeedsLogin
    from segue.agents.base.external import HasExtensions
    from segue.hub import Hub

    from .client_proxy import ClientProxy
    from .handlers.session_methods import SessionMethods
    from .versions.policy import VersionPolicy

    OpenHub = Callable[[], Awaitable[Hub]]

VERSIONS = (v1.VERSION, v2.VERSION)
_LOGIN_REQUESTS = ("authenticate", "auth/login")
_LOGOUT_REQUESTS = ("logout", "auth/logout")
EXTERNAL_AGENT_KIND = "acp"  # of agents that are ACP programs themselves
LOGIN_METHODS_SECONDS = 10.0  # how long `initialize` waits for such an agent's login methods

Result = TypeVar("Result")
log = logging.getLogger("segue.acp")


class AcpServer:
    """Answers the requests of one client."""

    def __init__(
        self,
        open_hub: OpenHub,
        principal: Principal,
        *,
        served_agent: ServedAgent | None = None,
        profile: AgentProfile | None = None,
    ) -> None:
        """Create a server. `served_agent` answers all sessions; None means each session's own."""
        self.connection: Connection
        self._open_hub = open_hub
        self._principal = principal
        self._served_agent = served_agent
        self._profile = profile or AgentProfile()
        if served_agent is not None:  # it may have instructions of its own
            without = self._profile.without | {SYSTEM_PROMPT}
            self._profile = replace(self._profile, without=without)
        self._version = 0  # not initialized
        self._capabilities = v1.ClientCapabilities()  # in version 2, those that both versions have
        self._initialize_params: dict[str, Any] = {}
        # The content of prompts that the agent advertises, if version 2 requires to refuse other.
        self._accepted_content: frozenset[str] | None = None
        self._in_use = False  # True from the first request after `initialize`
        self._logged_out = False
        self._attached = AttachedSessions()
        self._open_lock = asyncio.Lock()
        self._hub: Hub | None = None
        self._client_proxy: ClientProxy | None = None
        self._session_methods: SessionMethods | None = None
        self._agent_login_methods: list[wire.LoginMethod] = []
        self._login_methods_task: asyncio.Future[None] | None = None

    async def finish_turns(self) -> None:
        """Wait until the turns that the client started have ended, or wait for an answer."""
        await self._attached.finish_turns()

    async def close(self, *, cancel: bool = True) -> None:
        """Detach the client's sessions; with `cancel`, cancel the turns that it started."""
        if self._login_methods_task is not None:
            self._login_methods_task.cancel()
            await asyncio.gather(self._login_methods_task, return_exceptions=True)
        await self._attached.close(cancel=cancel)

    async def send_states(self, client_session_id: str | None = None) -> None:
        """Send the state of one attached session, or of all, to a client that has resumed."""
        await self._attached.send_states(client_session_id)

    async def request(self, method: str, params: Any) -> Any:
        """Answer a request. Raises RpcError if it fails."""
        if method == "initialize":
            return await self._with_rpc_errors(self._initialize(params), None)
        if self._version == 0:
            raise RpcError(INVALID_REQUEST, "send `initialize` first")
        self._in_use = True
        if is_extension(method) and (agent := await self._external_agent()):
            return await self._with_rpc_errors(agent.extension(method, params), None)
        if is_extension(method) and (answer := self._declared_extension(method, params)):
            try:
                return await self._with_rpc_errors(answer, None)
            except NotImplementedError:
                message = f"method not found: {method}"
                raise RpcError(METHOD_NOT_FOUND, message, {"method": method}) from None
        if method in OPTIONAL_METHODS and self._profile.has_method(method, self._version):
            return await self._answer_optional(method, params)
        request_type = REQUEST_TYPES.get((method, self._version))
        if request_type is None or not self._profile.has_method(method, self._version):
            raise RpcError(METHOD_NOT_FOUND, f"method not found: {method}", {"method": method})
        if method in _LOGIN_REQUESTS:
            return await self._log_in(_parse_params(params, request_type))
        if method in _LOGOUT_REQUESTS:
            return await self._log_out(_parse_params(params, request_type))
        if self._logged_out:
            raise RpcError(AUTH_REQUIRED, "authentication required")
        request = _parse_params(params, request_type)
        return await self._with_rpc_errors(self._call_session_method(method, request), request)

    async def _answer_optional(self, method: str, params: Any) -> Any:
        """Answer a method of an unstable capability; those of an external agent are forwarded."""
        if agent := await self._external_agent():
            return await self._with_rpc_errors(agent.extension(method, params), None)
        return {"state": "unauthenticated" if self._logged_out else "not_required"}

    async def notification(self, method: str, params: Any) -> None:
        """Handle a notification: `session/cancel`, or one for an external agent."""
        is_passed = is_extension(method) or method == MCP_MESSAGE
        if self._version and is_passed and (agent := await self._external_agent()):
            await self._with_rpc_errors(agent.notify(method, params), None)
            return
        if self._version and is_extension(method) and (agent := self._declared_agent()):
            from segue.agents.base import HandlesNotifications

            if isinstance(agent, HandlesNotifications):
                await self._with_rpc_errors(agent.notify(method, params), None)
            return
        if self._session_methods is not None and method == "session/cancel":
            request: wire.SessionRequest = _parse_params(params, wire.SessionRequest)
            await self._with_rpc_errors(self._session_methods.cancel(request), request)

    async def _call_session_method(self, method: str, request: Any) -> Any:
        return await (await self._get_session_methods()).call(method, request)

    async def _get_session_methods(self) -> SessionMethods:
        async with self._open_lock:  # serves requests in the order of their arrival
            if self._session_methods is None:
                from .handlers.session_methods import SessionMethods

                self._session_methods = SessionMethods(
                    await self._get_hub(),
                    self._principal,
                    self.connection,
                    self._attached,
                    self._version_policy(),
                    self._profile,
                    self._served_agent,
                    self._client_proxy,
                    self._accepted_content,
                )
        return self._session_methods

    def _version_policy(self) -> VersionPolicy:
        if self._version == v1.VERSION:
            from .versions.policy_v1 import PolicyV1

            return PolicyV1(self._capabilities)
        from .versions.policy_v2 import PolicyV2

        return PolicyV2()

    async def _get_hub(self) -> Hub:
        """Open the hub and build the served agent, the first time. The caller holds the lock."""
        if self._hub is None:
            from .client_proxy import ClientProxy

            self._hub = await self._open_hub()
            if self._principal.local:  # only the local user's client may answer for its programs
                self._client_proxy = ClientProxy(
                    self.connection,
                    self._capabilities,
                    self._attached,
                    self._version,
                    self._initialize_params,
                )
                self._hub.agent_registry.client_proxy = self._client_proxy
            served_agent = self._served_agent
            if served_agent is not None and served_agent.agent is None:
                agent = await self._hub.agents.register_agent(
                    self._principal, served_agent.name, served_agent.spec
                )
                self._served_agent = served_agent._replace(agent=agent)
        return self._hub

    # Initialization.

    async def _initialize(self, params: Any) -> Any:
        fields = params if isinstance(params, dict) else {}
        requested = fields.get("protocolVersion")
        if isinstance(requested, bool) or not isinstance(requested, int):
            raise RpcError(INVALID_PARAMS, "protocolVersion must be an integer")
        if self._in_use:
            raise RpcError(INVALID_REQUEST, "this connection is initialized already")
        if requested < min(VERSIONS):
            data = {"requested": max(requested, 0), "supported": list(VERSIONS)}
            raise RpcError(UNSUPPORTED_VERSION, "unsupported protocol version", data)
        if requested == v1.VERSION:
            return await self._initialize_v1(fields)
        # A later version may have changed the type of `info`, so only version 2 is checked.
        if requested == v2.VERSION:
            _parse_params(fields.get("info"), wire.Implementation, "info")
        return await self._initialize_v2(fields)

    async def _initialize_v1(self, fields: dict[str, Any]) -> v1.InitializeResponse:
        client = parse_leniently(fields.get("clientCapabilities"), v1.ClientCapabilities)
        self._capabilities, self._initialize_params = client, fields
        self._version = v1.VERSION
        methods = await self._login_methods(terminal=client.auth.terminal)
        return initialize_response_v1(self._profile, methods)

    async def _initialize_v2(self, fields: dict[str, Any]) -> v2.InitializeResponse:
        client = parse_leniently(fields.get("capabilities"), v2.ClientCapabilities)
        self._capabilities = v1.ClientCapabilities(elicitation=client.elicitation)
        self._initialize_params = fields
        self._version = v2.VERSION
        terminal = client.auth is not None and client.auth.terminal is not None
        methods = await self._login_methods(terminal=terminal)
        if self._profile.agent is not None:
            self._accepted_content = self._profile.agent.prompt_content
        return initialize_response_v2(self._profile, methods)

    # Authentication.

    async def _login_methods(self, *, terminal: bool) -> list[wire.LoginMethod]:
        """Return the login methods. An external agent is started to ask for its own."""
        agent = await self._agent_with_login()
        if agent is not None:
            self._login_methods_task = asyncio.ensure_future(self._fetch_login_methods(agent))
            await asyncio.wait([self._login_methods_task], timeout=LOGIN_METHODS_SECONDS)
            if self._login_methods_task.done():
                try:
                    self._login_methods_task.result()
                except AgentRefused:
                    self._version = 0
                    raise
        return available_login_methods(self._profile, self._agent_login_methods, terminal=terminal)

    async def _agent_with_login(self) -> NeedsLogin | None:
        """Return the served agent if it is external and has login methods of its own."""
        agent = await self._external_agent()
        if agent is None:
            return None
        from segue.agents.base import NeedsLogin

        return agent if isinstance(agent, NeedsLogin) else None

    async def _external_agent(self) -> HasExtensions | None:
        """Return the served agent if it is an ACP program; only the local user may use it."""
        if not self._principal.local:
            return None
        if self._served_agent is None or self._served_agent.spec.get("kind") != EXTERNAL_AGENT_KIND:
            return None
        from segue.agents.base.external import HasExtensions

        async with self._open_lock:
            await self._get_hub()
        agent = self._served_agent.agent
        return agent if isinstance(agent, HasExtensions) else None

    async def _fetch_login_methods(self, agent: NeedsLogin) -> None:
        from segue.agents.base.external import HasExtensions

        try:
            self._agent_login_methods = list(await agent.logins())
            if isinstance(agent, HasExtensions):
                self._profile = self._profile.for_agent(await agent.describe())
        except AgentRefused:  # for example because of the key, so no request can succeed
            raise
        except SegueError as error:  # the client gets it when it opens a session
            log.warning("%s", error.message)

    async def _log_in(self, request: wire.AuthRequest) -> wire.Empty:
        # The client itself runs a method that has arguments, in a terminal.
        methods = self._agent_login_methods or self._profile.logins
        if request.method_id not in [method.id for method in methods if method.args is None]:
            message = f"methodId: no authentication method {request.method_id!r}"
            raise RpcError(INVALID_PARAMS, message)
        if self._agent_login_methods and (agent := await self._agent_with_login()):
            await self._with_rpc_errors(agent.log_in(request.method_id), request)
        elif (declared := self._declared_login()) is not None:
            await self._with_rpc_errors(declared.log_in(request.method_id), request)
        self._logged_out = False
        return wire.Empty()

    async def _log_out(self, request: Any) -> wire.Empty:
        self._logged_out = True
        await self.close()
        if self._agent_login_methods and (agent := await self._agent_with_login()):
            await self._with_rpc_errors(agent.log_out(), request)
        elif (declared := self._declared_login()) is not None:
            await self._with_rpc_errors(declared.log_out(), request)
        return wire.Empty()

    # Agents of this program.

    def _declared_agent(self) -> Any:
        """Return the served agent if it runs in this program and declares its options."""
        served_agent = self._served_agent
        if served_agent is None or served_agent.declaration is None:
            return None
        return served_agent.agent

    def _declared_login(self) -> HandlesLogin | None:
        from segue.agents.base import HandlesLogin

        agent = self._declared_agent()
        return agent if isinstance(agent, HandlesLogin) else None

    def _declared_extension(self, method: str, params: Any) -> Awaitable[Any] | None:
        """Return the answer of the program's agent to an extension, or None if it has none."""
        from segue.agents.base import HandlesExtensions

        agent = self._declared_agent()
        return agent.extension(method, params) if isinstance(agent, HandlesExtensions) else None

    async def _with_rpc_errors(self, work: Awaitable[Result], request: Any) -> Result:
        """Await `work`, and raise an error of the hub as RpcError."""
        try:
            return await work
        except SegueError as error:
            raise to_rpc_error(error, request, local=self._principal.local) from error


def _parse_params(params: Any, request_type: type[Any], path: str = "") -> Any:
    """Return the parameters of a request, or its field at `path`, as a wire type.

    An invalid `_meta` is ignored. Raises RpcError that names the field that is wrong.
    """
    fields = {} if params is None else params
    if not isinstance(fields, dict):
        raise RpcError(INVALID_PARAMS, f"{path or 'params'} must be an object")
    if not isinstance(fields.get("_meta"), dict | None):
        fields = {name: value for name, value in fields.items() if name != "_meta"}
    try:
        return codec.convert(fields, request_type)
    except msgspec.ValidationError as error:
        raise invalid_params(error, path) from None
