"""A SessionStore in memory, for tests."""

from __future__ import annotations

import time

from .protocol import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)
from .summary import fold_session_summary

_TranscriptName = tuple[str, str, str]  # project key, session id, subpath


class InMemorySessionStore(SessionStore):
    """Keep transcripts in dictionaries."""

    def __init__(self) -> None:
        self._entries: dict[_TranscriptName, list[SessionStoreEntry]] = {}
        self._summaries: dict[_TranscriptName, SessionSummaryEntry] = {}
        self._mtimes: dict[_TranscriptName, int] = {}
        self._last_mtime = 0

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        name = _transcript_name(key)
        self._entries.setdefault(name, []).extend(entries)
        # Times increase strictly, however coarse the clock is.
        self._last_mtime = max(self._last_mtime + 1, time.time_ns() // 1_000_000)
        self._mtimes[name] = self._last_mtime
        if not name[2]:
            summary = fold_session_summary(self._summaries.get(name), key, entries)
            self._summaries[name] = {**summary, "mtime": self._last_mtime}

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        return self.get_entries(key) if _transcript_name(key) in self._entries else None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        return [
            {"session_id": session, "mtime": self._mtimes[project, session, subpath]}
            for project, session, subpath in self._entries
            if project == project_key and not subpath
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        return [summary for name, summary in self._summaries.items() if name[0] == project_key]

    async def delete(self, key: SessionKey) -> None:
        name = _transcript_name(key)
        deleted = [stored for stored in self._entries if stored == name or _is_under(stored, name)]
        for stored in deleted:
            del self._entries[stored], self._mtimes[stored]
            self._summaries.pop(stored, None)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        session = (key["project_key"], key["session_id"], "")
        return [name[2] for name in self._entries if _is_under(name, session)]

    def get_entries(self, key: SessionKey) -> list[SessionStoreEntry]:
        """Return the entries of a transcript; empty if it is unknown."""
        return list(self._entries.get(_transcript_name(key), ()))

    @property
    def size(self) -> int:
        """The number of sessions."""
        return sum(not subpath for _, _, subpath in self._entries)

    def clear(self) -> None:
        """Remove everything."""
        self._entries.clear()
        self._summaries.clear()
        self._mtimes.clear()


def _transcript_name(key: SessionKey) -> _TranscriptName:
    return key["project_key"], key["session_id"], key.get("subpath") or ""


def _is_under(name: _TranscriptName, session: _TranscriptName) -> bool:
    """Return whether `name` is a subagent's transcript of `session`."""
    return name[:2] == session[:2] and bool(name[2]) and not session[2]
