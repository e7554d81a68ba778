"""What claude-agent-sdk asks of a place to mirror sessions to: the shapes of its SessionStore."""

from __future__ import annotations

from typing import Any, NotRequired, Protocol, Required, TypedDict


class SessionKey(TypedDict):
    """One transcript: a session's own, or with `subpath` that of an agent it started."""

    project_key: str
    session_id: str
    subpath: NotRequired[str]


class SessionListSubkeysKey(TypedDict):
    """One session."""

    project_key: str
    session_id: str


class SessionStoreEntry(TypedDict, total=False):
    """One line of a transcript. It has further fields, which a store hands through."""

    type: Required[str]
    uuid: str
    timestamp: str


class SessionStoreListEntry(TypedDict):
    """One session in a list; `mtime` is in milliseconds since the epoch."""

    session_id: str
    mtime: int


class SessionSummaryEntry(TypedDict):
    """What lists show of one session, folded from its entries; `data` is not for a store to read.

    `mtime` is on the clock of the list's.
    """

    session_id: str
    mtime: int
    data: dict[str, Any]


class SessionStore(Protocol):
    """Where transcripts are mirrored to. A store need not have the methods that raise here."""

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add entries in order; one whose `uuid` is there already is not added again."""
        ...

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """All entries in order, equal to what was appended; None for an unknown key."""
        ...

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The sessions of a project, in any order."""
        raise NotImplementedError

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """What `fold_session_summary` made of each session of a project."""
        raise NotImplementedError

    async def delete(self, key: SessionKey) -> None:
        """Remove a session with all its agents' transcripts, or one of those alone."""
        raise NotImplementedError

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """The subpaths under a session."""
        raise NotImplementedError


def implements(store: SessionStore, method: str) -> bool:
    """Whether a store has a method of its own, and not only the one that raises."""
    own = getattr(type(store), method, None)
    return callable(getattr(store, method, None)) and own is not getattr(SessionStore, method)
