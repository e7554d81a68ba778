"""Follow the list of sessions for one client."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from segue.hub import Hub
from segue.interfaces.ahp.protocol import ROOT, session_uri
from segue.model.errors import NotFound
from segue.model.principal import Principal
from segue.model.query import Query
from segue.model.session import Session

from . import rows

# Of a client that asks for no page: the sessions in the answer, and with those sent after it.
FIRST_LISTED, MAX_LISTED = 50, 500
# VS Code shows only the sessions of its folder, and does not say which folder that is. So of
# directories with fewer sessions, more are sent, if they are among the sessions that are read.
MAX_OF_DIRECTORY, MAX_READ = 100, 20_000
REST_SECONDS = 0.05  # between the answer and further pages, for other requests
DIRECTORIES_SECONDS = 2.0  # before sessions of other directories, when a window has begun

Notify = Callable[[str, dict[str, Any]], Awaitable[None]]


class SessionList:
    """The rows that a client has, and what changes them.

    A session is unread if it changed while the client was connected, until the client opens it.
    """

    def __init__(self, hub: Hub, principal: Principal, notify: Notify) -> None:
        self._hub = hub
        self._principal = principal
        self._notify = notify
        self._rows: dict[str, dict[str, Any]] = {}
        self._unread: set[str] = set()
        self._removed: set[str] = set()

    def is_read(self, session_id: str) -> bool:
        return session_id not in self._unread

    async def page(self, limit: int | None, cursor: str | None) -> dict[str, Any]:
        """Return rows, the most recently active first, archived ones included."""
        size = min(limit or FIRST_LISTED, MAX_LISTED)
        query = Query(archived="include", limit=size)
        page = await self._hub.sessions.list(self._principal, query, cursor)
        listed = [self._remember(session) for session in page.sessions]
        return {"items": listed, **({"nextCursor": page.next} if page.next else {})}

    async def send_rest(self, cursor: str) -> None:
        """Send the rows after a page as added sessions, to a client that reads no pages."""
        for _ in range(MAX_LISTED // FIRST_LISTED - 1):
            await asyncio.sleep(REST_SECONDS)
            page = await self.page(None, cursor)
            for row in page["items"]:
                await self._notify("root/sessionAdded", {"channel": ROOT, "summary": row})
            if "nextCursor" not in page:
                return
            cursor = page["nextCursor"]
        await self._send_other_directories(cursor)

    async def _send_other_directories(self, cursor: str) -> None:
        """Send the next sessions of the directories that have few rows so far."""
        await asyncio.sleep(DIRECTORIES_SECONDS)
        counts = Counter(tuple(row["workingDirectories"][:1]) for row in self._rows.values())
        query = Query(archived="include", limit=MAX_LISTED)
        for _ in range(MAX_READ // MAX_LISTED):
            await asyncio.sleep(REST_SECONDS)
            page = await self._hub.sessions.list(self._principal, query, cursor)
            for session in page.sessions:
                directory = tuple(rows.directories(session)[:1])
                if session.id not in self._rows and counts[directory] < MAX_OF_DIRECTORY:
                    counts[directory] += 1
                    await self._add(session)
            if page.next is None:
                return
            cursor = page.next

    async def send_sessions_in(self, directory: str) -> None:
        """Send the sessions in a directory that the client does not have yet."""
        query = Query(cwd=directory, archived="include", limit=MAX_LISTED)
        page = await self._hub.sessions.list(self._principal, query)
        for session in page.sessions:
            if session.id not in self._rows:
                await self._add(session)

    async def _add(self, session: Session) -> None:
        params = {"channel": ROOT, "summary": self._remember(session)}
        await self._notify("root/sessionAdded", params)

    async def announce_since(self, at: int) -> None:
        """Send the rows that changed after a time, the oldest change first."""
        query = Query(archived="include", limit=MAX_LISTED)
        page = await self._hub.sessions.list(self._principal, query)
        for session in reversed(page.sessions):
            if session.updated_at >= at:
                await self._announce(session)
        trash = await self._hub.sessions.list(self._principal, Query(trash=True, limit=MAX_LISTED))
        for session in trash.sessions:
            if session.updated_at >= at:
                await self.remove(session.id)

    async def follow(self) -> None:
        """Send changed rows, without end."""
        async for change in self._hub.history.changes(self._principal):
            if change.gone:
                await self.remove(change.session)
                continue
            try:
                session = await self._hub.sessions.get(self._principal, change.session)
            except NotFound:
                continue
            await self._announce(session)

    async def mark_read(self, session_id: str, *, is_read: bool) -> None:
        (self._unread.discard if is_read else self._unread.add)(session_id)
        if session_id in self._rows:
            session = await self._hub.sessions.get(self._principal, session_id)
            await self._send_changes(session)

    async def remove(self, session_id: str) -> None:
        """Remove a row of the client, which may have it from an earlier connection."""
        self._unread.discard(session_id)
        self._rows.pop(session_id, None)
        if session_id not in self._removed:
            self._removed.add(session_id)
            params = {"channel": ROOT, "session": session_uri(session_id)}
            await self._notify("root/sessionRemoved", params)

    async def _announce(self, session: Session) -> None:
        if session.state == "trashed":
            await self.remove(session.id)
        elif session.id in self._rows:
            before = self._rows[session.id]["modifiedAt"]
            if before != rows.summary(session, is_read=True)["modifiedAt"]:
                self._unread.add(session.id)
            await self._send_changes(session)
        elif session.last_seq > 1:  # a session without any message is not listed
            await self._add(session)

    async def _send_changes(self, session: Session) -> None:
        before = self._rows[session.id]
        changes = rows.changes(before, self._remember(session))
        if changes:
            params = {"channel": ROOT, "session": session_uri(session.id), "changes": changes}
            await self._notify("root/sessionSummaryChanged", params)

    def _remember(self, session: Session) -> dict[str, Any]:
        row = rows.summary(session, is_read=self.is_read(session.id))
        self._rows[session.id] = row
        self._removed.discard(session.id)
        return row
