"""Follow the list of sessions and single chats for one client."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

from segue.acp.rpc import RpcError
from segue.hub import Hub
from segue.model.errors import NotFound, SegueError
from segue.model.event import (
    ConfigChanged,
    Delta,
    Event,
    InfoChanged,
    ThreadChanged,
    ThreadStarted,
    UserMessage,
)
from segue.model.principal import Principal
from segue.model.query import Query
from segue.model.session import OWN, Session

from . import catalog
from .chat import ChatState, message_fields
from .config import session_config
from .forms import Forms
from .protocol import ROOT, Action, parse_channel, session_uri
from .questions import Question

# Of a client that asks for no page: the sessions in the answer, and with those sent after it.
FIRST_LISTED, MAX_LISTED = 100, 500
# VS Code shows only the sessions of its folder, and does not say which folder that is. So of
# directories with fewer sessions, more are sent, if they are among the sessions that are read.
MAX_OF_DIRECTORY, MAX_READ = 100, 20_000
REST_SECONDS = 0.05  # between the answer and further pages, for other requests
DIRECTORIES_SECONDS = 2.0  # before sessions of other directories, when a window has begun
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
                directory = tuple(catalog.directories(session)[:1])
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
            if before != catalog.summary(session, is_read=True)["modifiedAt"]:
                self._unread.add(session.id)
            await self._send_changes(session)
        elif session.last_seq > 1:  # a session without any message is not listed
            await self._add(session)

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
    """The chat of a session, as one client has it."""

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        session_id: str,
        uri: str,
        act: Act,
        client_ids: Mapping[str, str],
        forms: Forms,
    ) -> None:
        self._hub = hub
        self._principal = principal
        self._session_id = session_id
        self._act = act
        self._client_ids = client_ids
        self._forms = forms
        self._name = (principal.workspace, session_id)
        self._last_seq = 0
        self.uri = uri
        self.state = ChatState(session_id, client_ids)
        self.title: str | None = None  # as the client knows it
        self._is_silent = True  # since the status was checked
        self._pending: dict[str, tuple[str, Any]] = {}  # the kind and message of each, by id
        self._stored: set[str] = set()  # the ids of waiting messages that the store had last
        self.settings: dict[str, Any] = {}  # as the client knows them

    @property
    def session_uri(self) -> str:
        """The address of the session that has the chat, which is another one for a fork."""
        with suppress(RpcError):
            return session_uri(parse_channel(self.uri).session_id)
        return session_uri(self._session_id)

    async def load(self, session: Session) -> None:
        """Read the session's conversation so far."""
        self._last_seq, self.title = session.last_seq, session.title
        self.settings = session_config(session)["values"]
        async for event in self._hub.history.conversation(self._principal, self._session_id):
            if event.seq > self._last_seq:
                break
            if event.body.thread is None:
                self.state.apply(event)
        if session.status not in ("running", "rescheduling") and not session.pending:
            self.state.finish()
        for question in self._forms.of(self._name):
            self.state.ask_question(question)
        await self._update_queue()

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
        return {**catalog.chat_summary(session), "resource": self.uri, **fields}

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
            with self._forms.viewed_by(self._name, self):
                async with aclosing(follower) as items:
                    async for item in items:
                        self._is_silent = False
                        await self._receive(item)
                        await self._show_forms()
        finally:
            status_check.cancel()
            await asyncio.gather(status_check, return_exceptions=True)

    async def _check_status(self) -> None:
        """Look what waits, and whether another tool's turn has ended while nothing arrives."""
        while True:
            self._is_silent = True
            await asyncio.sleep(STATUS_CHECK_SECONDS)
            with suppress(SegueError):
                if self.state.active is not None or self._pending:
                    for action in await self._update_queue():
                        await self._act(self.uri, action)
                if self._is_silent and self.state.active is not None:
                    await self._end_if_idle()

    async def _receive(self, item: Event | Delta) -> None:
        if isinstance(item, Delta):
            actions = self.state.add_delta(item) if item.thread is None else []
        elif item.body.thread is None:
            await self._begin_queued(item.id)
            actions = self.state.apply(item)
        else:
            actions = []
        for action in actions:
            await self._act(self.uri, action)
        if isinstance(item, Event):
            await self._change_session(item)

    async def _change_session(self, event: Event) -> None:
        """Send what an event changes outside of the chat: title, settings, subagents."""
        match event.body:
            case InfoChanged(title=title):
                await self._rename(title)
            case ConfigChanged():
                await self._change_settings()
            case ThreadStarted(id=thread):
                await self._send_subagent(thread)
            case ThreadChanged(thread=str(thread)):
                await self._send_subagent(thread)

    async def _change_settings(self) -> None:
        session = await self._hub.sessions.get(self._principal, self._session_id)
        values = session_config(session)["values"]
        changed = {
            name: value for name, value in values.items() if self.settings.get(name) != value
        }
        self.settings = values
        if changed:
            action = {"type": "session/configChanged", "config": changed}
            await self._act(session_uri(self._session_id), action)

    async def _send_subagent(self, thread_id: str) -> None:
        """Send the entry of a subagent's chat, which clients add or replace."""
        session = await self._hub.sessions.get(self._principal, self._session_id)
        for thread in await self._hub.history.threads(self._principal, session.id):
            if thread.id == thread_id:
                entry = catalog.thread_summary(session, thread)
                action = {"type": "session/chatAdded", "summary": entry}
                await self._act(session_uri(session.id), action)

    # Forms.

    async def show(self, question: Question) -> None:
        """Show a form of the agent, once the client has its turn."""
        await self._show_forms()

    async def hide(self, question: Question, response: str, answers: dict[str, Any]) -> None:
        """Show how a form was answered."""
        for action in self.state.end_question(question, response, answers):
            await self._act(self.uri, action)

    async def _show_forms(self) -> None:
        for question in self._forms.of(self._name):
            if self.state.question(question.id) is None:
                for action in self.state.ask_question(question):
                    await self._act(self.uri, action)

    async def _rename(self, title: object) -> None:
        """Send a title that the session got elsewhere."""
        if not isinstance(title, str) or title == self.title:
            return
        self.title = title
        session = session_uri(self._session_id)
        await self._act(session, {"type": "session/titleChanged", "title": title})
        changed = {"type": "session/chatUpdated", "chat": self.uri, "changes": {"title": title}}
        await self._act(self.session_uri, changed)

    async def _end_if_idle(self) -> None:
        """End a turn of another tool, whose files do not say that it has ended."""
        session = await self._hub.sessions.get(self._principal, self._session_id)
        # An event that arrived meanwhile may have begun the next turn.
        if session.owner != OWN and session.status == "idle" and self._is_silent:
            for action in self.state.finish():
                await self._act(self.uri, action)

    # Waiting messages.

    async def _update_queue(self) -> list[Action]:
        """Compare the messages that wait with the store's, and return the actions."""
        try:
            waiting = await self._hub.turns.queued_messages(self._principal, self._session_id)
        except NotFound:
            return []  # a session of another tool has no queue
        stored = {self._client_ids.get(id, id): content for id, content in waiting}
        actions: list[Action] = []
        for id in self._stored - stored.keys():
            if (kind := self.take_from_queue(id)) is not None:
                actions.append({"type": "chat/pendingMessageRemoved", "kind": kind, "id": id})
        for id, content in stored.items():
            if id not in self._pending:
                message = message_fields(UserMessage(content=content))
                self.queue(id, message, kind="queued")
                shown = {"kind": "queued", "id": id, "message": message}
                actions.append({"type": "chat/pendingMessageSet", **shown})
        self._stored = set(stored)
        return actions

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
