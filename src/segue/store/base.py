"""The interface of stores, and the steps that all stores share.

A store holds sessions, events and the state of turns (leases, the inbox, deltas). Every call is
scoped by a workspace. `change` is the only method that appends events: in one transaction it reads
the session row, lets the caller decide which events to append, projects them onto the row and
writes both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Unpack

import msgspec
from msgspec.structs import replace

from segue.model import errors, ids, projection
from segue.model.cursor import ChangePoint
from segue.model.event import Body, Delta, Draft, Drafts, Event
from segue.model.principal import ApiKey
from segue.model.query import EventWindow, Position, Query, SearchHit, WindowOptions
from segue.model.record import Record
from segue.model.search_text import Term
from segue.model.session import Checkpoint, Session, SessionState

if TYPE_CHECKING:  # a list of sessions does not need them
    from segue.model.webhooks.delivery import Delivery
    from segue.model.webhooks.notices import Notice

EventDecider = Callable[[Session], Drafts]
# A prompt whose turn has begun stays in the inbox as `turn` until the turn ends.
InboxKind = Literal["prompt", "turn", "cancel", "answer", "result"]

MAX_SEQ = (1 << 24) - 1  # events in one session
ENDED_HOLDER = "ended"  # the holder of a begun turn that needs a process which has stopped
WEBHOOK_KIND = "webhook"  # the kind of the record of a webhook
SHARE_KIND = "share"  # the kind of the record of a session's share link
# Kinds of records that `usage` counts. PostgreSQL's triggers name them too.
FILE_KINDS = ("file", "archive")
MEMORY_KIND_PREFIX = "memory:"
SCHEDULE_KIND = "schedule"


def share_record_id(session_id: str) -> str:
    """Return the id of the record of a session's share link."""
    return ids.derived_id("segue", SHARE_KIND, session_id)


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """One process's right to run a session's turns, until it is released or taken over.

    Each new holder gets a higher epoch. `renewals` rises while the holder is alive. No clock is
    involved: another process takes the lease over once it has seen no renewal for long enough.
    """

    workspace: str
    session: str
    holder: str
    epoch: int
    renewals: int = 0


