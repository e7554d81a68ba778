"""Requests that an agent process sends to segue as its client: files, terminals and forms.

segue forwards the request to its own ACP client if that client supports the method and has the
session open. Otherwise segue serves files itself, within the directories of the session and under
the same permission rules as its built-in tools.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Protocol

from segue import __version__
from segue.acp import v2
from segue.acp.methods import ELICITATION_CREATE, READ_FILE, TERMINAL_METHODS
from segue.acp.rpc import INTERNAL_ERROR, INVALID_PARAMS, NOT_FOUND, RpcError
from segue.agents.base import Turn
from segue.agents.permission import check_permission, refusal
from segue.agents.tools.files import MAX_FILE_BYTES
from segue.agents.tools.path_guard import PathGuard, ToolError
from segue.model.errors import SegueError


class ClientProxy(Protocol):
    """The ACP client of segue, to which segue forwards requests of agent processes."""

    @property
    def methods(self) -> frozenset[str]:
        """The methods that the client supports."""
        ...

    @property
    def version(self) -> int:
        """The protocol version that the client uses."""
        ...

    @property
    def initialize_params(self) -> Mapping[str, Any]:
        """The parameters of `initialize` as the client sent them."""
        ...

    @property
    def forms(self) -> Mapping[str, Any]:
        """The kinds of forms that the client supports, as it declared them."""
        ...

    def has(self, session: str) -> bool:
        """Return True if the client has a session of segue open."""
        ...

    async def request(self, session: str, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request for a session and return the answer.

        Raises RpcError if the client refuses or does not have the session open.
        """
        ...

    async def extension(self, method: str, params: Any) -> Any:
        """Send a request that is not part of the protocol, and return the answer."""
        ...

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        ...


def capabilities(client_proxy: ClientProxy | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the client capabilities for agent processes, in protocol versions 1 and 2."""
    files: dict[str, Any] = {"fs": {"readTextFile": True, "writeTextFile": True}}
    if client_proxy is None:
        return files, {}
    forms = (
        {"elicitation": dict(client_proxy.forms)}
        if ELICITATION_CREATE in client_proxy.methods
        else {}
    )
    sent = client_proxy.initialize_params
    terminal = {"terminal": TERMINAL_METHODS[0] in client_proxy.methods}
    own_v1, own_v2 = {**files, **terminal, **forms}, forms
    return {**_dict(sent.get("clientCapabilities")), **own_v1}, {
        **_dict(sent.get("capabilities")),
        **own_v2,
    }


def identity(client_proxy: ClientProxy | None) -> dict[str, Any]:
    """Return the client's name, version and `_meta` for an agent process, next to segue's own."""
    if client_proxy is None or not client_proxy.initialize_params:
        return {}  # the client uses another protocol
    sent = client_proxy.initialize_params
    info = sent.get("info" if client_proxy.version == v2.VERSION else "clientInfo")
    meta = {**_dict(sent.get("_meta")), "segue": {"version": __version__}}
    return {"version": client_proxy.version, "info": _dict(info) or None, "meta": meta}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


class SessionFiles:
    """Serves the files of a session to the agent process that answers its turn."""

    def __init__(self, turn: Turn, allowed: set[str]) -> None:
        """Create it for a turn. Writing to the paths in `allowed` needs no permission request."""
        session = turn.session
        self._turn = turn
        self._allowed = allowed
        self._closed = False
        self._paths = PathGuard((session.directory, *session.roots), strict=False)

    async def answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request to read or write a file. Raises RpcError if that fails."""
        try:
            path = self._resolve(params.get("path"))
            if method == READ_FILE:
                return {"content": await self._read(path, params.get("line"), params.get("limit"))}
            await self._write(path, params.get("content"))
            return {}
        except ToolError as error:
            raise RpcError(INVALID_PARAMS, str(error)) from None
        except SegueError as error:
            raise RpcError(INTERNAL_ERROR, error.message) from None

    def close(self) -> None:
        """Refuse further writes: the turn is over, though the process may still work on it."""
        self._closed = True

    def _resolve(self, path: Any) -> str:
        if not isinstance(path, str) or not os.path.isabs(path):
            raise ToolError(f"path must be absolute, not {path!r}")
        return self._paths.resolve(path).path

    async def _read(self, path: str, line: Any, limit: Any) -> str:
        if not os.path.lexists(path):
            raise RpcError(NOT_FOUND, f"{path} does not exist", {"uri": path})
        _, data, status = await asyncio.to_thread(self._paths.read_file, path, MAX_FILE_BYTES)
        if status.st_size > MAX_FILE_BYTES:
            raise ToolError(f"{path} is too large: {status.st_size} bytes")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise ToolError(f"{path} is not UTF-8 text") from None
        if line is None and limit is None:
            return text
        first = max(line, 1) - 1 if isinstance(line, int) else 0
        last = first + limit if isinstance(limit, int) else None
        return "\n".join(text.split("\n")[first:last])

    async def _write(self, path: str, content: Any) -> None:
        if not isinstance(content, str):
            raise ToolError("content must be text")
        try:
            data = content.encode()
        except UnicodeEncodeError:
            raise ToolError("the text contains characters that UTF-8 cannot encode") from None
        if path not in self._allowed:
            title = f"Write {path}"
            answer = await check_permission(self._turn, None, title, "write", "edit", "auto")
            if not answer.allowed or answer.input is not None:
                raise RpcError(INTERNAL_ERROR, refusal(answer))
        if self._closed:
            raise RpcError(INTERNAL_ERROR, "the turn is over")
        await asyncio.to_thread(self._paths.replace_file, path, data)
