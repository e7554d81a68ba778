"""Let agents that segue runs use the client's files, terminals and forms."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from segue.acp import methods, v1
from segue.acp.rpc import INTERNAL_ERROR, NOT_FOUND, Connection, Disconnected, RpcError
from segue.model.errors import ClientFailed

if TYPE_CHECKING:
    from .attached_sessions import AttachedSessions


class ClientProxy:
    """Sends requests of agents to the client that has their session attached."""

    def __init__(
        self,
        connection: Connection,
        capabilities: v1.ClientCapabilities,
        attached: AttachedSessions,
        version: int,
        initialize_params: Mapping[str, Any],
    ) -> None:
        self.version = version
        self.initialize_params = initialize_params
        self._connection = connection
        self._attached = attached
        self.forms = capabilities.elicitation or {}
        self.methods = frozenset(_supported_methods(capabilities))

    def has(self, session: str) -> bool:
        """Return whether a session is attached to the client."""
        return session in self._attached

    async def request(self, session: str, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request about a session, and return the client's answer.

        Raises RpcError if the session is not attached or the client answers with an error.
        """
        attached_session = self._attached.get(session)
        if attached_session is None:
            raise RpcError(NOT_FOUND, "the session is not open", {"sessionId": session})
        return await attached_session.request(method, params)

    async def extension(self, method: str, params: Any) -> Any:
        """Send a request that is not part of the protocol, and return the client's answer."""
        try:
            return await self._connection.request(method, params)
        except Disconnected:
            raise RpcError(INTERNAL_ERROR, "the client has disconnected") from None

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        await self._connection.notify(method, params)


class SessionClient:
    """The client of one session, for the agent that answers in it."""

    def __init__(self, proxy: ClientProxy, session: str) -> None:
        self._proxy = proxy
        self._session = session
        is_v1 = proxy.version == v1.VERSION
        sent = proxy.initialize_params
        self.version = proxy.version
        self.methods = proxy.methods
        self.info = _dict(sent.get("clientInfo" if is_v1 else "info"))
        self.capabilities = _dict(sent.get("clientCapabilities" if is_v1 else "capabilities"))
        self.meta = _dict(sent.get("_meta"))

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request about the session. Raises ClientFailed if the client refuses."""
        return await _answer(self._proxy.request(self._session, method, params))

    async def extension(self, method: str, params: Any) -> Any:
        """Send a request that is not part of the protocol. Raises ClientFailed."""
        return await _answer(self._proxy.extension(method, params))

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification that is not part of the protocol."""
        await self._proxy.notify(method, params)


async def _answer(request: Awaitable[Any]) -> Any:
    try:
        return await request
    except RpcError as error:
        raise ClientFailed(error.message, code=error.code, error_data=error.data) from error


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _supported_methods(capabilities: v1.ClientCapabilities) -> Iterator[str]:
    if capabilities.fs.read_text_file:
        yield methods.READ_FILE
    if capabilities.fs.write_text_file:
        yield methods.WRITE_FILE
    if capabilities.terminal:
        yield from methods.TERMINAL_METHODS
    if capabilities.elicitation is not None:
        yield methods.ELICITATION_CREATE
