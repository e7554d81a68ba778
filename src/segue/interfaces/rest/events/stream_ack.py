"""Decide which turn a new stream replays, and record what streams have delivered.

Clients send a message and then open a stream to read the answer. A quick turn may be over by then,
so a stream that opens during a turn, or shortly after it, starts with that turn. It must not
replay a turn whose end a client has already received: the client would take it for the end of its
next turn. The store holds the ack, the seq of the last end that was delivered, because the next
stream may be opened by another worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from segue.hub import Hub
from segue.interfaces.rest.schemas.session import status
from segue.model import clock
from segue.model.errors import NotFound, SegueError
from segue.model.event import Event, StatusChanged
from segue.model.lifecycle import RUNNING_STATUSES
from segue.model.principal import Principal
from segue.model.session import Session

MAX_CACHED_ACKS = 10_000
# How long after its start a turn that has ended is still replayed.
REPLAY_WINDOW = 5 * clock.SECOND
_RECENT_STATUS_CHANGES = 50


class StreamAcks:
    """The seq of the last end of a turn that clients have received, for each session."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._cached: dict[tuple[str, str], int] = {}

    async def record(self, principal: Principal, session_id: str, seq: int) -> None:
        """Record that a client receives the end of a turn.

        Several streams deliver the same end at the same time; only the first writes to the store.
        On a read-only store only this process knows the ack.
        """
        key = (principal.workspace, session_id)
        if self._cached.get(key, 0) >= seq:
            return
        if len(self._cached) >= MAX_CACHED_ACKS:
            self._cached.clear()
        self._cached[key] = seq
        if self._hub.store.read_only:
            return
        with suppress(SegueError):  # the session was deleted, or the store just became read-only
            await self._hub.history.ack(principal, session_id, seq)

    async def acked_seq(self, principal: Principal, session_id: str) -> int:
        """Return the last ack of a session, or 0."""
        cached = self._cached.get((principal.workspace, session_id), 0)
        return max(cached, await self._hub.history.acked_seq(principal, session_id))

    async def replay_start(self, principal: Principal, session: Session) -> int | None:
        """Return the first seq of the turn that a new stream replays.

        Returns None if the stream starts with the next event.
        """
        if status(session) == "terminated":
            return None
        if session.turn is not None and session.status != "idle":
            return await self._turn_start(principal, session, session.turn)
        changes = await self._hub.history.events(
            principal,
            session.id,
            types=("status_changed",),
            limit=_RECENT_STATUS_CHANGES,
            backward=True,
        )
        last = changes[-1].body if changes else None
        if isinstance(last, StatusChanged) and last.status in RUNNING_STATUSES and last.turn:
            # The turn's process died. Another process is about to end the turn.
            return await self._turn_start(principal, session, last.turn)
        acked = await self.acked_seq(principal, session.id)
        if _last_idle(changes) <= acked:
            return None
        if session.turn is not None:  # the turn waits for an answer to a question
            return await self._turn_start(principal, session, session.turn)
        if await self._has_waiting_prompt(principal, session):
            return None  # the next turn is about to start; the stream will show all of it
        turn = _recent_turn(changes, acked)
        return None if turn is None else await self._turn_start(principal, session, turn)

    async def _has_waiting_prompt(self, principal: Principal, session: Session) -> bool:
        if await self._hub.sessions.owner(principal, session.id) is not None:
            return False
        return bool(await self._hub.turns.queued(principal, session.id))

    async def _turn_start(self, principal: Principal, session: Session, turn: str) -> int:
        """Return the seq of a turn's first event, which is stored just before its prompt."""
        try:
            prompt_seq = await self._hub.history.locate(principal, session.id, turn)
        except NotFound:
            return session.last_seq + 1
        return max(1, prompt_seq - 1)


def _last_idle(changes: Sequence[Event]) -> int:
    """Return the seq of the last change to idle, or 0."""
    for event in reversed(changes):
        if isinstance(event.body, StatusChanged) and event.body.status == "idle":
            return event.seq
    return 0


def _recent_turn(changes: Sequence[Event], acked: int) -> str | None:
    """Return the last turn, if it started within REPLAY_WINDOW and was not acked."""
    for event in reversed(changes):
        body = event.body
        if isinstance(body, StatusChanged) and body.status == "running" and body.turn is not None:
            is_recent = event.at > clock.now() - REPLAY_WINDOW and event.seq >= acked
            return body.turn if is_recent else None
    return None
