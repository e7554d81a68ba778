"""The sessions that are attached to one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from .attached_session import AttachedSession


class AttachedSessions:
    """The attached sessions of one client, by canonical id."""

    def __init__(self) -> None:
        self._sessions: dict[str, AttachedSession] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._sessions

    def get(self, session_id: str) -> AttachedSession | None:
        """Return an attached session, or None if the session is not attached."""
        return self._sessions.get(session_id)

    def add(self, session: AttachedSession) -> None:
        """Add a session that was attached."""
        self._sessions[session.id] = session

    def lock(self, session_id: str) -> asyncio.Lock:
        """Return the lock of a session. Code that attaches or detaches the session holds it."""
        return self._locks.setdefault(session_id, asyncio.Lock())

    async def detach(
        self, session_id: str, before_silence: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Close a session if it is attached. The caller holds the session's lock.

        `before_silence` runs when the session's turn has ended. If the session is attached, the
        client receives the events that it stores.
        """
        if session := self._sessions.get(session_id):
            try:
                await session.close(before_silence)
            finally:
                self._sessions.pop(session_id, None)
        elif before_silence is not None:
            await before_silence()

    async def finish_turns(self) -> None:
        """Wait until the client's turns have ended, or are stored while they wait for an answer."""
        sessions = list(self._sessions.values())
        await asyncio.gather(*(session.finish_turns() for session in sessions))

    async def close(self, *, cancel: bool = True) -> None:
        """Detach all sessions; with `cancel`, cancel the turns that the client started."""
        sessions = list(self._sessions)
        await asyncio.gather(*(self._close_one(id, cancel=cancel) for id in sessions))

    async def send_states(self, client_session_id: str | None = None) -> None:
        """Send the state of the session that the client knows by this id, or of all sessions."""
        for session in list(self._sessions.values()):
            if client_session_id in (None, session.client_session_id):
                await session.send_state()

    async def _close_one(self, session_id: str, *, cancel: bool) -> None:
        async with self.lock(session_id):
            if cancel:
                await self.detach(session_id)
            elif session := self._sessions.pop(session_id, None):
                await session.leave()
