"""The store's interface, and the values that pass through it.

A store knows sessions, events and what turns need (leases, the inbox, deltas). Every call is
scoped by a workspace. `change` is the one way a session's history grows: it reads the row, lets
the caller decide on events, folds them in and writes both, in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from segue.model import ids, projection
from segue.model.checkpoint import Checkpoint
from segue.model.cursor import ChangePoint
from segue.model.event import Body, Delta, Draft, Drafts, Event
from segue.model.principal import ApiKey
from segue.model.query import Position, Query, SearchHit
from segue.model.record import Record
from segue.model.search_text import Term
from segue.model.session import Session, SessionState

EventDecider = Callable[[Session], Drafts]
InboxKind = Literal["prompt", "cancel", "answer", "result"]

MAX_SEQ = (1 << 24) - 1  # events in one session


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to run a session's turns until `expires_at`. Later holders have higher epochs."""

    workspace: str
    session: str
    holder: str
    epoch: int
    expires_at: int


class InboxItem(msgspec.Struct, frozen=True, kw_only=True):
    """Something a session's holder is asked to do; `number` gives the order of arrival."""

    number: int
    session: str
    kind: InboxKind
    id: str
    at: int
    body: dict[str, Any] = {}


class Signal(NamedTuple):
    """Something happened to a session, here or in another process."""

    kind: Literal["events", "inbox", "deltas", "purged"]
    workspace: str
    session: str


