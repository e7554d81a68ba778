"""Which sessions a caller gets: those of a directory, of a repository, or of its workspace."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from segue.hub import Hub
from segue.hub.sessions import directories
from segue.model import clock
from segue.model.errors import SegueError
from segue.model.event import ToolCall, ToolResult
from segue.model.principal import Principal
from segue.model.query import Query
from segue.model.session import Session

Scope = Literal["directory", "repo", "all"]

MAX_SCANNED_SESSIONS = 1000  # searched for directories in the repository
REFRESH_SECONDS = 60.0
CALL_SECONDS = 120  # a session that calls was active at most so long ago
_CALL_EVENTS = 40


class McpSettings(NamedTuple):
    """The sessions that a server offers, and whether its tools may write and show secrets."""

    scope: Scope = "repo"
    directory: str | None = None
    allow_write: bool = False
    mask: bool = True


class SessionScope:
    """Limits queries to the sessions that a caller gets."""

    def __init__(self, settings: McpSettings) -> None:
        self._settings = settings
        self._directories: tuple[str, ...] = ()
        self._read_at = float("-inf")

    async def query(self, hub: Hub, principal: Principal, **filters: Any) -> Query:
        """Return a query for the sessions of the scope."""
        return Query(**filters, directories=await self.directories(hub, principal))

    async def directories(self, hub: Hub, principal: Principal) -> tuple[str, ...]:
        """Return the directories of the scope; none if it is the whole workspace."""
        directory = self._settings.directory
        if self._settings.scope == "all" or directory is None:
            return ()
        if self._settings.scope == "directory":
            return directories.directories(directory, worktrees=False)
        if time.monotonic() - self._read_at > REFRESH_SECONDS:
            self._directories = await repository_directories(hub, principal, directory)
            self._read_at = time.monotonic()
        return self._directories

    async def includes(self, hub: Hub, principal: Principal, session: Session) -> bool:
        """Return whether a session is in the scope."""
        scope = await self.directories(hub, principal)
        return not scope or session.directory in scope


async def repository_directories(hub: Hub, principal: Principal, directory: str) -> tuple[str, ...]:
    """Return the worktrees of a directory's repository, and the directories of sessions in them.

    Directories below a worktree are known from the sessions that were active last.
    """
    root = repository_root(directory)
    roots = directories.directories(root, worktrees=True)
    own = directories.real(directory)
    page = await hub.sessions.list(principal, Query(limit=MAX_SCANNED_SESSIONS, archived="include"))
    below = {
        session.directory
        for session in page.sessions
        if any(session.directory.startswith(f"{path}{os.sep}") for path in roots)
    }
    return tuple(dict.fromkeys([own, *roots, *sorted(below)]))


def repository_root(directory: str) -> str:
    """Return the directory that has `.git`, or the directory itself outside of a repository."""
    path = directories.real(directory)
    while not os.path.exists(os.path.join(path, ".git")):
        parent = os.path.dirname(path)
        if parent == path:
            return directory
        path = parent
    return path


class Caller(NamedTuple):
    """What is known of the session that makes a call: its id, or the call itself."""

    id: str | None = None
    tool: str = ""
    arguments: Mapping[str, Any] = {}

    async def is_session(self, hub: Hub, principal: Principal, session: Session) -> bool:
        """Return whether a session makes this call.

        If the program does not name its session, it is the one whose last tool call is this one.
        """
        if self.id is not None:
            return self.id in (session.id, session.native_id)
        if not self.tool or session.active_at < clock.now() - CALL_SECONDS * 1_000_000:
            return False
        return await _is_calling(hub, principal, session, self.tool, self.arguments)


async def _is_calling(
    hub: Hub, principal: Principal, session: Session, tool: str, arguments: Mapping[str, Any]
) -> bool:
    """Return whether a session has an open call of this tool with these arguments."""
    events = await hub.history.events(
        principal,
        session.id,
        types=("tool_call", "tool_result"),
        limit=_CALL_EVENTS,
        backward=True,
    )
    answered = {event.body.call_id for event in events if isinstance(event.body, ToolResult)}
    return any(
        isinstance(event.body, ToolCall)
        and event.body.call_id not in answered
        and event.body.name.endswith(tool)
        and _has_arguments(event.body.input, arguments)
        for event in events
    )


def _has_arguments(value: Any, arguments: Mapping[str, Any]) -> bool:
    """Return whether an input has these arguments; some tools wrap them in another object."""
    if not isinstance(value, dict):
        return not arguments
    return value == arguments or any(inner == arguments for inner in value.values())


def require_package() -> None:
    """Raise SegueError if the package that the MCP server needs is not installed."""
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        from segue.extras import install_command

        raise SegueError(f"the MCP server needs a package; run: {install_command('mcp')}")
