"""Append the events of one turn under its lease."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from segue.hub.history.follow import LiveUpdates, Name
from segue.hub.turns.attribution import TurnRequests
from segue.model.errors import LeaseLost
from segue.model.event import Drafts, Event
from segue.model.session import Session
from segue.store.base import InboxItem, Lease, Store, finished_messages


class TurnWriter:
    """The writes of one turn, and the session's row after the last of them."""

    def __init__(self, store: Store, live: LiveUpdates, lease: Lease) -> None:
        self._store = store
        self._live = live
        self._lease = lease
        self._row: Session | None = None
        self._is_closed = False
        self.name: Name = (lease.workspace, lease.session)
        self.items: list[InboxItem] = []  # the prompts of this turn
        self.requests = TurnRequests()

    @property
    def turn_id(self) -> str:
        """The id of the turn, which is that of its first prompt."""
        return self.items[0].id

    @property
    def has_row(self) -> bool:
        """True once the turn has begun."""
        return self._row is not None

    @property
    def row(self) -> Session:
        """The session's row as of the last event that this turn stored."""
        assert self._row is not None  # the turn has begun
        return self._row

    def begin(self, items: Sequence[InboxItem], row: Session) -> None:
        """Begin to write the events of the turn of these prompts."""
        self.items, self._row = list(items), row

    def close(self) -> None:
        """Let the agent write nothing more: the turn has ended, or its lease is lost."""
        self._is_closed = True

    def check_open(self) -> None:
        """Raise LeaseLost if the agent may write nothing more."""
        if self._is_closed:
            raise self._turn_ended()

    async def change(
        self,
        decide: Callable[[Session], Drafts],
        consume: Sequence[int] = (),
        begin: Sequence[InboxItem] = (),
    ) -> tuple[Session, list[Event]]:
        """Append the events that are decided on the current row, attributed to this turn."""
        turn_id = self.turn_id if self.items else begin[0].id
        row, events = await self._store.change(
            *self.name,
            lambda current: self.requests.attribute(decide(current), turn_id),
            lease=self._lease,
            consume=consume,
            begin=begin,
        )
        self.requests.add(events)
        # The agent and the inbox change the session at the same time.
        if self._row is None or row.last_seq >= self._row.last_seq:
            self._row = row
        return row, events

    async def change_open_turn(self, decide: Callable[[Session], Drafts]) -> list[Event]:
        """Append events of the agent, unless the turn has ended.

        The store may still run a change whose caller was cancelled, after the end of the turn.
        """

        def decide_on_open_turn(row: Session) -> Drafts:
            if row.turn != self.turn_id:
                raise self._turn_ended()
            return decide(row)

        _, events = await self.change(decide_on_open_turn)
        return events

    def finish_messages(self, events: Sequence[Event] | None = None) -> None:
        """Drop the deltas of the messages among these events; None drops all of the session's."""
        self._live.finish_messages(self.name, None if events is None else finished_messages(events))

    def _turn_ended(self) -> LeaseLost:
        return LeaseLost("this turn has ended", session=self._lease.session)
