"""The client as other agents may use it: its files, its terminals, its forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from segue.acp import methods, v1
from segue.acp.rpc import NOT_FOUND, Connection, RpcError

if TYPE_CHECKING:
    from .attached_session import Opened


class ClientProxy:
    """What the client said that it can do, and asking it to."""

    def __init__(
        self,
        connection: Connection,
        client: v1.ClientCapabilities,
        opened: Callable[[str], Opened | None],
    ) -> None:
        """`opened` finds a session that is open for the client."""
        self._connection = connection
        self._opened = opened
        self.forms = client.elicitation or {}
        self.methods = frozenset(_methods(client))

    def has(self, session: str) -> bool:
        return self._opened(session) is not None

    async def request(self, session: str, method: str, params: Mapping[str, Any]) -> Any:
        opened = self._opened(session)
        if opened is None:
            raise RpcError(NOT_FOUND, "the session is not open", {"sessionId": session})
        return await opened.pass_on(method, params)

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._connection.notify(method, params)


def _methods(client: v1.ClientCapabilities) -> Iterator[str]:
    if client.fs.read_text_file:
        yield methods.READ_FILE
    if client.fs.write_text_file:
        yield methods.WRITE_FILE
    if client.terminal:
        yield from methods.TERMINAL_METHODS
    if client.elicitation is not None:
        yield methods.ELICITATION_CREATE
