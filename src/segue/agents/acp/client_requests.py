"""What a child asks of us as its client: files, terminals and forms.

segue forwards the request to its own ACP client if that client supports the method and has the
session open. Otherwise segue serves files itself, within the directories of the session and under
the same permission rules as its built-in tools.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Protocol

from segue.acp.methods import ELICITATION_CREATE, READ_FILE, TERMINAL_METHODS
from segue.acp.rpc import INTERNAL_ERROR, INVALID_PARAMS, NOT_FOUND, RpcError
from segue.agents.base import Turn
from segue.agents.permission import check_permission, refusal
from segue.agents.tools.files import MAX_FILE_BYTES
from segue.agents.tools.path_guard import PathGuard, ToolError
from segue.model.errors import SegueError


class ClientProxy(Protocol):
    """The client at our door, as far as it does things for agents."""

    @property
    def methods(self) -> frozenset[str]:
        """What may be asked of it."""
        ...

    @property
    def forms(self) -> Mapping[str, Any]:
        """The kinds of forms that it shows, as it said itself."""
        ...

    def has(self, session: str) -> bool:
        """Whether it has one of our sessions open."""
        ...

    async def request(self, session: str, method: str, params: Mapping[str, Any]) -> Any:
        """Its answer for one of our sessions; RpcError if it refuses or has it not open."""
        ...

    async def notify(self, method: str, params: Mapping[str, Any]) -> None: ...


def capabilities(client_proxy: ClientProxy | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a child is told that its client can do, in version 1 and in version 2."""
    files: dict[str, Any] = {"fs": {"readTextFile": True, "writeTextFile": True}}
    if client_proxy is None:
        return files, {}
    forms = (
        {"elicitation": dict(client_proxy.forms)}
        if ELICITATION_CREATE in client_proxy.methods
        else {}
    )
    return {**files, "terminal": TERMINAL_METHODS[0] in client_proxy.methods, **forms}, forms


class Files:
    """The files of a session, for the child that answers a turn of it."""

    def __init__(self, turn: Turn, allowed: set[str]) -> None:
        """What has been `allowed` already, by its path, is not asked about again."""
        session = turn.session
        self._turn = turn
        self._allowed = allowed
        self._over = False
        self._roots = PathGuard((session.directory, *session.roots), strict=False)

    async def answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            path = self._path(params.get("path"))
            if method == READ_FILE:
                return {"content": await self._read(path, params.get("line"), params.get("limit"))}
            await self._write(path, params.get("content"))
            return {}
        except ToolError as error:
            raise RpcError(INVALID_PARAMS, str(error)) from None
        except SegueError as error:
            raise RpcError(INTERNAL_ERROR, error.message) from None

    def close(self) -> None:
        """The turn is over, if not for the child: nothing is changed any more."""
        self._over = True

    def _path(self, given: Any) -> str:
        if not isinstance(given, str) or not os.path.isabs(given):
            raise ToolError(f"path must be absolute, not {given!r}")
        return self._roots.resolve(given).path

    async def _read(self, path: str, line: Any, limit: Any) -> str:
        if not os.path.lexists(path):
            raise RpcError(NOT_FOUND, f"{path} does not exist", {"uri": path})
        _, data, status = await asyncio.to_thread(self._roots.read_file, path, MAX_FILE_BYTES)
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
            raise ToolError("the text holds characters that UTF-8 cannot") from None
        if path not in self._allowed:
            title = f"Write {path}"
            answer = await check_permission(self._turn, None, title, "write", "edit", "auto")
            if not answer.allowed or answer.input is not None:
                raise RpcError(INTERNAL_ERROR, refusal(answer))
        if self._over:
            raise RpcError(INTERNAL_ERROR, "the turn is over")
        await asyncio.to_thread(self._roots.replace_file, path, data)
