"""The ACP door: one connection's requests as calls of the hub.

Each method of the protocol is one method of Door, named by it (`session/list` is `_session_list`);
which exist in a version, and with what parameters, is the version's own table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ...acp import v1, v2, wire
from ...acp.rpc import (
    AUTH_REQUIRED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    RpcError,
)
from ...model.errors import SegueError
from .base import VERSIONS
from .capabilities import LOCAL_AUTH, initialized_v1, initialized_v2, leniently
from .keeping import Keeping
from .opening import Opening
from .talking import Talking

_WITHOUT_LOGIN = ("authenticate", "auth/login", "logout", "auth/logout")


class Door(Opening, Talking, Keeping):
    """Answers one client."""

    _settled = False  # by the first request after `initialize`, which then is not repeated
    _logged_out = False

    async def close(self) -> None:
        """The client is gone: cancel what it began, let its sessions go."""
        await asyncio.gather(*(self._let_go(id) for id in list(self._opened)))

    async def _let_go(self, id: str) -> None:
        async with self._alone(id):
            await self._shut(id)

    async def request(self, method: str, params: Any) -> Any:
        if method == "initialize":
            return self._initialize(params)
        if self._version == 0:
            raise RpcError(INVALID_REQUEST, "initialize first")
        self._settled = True
        table = v1.REQUESTS if self._version == 1 else v2.REQUESTS
        kind = table.get(method)
        if kind is None or not self._offers.method(method, self._version):
            raise RpcError(METHOD_NOT_FOUND, f"method not found: {method}", {"method": method})
        if self._logged_out and method not in _WITHOUT_LOGIN:
            raise RpcError(AUTH_REQUIRED, "authentication required")
        answer: Callable[[Any], Awaitable[Any]] = getattr(self, "_" + method.replace("/", "_"))
        wanted = _convert(params, kind)
        try:
            return await answer(wanted)
        except SegueError as error:
            raise _refusal(error, wanted) from error

    async def notification(self, method: str, params: Any) -> None:
        if self._version and method == "session/cancel":
            wanted: wire.SessionRequest = _convert(params, wire.SessionRequest)
            try:
                await self._cancelled(wanted)
            except SegueError as error:
                raise _refusal(error, wanted) from error

    def _initialize(self, params: Any) -> Any:
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
            return initialized_v1(self._offers, self._client.auth.terminal)
        # A client of a later version may say things in ways we do not know; of ours it may not.
        if requested == v2.VERSION:
            _convert(given.get("info"), wire.Implementation)
        client = leniently(given.get("capabilities"), v2.ClientCapabilities)
        self._version = v2.VERSION
        terminal = client.auth is not None and client.auth.terminal is not None
        return initialized_v2(self._offers, terminal)

    async def _authenticate(self, request: wire.AuthRequest) -> wire.Empty:
        # The method in a terminal is the client's own to run, and cannot be asked for.
        if request.method_id != LOCAL_AUTH:
            raise RpcError(INVALID_PARAMS, f"no authentication method {request.method_id!r}")
        self._logged_out = False
        return wire.Empty()

    _auth_login = _authenticate

    async def _logout(self, _: wire.Empty) -> wire.Empty:
        await self.close()
        self._logged_out = True
        return wire.Empty()

    _auth_logout = _logout


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
