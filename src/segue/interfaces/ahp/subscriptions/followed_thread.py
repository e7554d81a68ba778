"""Follow the chat of a subagent for one client, which can only be read."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

from segue.hub import Hub
from segue.hub.history.threads import thread_event
from segue.interfaces.ahp.chat.state import ChatState
from segue.interfaces.ahp.protocol import Action
from segue.model.errors import NotFound, SegueError
from segue.model.event import Delta, Event, ThreadChanged
from segue.model.principal import Principal
from segue.model.session import Session, Thread

from . import rows
from .followed_chat import STATUS_CHECK_SECONDS, Act


class FollowedThread:
    """The chat of a subagent, as one client has it.

    A subagent that segue runs is followed by the events of its session. Those of other tools have
    files of their own, which are read again while their session changes.
    """

    def __init__(
        self, hub: Hub, principal: Principal, session_id: str, thread_id: str, uri: str, act: Act
    ) -> None:
        self._hub = hub
        self._principal = principal
        self._session_id = session_id
        self._thread_id = thread_id
        self._act = act
        self._last_seq = 0
        self._known: set[str] = set()  # the ids of the events that the client has
        self._is_own = False
        self._changed_at = 0  # when the session changed, as far as the client has it
        self.uri = uri
        self.state = ChatState(session_id)

    async def load(self, session: Session) -> Action:
        """Return the state of the chat. Raises NotFound if the session has no such subagent."""
        thread = await self._find(session)
        self._is_own, self._last_seq = thread.is_own, session.last_seq
        self._changed_at = session.updated_at
        await self._read()
        if not self._may_continue(session, thread):
            self.state.finish()
        summary = rows.thread_summary(session, thread)
        return {**summary, "resource": self.uri, **self.state.fields()}

    async def follow(self) -> None:
        """Send what happens after the state that `load` returned, without end."""
        if not self._is_own:
            while True:
                await asyncio.sleep(STATUS_CHECK_SECONDS)
                with suppress(SegueError):
                    await self._poll()
        follower = self._hub.history.follow(
            self._principal, self._session_id, self._last_seq, deltas=True
        )
        async with aclosing(follower) as items:
            async for item in items:
                await self._receive(item)

    async def _find(self, session: Session) -> Thread:
        """Return the subagent. VS Code writes its id, as a part of an address, in lower case."""
        for thread in await self._hub.history.threads(self._principal, session.id):
            if thread.id.lower() == self._thread_id.lower():
                self._thread_id = thread.id
                return thread
        raise NotFound(f"session {session.id} has no subagent {self._thread_id!r}")

    def _may_continue(self, session: Session, thread: Thread) -> bool:
        if thread.is_own:
            return rows.is_running(session, thread)
        return session.status in ("running", "rescheduling")

    async def _read(self) -> list[Action]:
        """Read the events that the client does not have, and return the actions."""
        actions: list[Action] = []
        events = self._hub.history.thread_events(self._principal, self._session_id, self._thread_id)
        async for event in events:
            if event.id not in self._known and not (self._is_own and event.seq > self._last_seq):
                self._known.add(event.id)
                actions += self.state.apply(event)
        return actions

    async def _poll(self) -> None:
        session = await self._hub.sessions.get(self._principal, self._session_id)
        if session.updated_at == self._changed_at and self.state.active is None:
            return
        self._changed_at = session.updated_at
        actions = await self._read()
        if session.status not in ("running", "rescheduling"):
            actions += self.state.finish()
        await self._send(actions)

    async def _receive(self, item: Event | Delta) -> None:
        if isinstance(item, Delta):
            if item.thread == self._thread_id:
                await self._send(self.state.add_delta(item))
            return
        event = thread_event(item, self._thread_id)
        if event is None or event.id in self._known:
            return
        self._known.add(event.id)
        actions = self.state.apply(event)
        if isinstance(event.body, ThreadChanged) and event.body.status != "running":
            actions += self.state.finish()
        await self._send(actions)

    async def _send(self, actions: list[Action]) -> None:
        for action in actions:
            await self._act(self.uri, action)
