"""Follow the chat of a session for one client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

from segue.acp.rpc import RpcError
from segue.hub import Hub
from segue.interfaces.ahp.chat.messages import message_fields
from segue.interfaces.ahp.chat.questions import Question
from segue.interfaces.ahp.chat.state import ChatState
from segue.interfaces.ahp.config import session_config
from segue.interfaces.ahp.protocol import Action, parse_channel, session_uri
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
from segue.model.session import OWN, Session

from . import rows
from .forms import Forms

STATUS_CHECK_SECONDS = 2.0  # whether another tool still works on a session that is followed

Act = Callable[[str, Action], Awaitable[None]]


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
        self.next_cursor: str | None = None  # of the turns before those that the client has

    @property
    def local(self) -> bool:
        """Whether the client is the local user's."""
        return self._principal.local

    @property
    def session_uri(self) -> str:
        """The address of the session that has the chat, which is another one for a fork."""
        with suppress(RpcError):
            return session_uri(parse_channel(self.uri).session_id)
        return session_uri(self._session_id)

    async def load(self, session: Session, since: int | None = None) -> None:
        """Read the session's conversation so far, up to the first turn after the time `since`.

        VS Code draws a turn that it did not see before only if it sees how the turn begins.
        """
        self._last_seq, self.title = session.last_seq, session.title
        self.settings = session_config(session)["values"]
        is_running = session.status in ("running", "rescheduling")
        async for event in self._hub.history.conversation(self._principal, self._session_id):
            if event.seq > self._last_seq:
                break
            if event.body.thread is not None:
                continue
            if since is not None and event.at >= since and isinstance(event.body, UserMessage):
                self._last_seq, is_running = event.seq - 1, False
                break
            self.state.apply(event)
        if not is_running and not session.pending:
            self.state.finish()
        for question in self._forms.of(self._name, local=self.local):
            self.state.ask_question(question)
        await self._update_queue()

    def snapshot(self, session: Session, max_turns: int | None = None) -> dict[str, Any]:
        """Return the state of the chat, with the last turns only if a client asks for that."""
        fields = self.state.fields()
        if max_turns is not None and len(fields["turns"]) > max_turns:
            first = len(fields["turns"]) - max_turns
            self.next_cursor = str(first)
            turns = fields["turns"][first:]
            fields = {**fields, "turns": turns, "turnsNextCursor": self.next_cursor}
        for id, (kind, message) in self._pending.items():
            pending = {"id": id, "message": message}
            if kind == "steering":
                fields["steeringMessage"] = pending
            else:
                fields.setdefault("queuedMessages", []).append(pending)
        return {**rows.chat_summary(session), "resource": self.uri, **fields}

    def older_turns(self, count: int) -> Action:
        """Return the action that loads the turns before those that the client has."""
        end = int(self.next_cursor or 0)
        start = max(0, end - count)
        self.next_cursor = str(start) if start else None
        action: Action = {"type": "chat/turnsLoaded", "turns": self.state.turns[start:end]}
        return {**action, **({"turnsNextCursor": self.next_cursor} if start else {})}

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
            if item.thread is None:
                for action in self.state.add_delta(item):
                    await self._act(self.uri, action)
            return
        if item.body.thread is None:
            await self._begin_queued(item.id)
            for action in self.state.apply(item):
                await self._act(self.uri, action)
        await self._change_session(item)
        await self._show_forms()

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
                entry = rows.thread_summary(session, thread)
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
        for question in self._forms.of(self._name, local=self.local):
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
