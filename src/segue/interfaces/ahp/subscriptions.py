"""Follow the list of sessions and single chats for one client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

from segue.hub import Hub
from segue.model.errors import NotFound, SegueError
from segue.model.event import Delta, Event, InfoChanged
from segue.model.principal import Principal
from segue.model.query import Query
from segue.model.session import OWN, Session

from . import catalog
from .chat import ChatState
from .protocol import ROOT, Action, chat_uri, session_uri

# Of a client that asks for no page: the sessions in the answer, and with those sent after it.
FIRST_LISTED, MAX_LISTED = 100, 500
REST_SECONDS = 0.05  # between the answer and further pages, for other requests
STATUS_CHECK_SECONDS = 2.0  # whether another tool still works on a session that is followed

Notify = Callable[[str, dict[str, Any]], Awaitable[None]]
Act = Callable[[str, Action], Awaitable[None]]


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
        rows = [self._remember(session) for session in page.sessions]
        return {"items": rows, **({"nextCursor": page.next} if page.next else {})}

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
            if before != catalog.summary(session, is_read=True)["modifiedAt"]:
                self._unread.add(session.id)
            await self._send_changes(session)
        elif session.last_seq > 1:  # a session without any message is not listed
            params = {"channel": ROOT, "summary": self._remember(session)}
            await self._notify("root/sessionAdded", params)

    async def _send_changes(self, session: Session) -> None:
        before = self._rows[session.id]
        changes = catalog.changes(before, self._remember(session))
        if changes:
            params = {"channel": ROOT, "session": session_uri(session.id), "changes": changes}
            await self._notify("root/sessionSummaryChanged", params)

    def _remember(self, session: Session) -> dict[str, Any]:
        row = catalog.summary(session, is_read=self.is_read(session.id))
        self._rows[session.id] = row
        self._removed.discard(session.id)
        return row


class FollowedChat:
    """The chat of a session, or of one of its subagents, as one client has it."""

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        session_id: str,
        act: Act,
        client_ids: Mapping[str, str],
    ) -> None:
        self._hub = hub
        self._principal = principal
        self._session_id = session_id
        self._act = act
        self._client_ids = client_ids
        self._last_seq = 0
        self.uri = chat_uri(session_id)
        self.state = ChatState(session_id, client_ids)
        self.title: str | None = None  # as the client knows it
        self._is_silent = True  # since the status was checked
        self._pending: dict[str, tuple[str, Any]] = {}  # the kind and message of each, by id

    async def load(self, session: Session) -> None:
        """Read the session's conversation so far."""
        self._last_seq, self.title = session.last_seq, session.title
        async for event in self._hub.history.conversation(self._principal, self._session_id):
            if event.seq > self._last_seq:
                break
            if event.body.thread is None:
                self.state.apply(event)
        if session.status not in ("running", "rescheduling") and not session.pending:
            self.state.finish()

    def snapshot(self, session: Session, max_turns: int | None = None) -> dict[str, Any]:
        """Return the state of the chat, with the last turns only if a client asks for that."""
        fields = self.state.fields()
        if max_turns is not None and len(fields["turns"]) > max_turns:
            first = len(fields["turns"]) - max_turns
            fields = {**fields, "turns": fields["turns"][first:], "turnsNextCursor": str(first)}
        for id, (kind, message) in self._pending.items():
            pending = {"id": id, "message": message}
            if kind == "steering":
                fields["steeringMessage"] = pending
            else:
                fields.setdefault("queuedMessages", []).append(pending)
        return {**catalog.chat_summary(session), **fields}

    def older_turns(self, cursor: str, count: int) -> Action:
        """Return the action that loads the turns before those that a client has."""
        end = int(cursor)
        start = max(0, end - count)
        action: Action = {"type": "chat/turnsLoaded", "turns": self.state.turns[start:end]}
        return {**action, **({"turnsNextCursor": str(start)} if start else {})}

    async def follow(self) -> None:
        """Send what happens after the snapshot, without end."""
        follower = self._hub.history.follow(
            self._principal, self._session_id, self._last_seq, deltas=True
        )
        status_check = asyncio.ensure_future(self._check_status())
        try:
            async with aclosing(follower) as items:
                async for item in items:
                    self._is_silent = False
                    await self._receive(item)
        finally:
            status_check.cancel()
            await asyncio.gather(status_check, return_exceptions=True)

    async def _check_status(self) -> None:
        """Look whether another tool's turn has ended, while nothing arrives."""
        while True:
            self._is_silent = True
            await asyncio.sleep(STATUS_CHECK_SECONDS)
            if self._is_silent and self.state.active is not None:
                with suppress(SegueError):
                    await self._end_if_idle()

    async def _receive(self, item: Event | Delta) -> None:
        if isinstance(item, Delta):
            actions = self.state.add_delta(item) if item.thread is None else []
        elif item.body.thread is None:
            await self._begin_queued(item.id)
            actions = self.state.apply(item)
        else:
            return
        for action in actions:
            await self._act(self.uri, action)
        if isinstance(item, Event) and isinstance(item.body, InfoChanged):
            await self._rename(item.body.title)

    async def _rename(self, title: object) -> None:
        """Send a title that the session got elsewhere."""
        if not isinstance(title, str) or title == self.title:
            return
        self.title = title
        session = session_uri(self._session_id)
        await self._act(session, {"type": "session/titleChanged", "title": title})
        changed = {"type": "session/chatUpdated", "chat": self.uri, "changes": {"title": title}}
        await self._act(session, changed)

    async def _end_if_idle(self) -> None:
        """End a turn of another tool, whose files do not say that it has ended."""
        session = await self._hub.sessions.get(self._principal, self._session_id)
        if session.owner != OWN and session.status == "idle":
            for action in self.state.finish():
                await self._act(self.uri, action)

    def queue(self, id: str, message: Any, *, kind: str) -> None:
        """Show a message that waits for its turn. segue steers no turn, so `steering` waits too."""
        self._pending[id] = (kind, message)

    def take_from_queue(self, id: str) -> str | None:
        """Remove a waiting message, and return its kind; None if it does not wait."""
        kind, _ = self._pending.pop(id, (None, None))
        return kind

    async def _begin_queued(self, event_id: str) -> None:
        """Remove a message from the queue when its turn begins."""
        id = self._client_ids.get(event_id, event_id)
        if (kind := self.take_from_queue(id)) is not None:
            removed = {"type": "chat/pendingMessageRemoved", "kind": kind, "id": id}
            await self._act(self.uri, removed)


async def read_thread(hub: Hub, principal: Principal, session: Session, thread_id: str) -> Action:
    """Return the state of a subagent's chat. Raises NotFound if the session has none."""
    threads = await hub.history.threads(principal, session.id)
    thread = next((candidate for candidate in threads if candidate.id == thread_id), None)
    if thread is None:
        raise NotFound(f"session {session.id} has no subagent {thread_id!r}")
    state = ChatState(session.id)
    async for event in hub.history.thread_events(principal, session.id, thread_id):
        state.apply(event)
    state.finish()
    return {**catalog.thread_summary(session, thread), **state.fields()}
