"""A SessionStore for tests, which forgets with its process."""

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

_Name = tuple[str, str, str]


class InMemorySessionStore(SessionStore):
    """Keeps transcripts in dictionaries."""

    def __init__(self) -> None:
        self._entries: dict[_Name, list[SessionStoreEntry]] = {}
        self._summaries: dict[_Name, SessionSummaryEntry] = {}
        self._written: dict[_Name, int] = {}
        self._last = 0

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        name = _name(key)
        self._entries.setdefault(name, []).extend(entries)
        # Later appends have later times, however coarse the clock is.
        self._last = self._written[name] = max(self._last + 1, time.time_ns() // 1_000_000)
        if not name[2]:
            folded = fold_session_summary(self._summaries.get(name), key, entries)
            self._summaries[name] = {**folded, "mtime": self._last}

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        return self.get_entries(key) if _name(key) in self._entries else None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        return [
            {"session_id": session, "mtime": self._written[project, session, subpath]}
            for project, session, subpath in self._entries
            if project == project_key and not subpath
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        return [kept for name, kept in self._summaries.items() if name[0] == project_key]

    async def delete(self, key: SessionKey) -> None:
        name = _name(key)
        for other in [other for other in self._entries if other == name or _under(other, name)]:
            del self._entries[other], self._written[other]
            self._summaries.pop(other, None)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        main = (key["project_key"], key["session_id"], "")
        return [name[2] for name in self._entries if _under(name, main)]

    def get_entries(self, key: SessionKey) -> list[SessionStoreEntry]:
        """The entries of a transcript; none of one that is not here."""
        return list(self._entries.get(_name(key), ()))

    @property
    def size(self) -> int:
        """How many sessions there are."""
        return sum(not subpath for _, _, subpath in self._entries)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._summaries.clear()
        self._written.clear()


def _name(key: SessionKey) -> _Name:
    return key["project_key"], key["session_id"], key.get("subpath") or ""


def _under(name: _Name, main: _Name) -> bool:
    """Whether one is the transcript of an agent of the session that the other names."""
    return name[:2] == main[:2] and bool(name[2]) and not main[2]
