"""The interface and types of claude-agent-sdk's SessionStore, to which it mirrors sessions."""

from __future__ import annotations

from typing import Any, NotRequired, Protocol, Required, TypedDict


class SessionKey(TypedDict):
    """Identify a transcript: a session's own or, with `subpath`, that of one of its subagents."""

    project_key: str
    session_id: str
    subpath: NotRequired[str]


class SessionListSubkeysKey(TypedDict):
    """Identify a session."""

    project_key: str
    session_id: str


class SessionStoreEntry(TypedDict, total=False):
    """One line of a transcript. It may have more fields, which a store must preserve."""

    type: Required[str]
    uuid: str
    timestamp: str


class SessionStoreListEntry(TypedDict):
    """One session in a list; `mtime` is in milliseconds since the epoch."""

    session_id: str
    mtime: int


class SessionSummaryEntry(TypedDict):
    """The summary of a session for lists, computed from its entries.

    A store must not interpret `data`. `mtime` uses the same clock as the list's.
    """

    session_id: str
    mtime: int
    data: dict[str, Any]


class SessionStore(Protocol):
    """A store of transcripts. The methods that raise NotImplementedError here are optional."""

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add entries in order. Skip an entry whose `uuid` is already stored."""
        ...

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries in order, equal to the appended ones; None for an unknown key."""
        ...

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project, in any order."""
        raise NotImplementedError

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the result of `fold_session_summary` for each session of a project."""
        raise NotImplementedError

    async def delete(self, key: SessionKey) -> None:
        """Remove a session with all its subagents' transcripts, or only one of those."""
        raise NotImplementedError

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session."""
        raise NotImplementedError


def implements(store: SessionStore, method: str) -> bool:
    """Return whether a store implements an optional method."""
    implementation = getattr(type(store), method, None)
    return callable(getattr(store, method, None)) and implementation is not getattr(
        SessionStore, method
    )