class Store(Protocol):
    """What all stores do.

    Methods that take an unknown session raise NotFound; but `get` and `lease_of` say None, and
    `witness` and `occurrences` find nothing in it.
    """

    async def close(self) -> None: ...

    def vitals(self) -> dict[str, int]:
        """How the store is doing: `commits` so far, and writes in the `queue`, where it knows."""
        return {}

    @property
    def read_only(self) -> bool:
        """Return whether the store can only be read; every write raises StoreReadOnly then."""
        return False

    async def cursor_key(self) -> bytes:
        """The secret that signs this store's cursors."""

    async def check(self) -> list[str]:
        """What is wrong with the store's own structure, a sentence each; nothing is changed."""

    # sessions and their history

    async def create(
        self, workspace: str, id: str, drafts: Drafts, *, checkpoint: Checkpoint | None = None
    ) -> Session:
        """Create a session from its first events. Raises Conflict if the id exists.

        `checkpoint` is written in the same transaction, here and in `change` and `load`. If its
        `seq` is 0, it gets the seq of the session's last event.
        """

    async def get(self, workspace: str, id: str) -> Session | None: ...
    async def existing_ids(self, workspace: str, ids: Sequence[str]) -> set[str]:
        """Which of these ids the store holds, on any state."""

    async def in_id_range(self, workspace: str, low: str, high: str, limit: int) -> list[Session]:
        """Sessions with ids from `low` to `high`, both included, by id, on any state."""

    async def directories(self, workspace: str) -> set[str]:
        """The directories that have sessions, those in the trash aside."""

    async def change(
        self,
        workspace: str,
        id: str,
        decide: EventDecider,
        *,
        lease: Lease | None = None,
        consume: Sequence[int] = (),
        checkpoint: Checkpoint | None = None,
    ) -> tuple[Session, list[Event]]:
        """Append what `decide` says of the current row; all of it or nothing.

        With `lease`, only while it is held (LeaseLost otherwise). `consume` names inbox items that
        are used up by this change (Conflict if one is gone). `decide` may be called again after a
        lost race, and must be quick and pure.
        """

    async def load(
        self,
        workspace: str,
        id: str,
        events: Iterable[Event],
        *,
        checkpoint: Checkpoint | None = None,
    ) -> Session:
        """A whole history as it was elsewhere; Conflict if the id is taken.

        The events are gone through twice, and never held all at once.
        For `sweep` it is as old as can be: a source may have listed it before, and a list that
        is being paged through must not lose it by its being copied here.
        """

    async def fork(
        self, workspace: str, id: str, new_id: str, upto: int, created: Draft, tail: EventDecider
    ) -> Session:
        """A new session: `created`, copies of the events up to `upto`, then what `tail` adds.

        The copies are `copied`: they have ids of their own.
        """

    async def checkpoint(self, workspace: str, id: str) -> Checkpoint | None:
        """Return how far a session's transcript has been imported; None if it was not imported.

        A fork has no checkpoint.
        """

    async def purge(self, workspace: str, id: str, guard: Callable[[Session], None]) -> None:
        """Remove a session and all that belongs to it, unless `guard` raises."""

    async def events(
        self,
        workspace: str,
        id: str,
        *,
        after: int = 0,
        before: int | None = None,
        types: Sequence[str] = (),
        since: int | None = None,
        until: int | None = None,
        limit: int = 1000,
        backward: bool = False,
    ) -> list[Event]:
        """Events with `after < seq < before`, of these types, within these times, in order."""

    async def locate(self, workspace: str, id: str, event_id: str) -> int | None:
        """The seq of an event."""

    # lists

    async def page(
        self, workspace: str, query: Query, after: Position | None = None, backward: bool = False
    ) -> list[Session]:
        """Up to `query.limit` sessions after a position, in the query's order.

        `backward` gives those just before the position, still in the query's order.
        """

    async def change_point(self, workspace: str) -> ChangePoint:
        """The present moment in the store's changes."""

    async def sweep(
        self, workspace: str, query: Query, mark: ChangePoint, after: str
    ) -> list[Session]:
        """Sessions that changed since `mark` and are older than it, by id, from above `after`."""

    async def ranked(self, workspace: str, query: Query) -> list[SearchHit]:
        """The sessions that match `query.text` best, best first."""

    async def newest_matches(
        self, workspace: str, sessions: Sequence[Session], terms: Sequence[Term]
    ) -> list[Event | None]:
        """For each session, the newest event in which one of the terms occurs."""

    async def occurrences(
        self, workspace: str, id: str, terms: Sequence[Term], before: int | None, limit: int
    ) -> list[int]:
        """The seqs of a session's events in which every term occurs, the newest first."""

    async def stale(
        self, workspace: str, state: SessionState, before: int, limit: int
    ) -> list[Session]:
        """Sessions left alone (live) or shelved since before a time; oldest first."""

    # turns

    async def acquire(self, workspace: str, id: str, holder: str, ttl: int) -> Lease | None:
        """The lease, or None while another holder has it. One's own lease is renewed."""

    async def renew(self, holder: str, ttl: int) -> set[tuple[str, str]]:
        """Extend a holder's leases that are still held; the (workspace, session) of each."""

    async def release(self, lease: Lease) -> None: ...
    async def lease_of(self, workspace: str, id: str) -> Lease | None:
        """The lease on a session, expired or not."""

    async def expired(self) -> list[Lease]:
        """Leases whose holders are gone."""

    async def put_inbox(
        self, workspace: str, id: str, kind: InboxKind, item_id: str, body: dict[str, Any]
    ) -> InboxItem: ...
    async def inbox(self, workspace: str, id: str) -> list[InboxItem]: ...
    async def drop_inbox(self, workspace: str, id: str, numbers: Sequence[int]) -> set[int]:
        """Remove items; which of them were still there."""

    async def waiting(self, before: int) -> list[tuple[str, str]]:
        """(workspace, session) of prompts that arrived before a time and that nobody holds."""

    async def put_deltas(self, lease: Lease, deltas: Sequence[Delta]) -> None: ...
    async def deltas(self, workspace: str, id: str) -> list[Delta]:
        """The pieces of messages still being written, in order."""

    async def ack(self, workspace: str, id: str, seq: int) -> None:
        """Note that somebody has been told of a session's events up to this one.

        It need not survive a crash, and no event comes of it.
        """

    async def acked_seq(self, workspace: str, id: str) -> int:
        """The highest seq that `tell` was given; 0 if none."""

    def watch(self, listener: Callable[[Signal], None]) -> Callable[[], None]:
        """Tell `listener` of changes until the returned function is called."""

    # beside the sessions

    async def put_key(self, key: ApiKey) -> None: ...
    async def find_key(self, digest: bytes) -> ApiKey | None: ...
    async def keys(self, workspace: str | None = None) -> list[ApiKey]: ...
    async def revoke_key(self, workspace: str, id: str, at: int) -> bool: ...

    async def put_record(
        self, record: Record, *, amend: bool = False, only: bool = False
    ) -> Record:
        """Keep a new version; Conflict unless `record.version` is the next one.

        `amend` replaces the newest version instead (to archive it, say), and must name it. A new
        version brings nothing back that is archived: Conflict. With `only`, the earlier versions
        are forgotten.
        """

    async def put_records(self, records: Sequence[Record], drop: Sequence[Record] = ()) -> None:
        """Keep new versions of some records and remove others whole: all of it or nothing.

        Conflict unless each is the next version, and each to be dropped is the newest.
        """

    async def get_record(
        self, workspace: str, kind: str, id: str, version: int | None = None
    ) -> Record | None: ...
    async def records(
        self,
        workspace: str,
        kind: str,
        *,
        after: Position | None = None,
        archived: bool = False,
        limit: int = 50,
    ) -> list[Record]:
        """The newest versions, newest record first."""

    async def put_part(self, workspace: str, file: str, number: int, data: bytes) -> None:
        """Keep a part of a file, counted from 0; it is safe once the file's record is put."""

    async def part(self, workspace: str, file: str, number: int) -> bytes | None: ...
    async def drop_parts(self, workspace: str, file: str) -> None: ...
    async def drop_strays(self, before: int) -> None:
        """Forget what was begun before a time and has no record of kind `file` or `archive`."""

    async def set_overlay(
        self, workspace: str, source: str, id: str, patch: dict[str, Any]
    ) -> None: ...
    async def overlays(self, workspace: str, source: str) -> dict[str, dict[str, Any]]: ...
    async def set_setting(self, workspace: str, name: str, value: Any) -> None: ...
    async def settings(self, workspace: str) -> dict[str, Any]: ...


