"""A SessionStore for claude-agent-sdk that keeps sessions in a segue store."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from segue.hub import Hub
from segue.model.principal import Principal, check_workspace
from segue.sources.claude.format.paths import SOURCE, project_key, resolve_directory

from .mirror import TranscriptKey, TranscriptMirror
from .protocol import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)

if TYPE_CHECKING:
    from segue.store.base import Store


class SegueSessionStore(SessionStore):
    """Mirror an agent's sessions into a segue store, and resume them from there.

        options = ClaudeAgentOptions(session_store=SegueSessionStore())

    By default the store is the one that `segue` commands use. Pass `data_dir` for another
    directory, `database_url` for PostgreSQL, or an open `store`, which this class does not close.
    Any session of the store can be resumed in its working directory.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        database_url: str | None = None,
        *,
        store: Store | None = None,
        workspace: str = "local",
    ) -> None:
        self._principal = Principal(workspace=check_workspace(workspace), local=True)
        self._location = data_dir, database_url
        self._open_store = store
        self._hub: Hub | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store. A later call opens it again."""
        hub, self._hub = self._hub, None
        if hub is not None:
            await hub.close()

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        mirror = await self._mirror()
        # The first entries do not name a directory; most sessions run in that of this process.
        cwd = _own_directory_for(key["project_key"]) or "/"
        await mirror.append(_key(key), cast("list[dict[str, Any]]", entries), cwd)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        entries = await (await self._mirror()).load(_key(key))
        return cast("list[SessionStoreEntry] | None", entries)

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        return [
            {"session_id": summary["session_id"], "mtime": summary["mtime"]}
            for summary in await self.list_session_summaries(project_key)
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        mirror = await self._mirror()
        return [
            {
                "session_id": known.native_id,
                "mtime": known.session.updated_at // 1000,
                "data": known.summary,
            }
            for known in await mirror.sessions(project_key)
        ]

    async def delete(self, key: SessionKey) -> None:
        await (await self._mirror()).delete(_key(key))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        return await (await self._mirror()).paths(
            TranscriptKey(key["project_key"], key["session_id"])
        )

    async def import_session(self, session: str) -> int:
        """Import a Claude Code session and return the number of new lines.

        `session` is its id or the path of its transcript. A repeated import adds what is new.
        """
        hub = await self._open_hub()
        return (await hub.sync.import_session(self._principal, session, SOURCE)).new_lines

    async def export_session(self, session_id: str) -> str:
        """Write a session of the store where Claude Code can resume it. Return the path.

        Raise `segue.errors.Conflict` if its transcript exists: it is never overwritten.
        """
        hub = await self._open_hub()
        return (await hub.sync.write(self._principal, session_id, SOURCE)).path

    async def _mirror(self) -> TranscriptMirror:
        hub = await self._open_hub()
        agent = hub.records.author(self._principal.workspace, SOURCE)
        return TranscriptMirror(hub.store, self._principal.workspace, agent)

    async def _open_hub(self) -> Hub:
        from segue.factory import open_hub
        from segue.hub.location import data_dir

        if self._open_store is not None:
            return Hub(self._open_store, data_dir())
        if self._hub is None:
            hub = await open_hub(*self._location, sources="none")
            if self._hub is None:
                self._hub = hub
            else:  # another task opened it in the meantime
                await hub.close()
        return self._hub


def _own_directory_for(project: str) -> str | None:
    """Return this process's directory if the project is named after it, or None."""
    directory = resolve_directory(os.curdir)
    return directory if project_key(directory) == project else None


def _key(key: SessionKey) -> TranscriptKey:
    return TranscriptKey(key["project_key"], key["session_id"], key.get("subpath") or "")