class InboxItem(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a session's turns; `number` is the order of arrival.

    `holder` is the process that received it and acts on it; empty if any process may.
    """

    number: int
    session: str
    kind: InboxKind
    id: str
    at: int
    body: dict[str, Any] = {}
    holder: str = ""


class Usage(NamedTuple):
    """What a workspace uses of what quotas limit.

    `sessions` has those in the trash too. `files` are the records that `is_counted_file` names.
    `bytes` are those of the bodies of events, of all versions of records, and of files. `schedules`
    are the records of the kind SCHEDULE_KIND. `turns` run, wait for an answer or are in an inbox.
    """

    sessions: int = 0
    files: int = 0
    bytes: int = 0
    schedules: int = 0
    turns: int = 0


class Signal(NamedTuple):
    """A change to a session, made by this process or another one."""

    kind: Literal["events", "inbox", "deltas", "purged"]
    workspace: str
    session: str


class Store(Protocol):
    """The methods of every store.

    Methods raise NotFound for an unknown session. Exceptions: `get`, `checkpoint` and `lease_of`
    return None, and `newest_matches` and `occurrences` find no events.
    """

    async def close(self) -> None: ...

    def vitals(self) -> dict[str, int]:
        """Return counters for metrics: `commits` so far, and writes in the `queue`, if known."""
        return {}

    @property
    def read_only(self) -> bool:
        """Return whether the store can only be read; every write raises StoreReadOnly then."""
        return False

    async def cursor_key(self) -> bytes:
        """Return the secret that signs this store's cursors."""

    async def probe_write(self) -> None:
        """Write and commit a value that replaces the last one. Raises StoreError if that fails."""

    async def check(self) -> list[str]:
        """Return what is wrong with the store's own structure, one sentence each."""

    # sessions and their history

    async def create(
        self, workspace: str, id: str, drafts: Drafts, *, checkpoint: Checkpoint | None = None
    ) -> Session:
        """Create a session from its first events. Raises Conflict if the id exists.

        `checkpoint` is written in the same transaction, here and in `change` and `load`.
        """

    async def get(self, workspace: str, id: str) -> Session | None: ...
    async def existing_ids(self, workspace: str, ids: Sequence[str]) -> set[str]:
        """Return the ids, out of `ids`, of sessions that the store has, in any state."""

    async def in_id_range(self, workspace: str, low: str, high: str, limit: int) -> list[Session]:
        """Return sessions with ids from `low` to `high`, both included, by id, in any state."""

    async def directories(self, workspace: str) -> set[str]:
        """Return the directories of all sessions that are not in the trash."""

    async def change(
        self,
        workspace: str,
        id: str,
        decide: EventDecider,
        *,
        lease: Lease | None = None,
        consume: Sequence[int] = (),
        begin: Sequence[InboxItem] = (),
        checkpoint: Checkpoint | None = None,
    ) -> tuple[Session, list[Event]]:
        """Append the events that `decide` returns for the current row, all or none.

        Returns the new row and the events that were added. Raises LeaseLost if `lease` is given
        and no longer held. `consume` lists inbox items that this change removes, `begin` prompts
        that become items of the kind `turn`, with the given bodies and holders; raises Conflict if
        one of them is gone. `decide` may be called again after a lost race, so it must be quick and
        pure.
        """

    async def load(
        self,
        workspace: str,
        id: str,
        events: Iterable[Event],
        *,
        checkpoint: Checkpoint | None = None,
    ) -> Session:
        """Create a session from a complete history. Raises Conflict if the id exists.

        `events` is iterated twice and never held in memory as a whole. `sweep` treats the session
        as older than every change point. A source may have listed the session before it was
        imported, and a client that pages through the list must still find it.
        """

    async def fork(
        self, workspace: str, id: str, new_id: str, upto: int, created: Draft, tail: EventDecider
    ) -> Session:
        """Create a session from `created`, copies of the events up to `upto`, and what `tail` adds.

        The copies get ids of their own, see `fork_event`.
        """

    async def checkpoint(self, workspace: str, id: str) -> Checkpoint | None:
        """Return how far a session's transcript has been imported; None if it was not imported.

        A fork has no checkpoint.
        """

    async def purge(
        self,
        workspace: str,
        id: str,
        guard: Callable[[Session], None],
        *,
        replacement: Iterable[Event] | None = None,
    ) -> None:
        """Delete a session and everything that belongs to it, unless `guard` raises.

        That includes the record of its share link: another session may get the same id. With
        `replacement`, the session has these events afterwards, and its end is not announced.
        """

    async def erase_deleted(self) -> str | None:
        """Remove deleted text from the store's files; return where some remains, or None."""

    async def events(
        self,
        workspace: str,
        id: str,
        **window: Unpack[WindowOptions],
    ) -> list[Event]:
        """Return the events of an EventWindow, in order; raises NotFound."""

    async def locate(self, workspace: str, id: str, event_id: str) -> int | None:
        """Return the seq of an event, None if the session does not have it."""

    # lists

    async def page(
        self, workspace: str, query: Query, after: Position | None = None, *, backward: bool = False
    ) -> list[Session]:
        """Return up to `query.limit` sessions after a position, in the query's order.

        With `backward`, the sessions just before the position, also in the query's order.
        """

    async def change_point(self, workspace: str) -> ChangePoint:
        """Return the current point in the store's sequence of changes."""

    async def sweep(
        self, workspace: str, query: Query, since: ChangePoint, after: str
    ) -> list[Session]:
        """Return sessions with ids above `after` that changed since a point, by id.

        Sessions that were created after the point are left out.
        """

    async def ranked(self, workspace: str, query: Query) -> list[SearchHit]:
        """Return the sessions that match `query.text` best, best first.

        A store may rank only the newest sessions of very common words, if they fill the page.
        """

    async def known_words(self, workspace: str, words: Sequence[str]) -> set[str]:
        """Return which of these words occur in the sessions of a workspace."""
        ...

    async def newest_matches(
        self, workspace: str, sessions: Sequence[Session], terms: Sequence[Term]
    ) -> list[Event | None]:
        """Return for each session the newest event in which one of the terms occurs."""

    async def occurrences(
        self, workspace: str, id: str, terms: Sequence[Term], before: int | None, limit: int
    ) -> list[int]:
        """Return the seqs of a session's events in which every term occurs, newest first."""

    async def stale(
        self, workspace: str, state: SessionState, before: int, limit: int
    ) -> list[Session]:
        """Return sessions in a state since before a time, oldest first.

        For active sessions, the time of the last activity counts.
        """

    # turns

    async def acquire(
        self, workspace: str, id: str, holder: str, *, over: Lease | None = None
    ) -> Lease | None:
        """Return the lease, or None while another holder has it.

        `over` is the lease of a holder that has died: it is taken over if it was not renewed since.
        """

    async def renew(self, holder: str) -> set[tuple[str, str]]:
        """Renew a holder's leases. Returns (workspace, session) of each."""

    async def release(self, lease: Lease) -> None:
        """Release a lease. Every process gets an `inbox` signal for the session."""

    async def lease_of(self, workspace: str, id: str) -> Lease | None:
        """Return the lease on a session, None if no process holds it."""

    async def leases(self) -> list[Lease]:
        """Return the leases that are held."""

    async def put_inbox(
        self,
        workspace: str,
        id: str,
        kind: InboxKind,
        item_id: str,
        body: dict[str, Any],
        holder: str = "",
    ) -> InboxItem: ...
    async def inbox(self, workspace: str, id: str) -> list[InboxItem]: ...
    async def drop_inbox(self, workspace: str, id: str, numbers: Sequence[int]) -> set[int]:
        """Delete items, and return the numbers of those that still existed.

        Turns that have begun stay: only the change that ends a turn deletes its items.
        """

    async def disown_inbox(self, holder: str) -> None:
        """Let any process act on the inbox items of a holder that ends.

        Turns that have begun get the holder ENDED_HOLDER: they need what only its process had.
        """

    async def waiting(self) -> list[tuple[str, str]]:
        """Return (workspace, session) of sessions without a lease that have inbox items.

        Turns that wait for an answer, and that any process can resume, do not count.
        """

    async def put_deltas(self, lease: Lease, deltas: Sequence[Delta]) -> None: ...
    async def deltas(self, workspace: str, id: str) -> list[Delta]:
        """Return the deltas of messages that are still being written, in order."""

    async def new_deltas(self, workspace: str, id: str, after: int) -> tuple[list[Delta], int]:
        """Return the deltas that were stored after a number, and the number of the last one.

        Numbers begin at 1 and only rise. Unlike `deltas`, this costs what was added.
        """

    async def ack(self, workspace: str, id: str, seq: int) -> None:
        """Record that a client has received a session's events up to this one.

        The record may be lost in a crash. It is not an event.
        """

    async def acked_seq(self, workspace: str, id: str) -> int:
        """Return the highest seq that was passed to `ack`; 0 if none."""

    def watch(self, listener: Callable[[Signal], None]) -> Callable[[], None]:
        """Call `listener` with every change until the returned function is called."""

    # rows that belong to no session

    async def put_key(self, key: ApiKey) -> None: ...
    async def find_key(self, digest: bytes) -> ApiKey | None: ...
    async def keys(self, workspace: str | None = None) -> list[ApiKey]: ...
    async def revoke_key(self, workspace: str, id: str, at: int) -> bool: ...

    async def put_record(
        self, record: Record, *, amend: bool = False, drop_earlier: bool = False
    ) -> Record:
        """Store a new version. Raises Conflict unless `record.version` is the next one.

        `amend` replaces the newest version instead, for example to archive it, and must have its
        number. Raises Conflict if the newest version is archived and the new one is not.
        `drop_earlier` deletes the earlier versions.
        """

    async def put_records(self, records: Sequence[Record], drop: Sequence[Record] = ()) -> None:
        """Store new versions of some records and delete others with all versions, all or none.

        Raises Conflict unless each is the next version, and each in `drop` is the newest.
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
        """Return the newest version of each record, newest record first."""

    async def put_part(self, workspace: str, file: str, number: int, data: bytes) -> None:
        """Store a part of a file, counted from 0. Durable once the file's record is stored."""

    async def part(self, workspace: str, file: str, number: int) -> bytes | None: ...
    async def drop_parts(self, workspace: str, file: str) -> None: ...
    async def drop_unfinished_uploads(self, before: int) -> None:
        """Delete parts of uploads from before a time that no `file` or `archive` record names."""

    async def usage(self, workspace: str) -> Usage:
        """Return what a workspace uses, without reading the rows that are counted."""

    async def set_overlay(
        self, workspace: str, source: str, id: str, patch: dict[str, Any]
    ) -> None: ...
    async def overlays(self, workspace: str, source: str) -> dict[str, dict[str, Any]]: ...
    async def set_setting(self, workspace: str, name: str, value: Any) -> None: ...
    async def settings(self, workspace: str) -> dict[str, Any]: ...

    # webhooks: every change of a session or record queues its notices in its own transaction

    async def notify(self, workspace: str, notices: Sequence[Notice]) -> None:
        """Queue notices for the webhooks that announce their types."""

    async def put_delivery(self, delivery: Delivery) -> Delivery:
        """Queue a delivery for its webhook, and return it with its number."""

    async def next_delivery(self) -> int | None:
        """Return when the next delivery is due; None if none is queued."""

    async def claim_deliveries(self, *, now: int, until: int, limit: int) -> list[Delivery]:
        """Return deliveries that are due, and make them due again at `until`.

        No other process gets them before. A process that dies leaves them to another one.
        """

    async def save_deliveries(self, saved: Sequence[Delivery]) -> None:
        """Store the outcome of attempts. Deliveries of deleted webhooks are ignored."""

    async def deliveries(
        self, workspace: str, webhook: str, *, before: int | None = None, limit: int = 50
    ) -> list[Delivery]:
        """Return the deliveries of a webhook with numbers below `before`, newest first."""

    async def trim_deliveries(
        self, workspace: str, webhook: str, *, finished: int, pending: int
    ) -> None:
        """Delete the oldest deliveries of a webhook, so that at most so many stay."""


# Steps that every store takes before it writes.


def start_session(workspace: str, id: str, drafts: Drafts, at: int) -> tuple[Session, list[Event]]:
    """Return the row and the events of a new session."""
    events = number_drafts(drafts, 0, at)
    return projection.project(workspace, id, events), events


def append_drafts(session: Session, drafts: Drafts, at: int) -> tuple[Session, list[Event]]:
    """Return a session's row after some drafts, and the events that they become."""
    events = number_drafts(drafts, session.last_seq, at)
    for event in events:
        session = projection.apply(session, event)
    if session.last_seq > MAX_SEQ:
        raise errors.InvalidInput(f"a session holds at most {MAX_SEQ} events; fork it to continue")
    return session, events


def seq_range(window: EventWindow) -> tuple[int, int]:
    """Return the limits of an SQL condition `seq > low AND seq <= high` for a window."""
    high = MAX_SEQ if window.before is None else min(max(window.before - 1, 0), MAX_SEQ)
    return min(max(window.after, 0), MAX_SEQ), high


def check_fork_point(session: Session, upto: int) -> None:
    """Raise InvalidInput unless the session has an event with the seq `upto`."""
    if not 1 <= upto <= session.last_seq:
        raise errors.InvalidInput(
            f"session {session.id} has events 1 to {session.last_seq}, not {upto}"
        )


def check_record_version(record: Record, newest: int, expected: int) -> None:
    """Raise Conflict unless the newest stored version of a record is the expected one."""
    if newest != expected:
        raise errors.Conflict(
            f"the {record.kind} is at version {newest} now; read it again", version=newest
        )


def not_found(id: str) -> errors.NotFound:
    """Return the error for a session that does not exist."""
    return errors.NotFound(f"no session {id}", session=id)


def is_counted_file(kind: str) -> bool:
    """Return whether `usage` counts the records of a kind as files."""
    return kind in FILE_KINDS or kind.startswith(MEMORY_KIND_PREFIX)


def lease_lost(lease: Lease) -> errors.LeaseLost:
    """Return the error for a write under a lease that another process has."""
    return errors.LeaseLost(
        f"this process no longer has the lease of session {lease.session}", session=lease.session
    )


# Events that other events refer to by id, or that are counted once by id. Forks keep these ids.
TYPES_THAT_KEEP_IDS = ("model_asked", "model_called", "permission_asked")


def fork_event(event: Event, fork: str) -> Event:
    """Return an event as a fork copies it: with an id of its own."""
    if event.type in TYPES_THAT_KEEP_IDS:
        return event
    return replace(event, id=ids.fork_event_id(fork, event.id))


def finished_messages(events: Iterable[Event]) -> list[str]:
    """Return the ids whose deltas events replace: of messages, and of requests that they begin."""
    from segue.model.requests.spans import begun_request  # imported late: reads do not need it

    finished: list[str] = []
    for event in events:
        finished.append(event.id)
        if request := begun_request(event.body):
            finished.append(request)
    return finished


def number_drafts(drafts: Drafts, last: int, at: int) -> list[Event]:
    """Return drafts as events with seqs, ids and times, each id once."""
    events: dict[str, Event] = {}
    for draft in drafts:
        if isinstance(draft, Body):
            draft = Draft(body=draft)
        id = draft.id or ids.new_id()
        moment = at if draft.at is None else draft.at
        seq = last + len(events) + 1
        events.setdefault(id, Event(seq=seq, id=id, at=moment, body=draft.body))
    return list(events.values())