# What every store does with drafts before it writes them.


def start_session(workspace: str, id: str, drafts: Drafts, at: int) -> tuple[Session, list[Event]]:
    """A new session's row and events."""
    events = number_drafts(drafts, 0, at)
    return projection.project(workspace, id, events), events


def append_drafts(session: Session, drafts: Drafts, at: int) -> tuple[Session, list[Event]]:
    """A session's row and new events, after some drafts."""
    events = number_drafts(drafts, session.last_seq, at)
    for event in events:
        session = projection.apply(session, event)
    return session, events


def settle_checkpoint(checkpoint: Checkpoint, session: Session) -> Checkpoint:
    """Return the checkpoint as it is stored: without a seq, it gets that of the last event."""
    return checkpoint if checkpoint.seq else replace(checkpoint, seq=session.last_seq)


# Events that are looked for by their ids: other events name them, or count them once.
TYPES_THAT_KEEP_IDS = ("model_asked", "model_called", "permission_asked")


def fork_event(event: Event, fork: str) -> Event:
    """An event as a fork takes it over: under an id of its own."""
    if event.type in TYPES_THAT_KEEP_IDS:
        return event
    return replace(event, id=ids.fork_event_id(fork, event.id))


def number_drafts(drafts: Drafts, last: int, at: int) -> list[Event]:
    """Drafts with their places, ids and times."""
    # By id, so that one given twice is added once.
    events: dict[str, Event] = {}
    for draft in drafts:
        if isinstance(draft, Body):
            draft = Draft(body=draft)
        id = draft.id or ids.new_id()
        moment = at if draft.at is None else draft.at
        seq = last + len(events) + 1
        events.setdefault(id, Event(seq=seq, id=id, at=moment, body=draft.body))
    return list(events.values())
