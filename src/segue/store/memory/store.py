"""MemoryStore: the store interface in plain dicts and lists.

It is simple rather than fast, and tests compare the other stores with it. Operations await nothing
and compute before they assign, so each happens completely or not at all. Values are encoded and
decoded on their way in, as on their way to a disk, so a caller that changes a dict later changes
nothing here.
"""

from __future__ import annotations

import asyncio
import operator
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from msgspec.structs import replace

from segue.model import clock, codec, errors, event, projection, search_text
from segue.model.cursor import ChangePoint
from segue.model.event import Delta, Draft, Drafts, Event, select_events
from segue.model.query import Position, Query, SearchHit, matches, position
from segue.model.record import Record
from segue.model.search_text import Term
from segue.model.session import Checkpoint, Session, SessionState, decode_session
from segue.model.webhooks.notices import purge_notices, session_notices
from segue.store.base import (
    FILE_KINDS,
    SCHEDULE_KIND,
    SHARE_KIND,
    EventDecider,
    InboxItem,
    InboxKind,
    Lease,
    Signal,
    Usage,
    append_drafts,
    check_fork_point,
    check_record_version,
    finished_messages,
    fork_event,
    is_counted_file,
    not_found,
    share_record_id,
    start_session,
)

from .deliveries import MemoryDeliveries
from .entry import Entry, check_lease, same_lease
from .search import best_hit, mentions, score, words_in, words_of
from .settings import MemorySettings

_decode_any: codec.Decoder[Any] = codec.Decoder(Any)
_decode_checkpoint: codec.Decoder[Checkpoint] = codec.Decoder(Checkpoint)


class MemoryStore:
    """A store in memory, which lasts as long as the object."""

    read_only = False

    def __init__(self) -> None:
        self._cursor_key = secrets.token_bytes(32)
        self._entries: dict[tuple[str, str], Entry] = {}
        self._change = 0
        self._number = 0
        self._listeners: list[Callable[[Signal], None]] = []
        self._records: dict[tuple[str, str, str], list[Record]] = {}
        self._parts: dict[tuple[str, str], dict[int, bytes]] = {}
        self._upload_started_at: dict[tuple[str, str], int] = {}
        settings = MemorySettings()
        self.put_key = settings.put_key
        self.find_key = settings.find_key
        self.keys = settings.keys
        self.revoke_key = settings.revoke_key
        self.set_overlay = settings.set_overlay
        self.overlays = settings.overlays
        self.set_setting = settings.set_setting
        self.settings = settings.settings
        self._queue = queue = MemoryDeliveries()
        self.notify = queue.notify
        self.put_delivery = queue.put_delivery
        self.next_delivery = queue.next_delivery
        self.claim_deliveries = queue.claim_deliveries
        self.save_deliveries = queue.save_deliveries
        self.deliveries = queue.deliveries
        self.trim_deliveries = queue.trim_deliveries

    async def close(self) -> None:
        self._listeners.clear()

    def vitals(self) -> dict[str, int]:
        return {}

    async def cursor_key(self) -> bytes:
        return self._cursor_key

    # sessions and their history

    async def create(
        self, workspace: str, id: str, drafts: Drafts, *, checkpoint: Checkpoint | None = None
    ) -> Session:
        session, events = start_session(workspace, id, drafts, clock.now())
        self._insert(session, events, checkpoint=checkpoint)
        self._queue.queue(workspace, session_notices(None, session, events))
        return session

    async def load(
        self,
        workspace: str,
        id: str,
        events: Iterable[Event],
        *,
        checkpoint: Checkpoint | None = None,
    ) -> Session:
        session = projection.project(workspace, id, events)
        return self._insert(session, events, new=False, checkpoint=checkpoint)

    def _insert(
        self,
        session: Session,
        events: Iterable[Event],
        *,
        new: bool = True,
        checkpoint: Checkpoint | None = None,
    ) -> Session:
        name = session.workspace, session.id
        if name in self._entries:
            raise errors.Conflict(f"session {session.id} exists already", session=session.id)
        change = self._change + 1
        born = change if new else 0
        stored_events = [_stored_event(added) for added in events]
        entry = Entry(_stored_row(session), stored_events, change, born=born)
        if checkpoint is not None:
            entry.checkpoint = codec.encode(checkpoint)
        self._change = change
        self._entries[name] = entry
        self._notify(Signal("events", *name))
        return session

    async def check(self) -> list[str]:
        return []

    async def get(self, workspace: str, id: str) -> Session | None:
        entry = self._entries.get((workspace, id))
        return entry.session if entry else None

    async def existing_ids(self, workspace: str, ids: Sequence[str]) -> set[str]:
        return {id for id in ids if (workspace, id) in self._entries}

    async def in_id_range(self, workspace: str, low: str, high: str, limit: int) -> list[Session]:
        ids = [id for owner, id in self._entries if owner == workspace and low <= id <= high]
        return [self._entries[workspace, id].session for id in sorted(ids)[:limit]]

    async def directories(self, workspace: str) -> set[str]:
        sessions = (entry.session for entry in self._of(workspace))
        return {session.directory for session in sessions if session.state != "trashed"}

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
        entry = self._find(workspace, id)
        at = clock.now()
        if lease is not None:
            check_lease(entry, lease)
        turn_items = {
            item.number: replace(item, kind="turn", body=_copy(item.body)) for item in begin
        }
        prompts = {item.number for item in entry.inbox if item.kind == "prompt"}
        inbox_numbers = {item.number for item in entry.inbox}
        if not inbox_numbers.issuperset(consume) or not prompts.issuperset(turn_items):
            raise errors.Conflict("another process has already handled that request")
        known_ids = {added.id for added in entry.events}
        drafts = [
            draft
            for draft in decide(entry.session)
            if not isinstance(draft, Draft) or draft.id not in known_ids
        ]
        session, events = append_drafts(entry.session, drafts, at)
        row, stored_events = _stored_row(session), [_stored_event(added) for added in events]
        if checkpoint is not None:
            entry.checkpoint = codec.encode(checkpoint)
        entry.inbox = [
            turn_items.get(item.number, item) for item in entry.inbox if item.number not in consume
        ]
        if events:
            self._change += 1
            self._queue.queue(workspace, session_notices(entry.session, session, events))
            entry.session, entry.change = row, self._change
            entry.events += stored_events
            if lease is not None:
                stored = {*finished_messages(events)}
                entry.deltas = [item for item in entry.deltas if item[1].message not in stored]
            self._notify(Signal("events", workspace, id))
        return session, events

    async def fork(
        self, workspace: str, id: str, new_id: str, upto: int, created: Draft, tail: EventDecider
    ) -> Session:
        parent = self._find(workspace, id)
        check_fork_point(parent.session, upto)
        at = clock.now()
        session, events = start_session(workspace, new_id, [created], at)
        for copied in parent.events:
            if 1 < copied.seq <= upto:
                session = projection.apply(session, copied)
                events.append(fork_event(copied, new_id))
        session, added = append_drafts(session, tail(session), at)
        self._insert(session, events + added)
        self._queue.queue(workspace, session_notices(None, session, added))
        return session

    async def checkpoint(self, workspace: str, id: str) -> Checkpoint | None:
        entry = self._entries.get((workspace, id))
        if entry is None or entry.checkpoint is None:
            return None
        return _decode_checkpoint(entry.checkpoint)

    async def purge(self, workspace: str, id: str, guard: Callable[[Session], None]) -> None:
        guard(session := self._find(workspace, id).session)
        del self._entries[workspace, id]
        self._queue.queue(workspace, purge_notices(session))
        self._records.pop((workspace, SHARE_KIND, share_record_id(id)), None)
        self._change += 1
        self._notify(Signal("purged", workspace, id))

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
        return select_events(
            self._find(workspace, id).events,
            after=after,
            before=before,
            types=types,
            since=since,
            until=until,
            limit=limit,
            backward=backward,
        )

    async def locate(self, workspace: str, id: str, event_id: str) -> int | None:
        events = self._find(workspace, id).events
        return next((event.seq for event in events if event.id == event_id), None)

    def _find(self, workspace: str, id: str) -> Entry:
        try:
            return self._entries[workspace, id]
        except KeyError:
            raise not_found(id) from None

    # lists

    async def page(
        self, workspace: str, query: Query, after: Position | None = None, *, backward: bool = False
    ) -> list[Session]:
        def position_of(session: Session) -> Position:
            return position(session, query.order)

        descending = query.descending != backward
        sessions = [entry.session for entry in self._matching(workspace, query)]
        sessions.sort(key=position_of, reverse=descending)
        if after is not None:
            is_after = operator.lt if descending else operator.gt
            sessions = [row for row in sessions if is_after(position_of(row), after)]
        sessions = sessions[: query.limit]
        return sessions[::-1] if backward else sessions

    async def change_point(self, workspace: str) -> ChangePoint:
        return ChangePoint(self._change + 1, self._change + 1)

    async def sweep(
        self, workspace: str, query: Query, since: ChangePoint, after: str
    ) -> list[Session]:
        sessions = [
            entry.session
            for entry in self._matching(workspace, query)
            if entry.change >= since.low and entry.born < since.high and entry.session.id > after
        ]
        return sorted(sessions, key=lambda session: session.id)[: query.limit]

    async def ranked(self, workspace: str, query: Query) -> list[SearchHit]:
        if query.text is None:
            return []
        terms = search_text.terms(query.text)
        matching = self._matching(workspace, query)
        hits = [best_hit(terms, entry.session, entry.events) for entry in matching]
        return sorted(hits, key=lambda hit: hit.score, reverse=True)[: query.limit]

    async def known_words(self, workspace: str, words: Sequence[str]) -> set[str]:
        words_by_session = (words_in(e.session, e.events) for e in self._of(workspace))
        return set(words).intersection(chain.from_iterable(words_by_session))

    async def newest_matches(
        self, workspace: str, sessions: Sequence[Session], terms: Sequence[Term]
    ) -> list[Event | None]:
        entries = [self._entries.get((workspace, session.id)) for session in sessions]
        histories = [reversed(entry.events) if entry else () for entry in entries]
        return [
            next((e for e in events if score(terms, words_of(e))), None) for events in histories
        ]

    async def occurrences(
        self, workspace: str, id: str, terms: Sequence[Term], before: int | None, limit: int
    ) -> list[int]:
        entry = self._entries.get((workspace, id))
        seqs = [
            event.seq
            for event in (entry.events[::-1] if entry and terms else ())
            if (before is None or event.seq < before)
            and all(search_text.words_have_term(term, words_of(event)) for term in terms)
        ]
        return seqs[:limit]

    async def stale(
        self, workspace: str, state: SessionState, before: int, limit: int
    ) -> list[Session]:
        def since(session: Session) -> int:
            times = {"archived": session.archived_at, "trashed": session.deleted_at}
            at = times.get(state, session.active_at)
            assert at is not None  # set for every session in that state
            return at

        rows = [entry.session for entry in self._of(workspace) if entry.session.state == state]
        rows = [row for row in rows if since(row) < before]
        return sorted(rows, key=lambda row: (since(row), row.id))[:limit]

    def _of(self, workspace: str) -> Iterator[Entry]:
        return (entry for (owner, _), entry in self._entries.items() if owner == workspace)

    def _matching(self, workspace: str, query: Query) -> Iterator[Entry]:
        terms = None if query.text is None else search_text.terms(query.text)
        for entry in self._of(workspace):
            if matches(query, entry.session) and (
                terms is None or mentions(terms, entry.session, entry.events)
            ):
                yield entry

    # turns

    async def acquire(
        self, workspace: str, id: str, holder: str, *, over: Lease | None = None
    ) -> Lease | None:
        entry = self._find(workspace, id)
        if entry.lease is not None and entry.lease.holder == holder:
            return entry.lease
        if entry.lease is not None and entry.lease != over:
            return None
        entry.epoch += 1
        entry.lease = Lease(workspace=workspace, session=id, holder=holder, epoch=entry.epoch)
        return entry.lease

    async def renew(self, holder: str) -> set[tuple[str, str]]:
        renewed = set()
        for name, entry in self._entries.items():
            if entry.lease is not None and entry.lease.holder == holder:
                entry.lease = replace(entry.lease, renewals=entry.lease.renewals + 1)
                renewed.add(name)
        return renewed

    async def release(self, lease: Lease) -> None:
        entry = self._entries.get((lease.workspace, lease.session))
        if entry is not None and same_lease(entry.lease, lease):
            entry.lease = None
            entry.deltas = []
            self._notify(Signal("inbox", lease.workspace, lease.session))

    async def lease_of(self, workspace: str, id: str) -> Lease | None:
        entry = self._entries.get((workspace, id))
        return entry.lease if entry else None

    async def leases(self) -> list[Lease]:
        return [entry.lease for entry in self._entries.values() if entry.lease is not None]

    async def put_inbox(
        self,
        workspace: str,
        id: str,
        kind: InboxKind,
        item_id: str,
        body: dict[str, Any],
        holder: str = "",
    ) -> InboxItem:
        entry = self._find(workspace, id)
        self._number += 1
        item = InboxItem(
            number=self._number,
            session=id,
            kind=kind,
            id=item_id,
            at=clock.now(),
            body=_copy(body),
            holder=holder,
        )
        entry.inbox.append(item)
        self._notify(Signal("inbox", workspace, id))
        return item

    async def inbox(self, workspace: str, id: str) -> list[InboxItem]:
        return list(self._find(workspace, id).inbox)

    async def drop_inbox(self, workspace: str, id: str, numbers: Sequence[int]) -> set[int]:
        entry = self._find(workspace, id)
        droppable = {item.number for item in entry.inbox if item.kind != "turn"}
        dropped = droppable.intersection(numbers)
        entry.inbox = [item for item in entry.inbox if item.number not in dropped]
        return dropped

    async def ack(self, workspace: str, id: str, seq: int) -> None:
        entry = self._find(workspace, id)
        entry.acked_seq = max(entry.acked_seq, seq)

    async def acked_seq(self, workspace: str, id: str) -> int:
        return self._find(workspace, id).acked_seq

    async def disown_inbox(self, holder: str) -> None:
        for name, entry in self._entries.items():
            inbox = [
                replace(item, holder="") if item.holder == holder and item.kind != "turn" else item
                for item in entry.inbox
            ]
            if inbox != entry.inbox:
                entry.inbox = inbox
                self._notify(Signal("inbox", *name))

    async def waiting(self) -> list[tuple[str, str]]:
        return [
            name
            for name, entry in self._entries.items()
            if entry.lease is None
            and any(item.kind != "turn" or item.holder for item in entry.inbox)
        ]

    async def put_deltas(self, lease: Lease, deltas: Sequence[Delta]) -> None:
        entry = self._find(lease.workspace, lease.session)
        check_lease(entry, lease)
        for delta in deltas:
            self._number += 1
            entry.deltas.append((self._number, delta))
        self._notify(Signal("deltas", lease.workspace, lease.session))

    async def deltas(self, workspace: str, id: str) -> list[Delta]:
        return [delta for _, delta in self._find(workspace, id).deltas]

    async def new_deltas(self, workspace: str, id: str, after: int) -> tuple[list[Delta], int]:
        new = [item for item in self._find(workspace, id).deltas if item[0] > after]
        return [delta for _, delta in new], new[-1][0] if new else after

    def watch(self, listener: Callable[[Signal], None]) -> Callable[[], None]:
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def _notify(self, signal: Signal) -> None:
        # Listeners run after the operation, and may call the store themselves.
        def notify() -> None:
            for listener in tuple(self._listeners):
                listener(signal)

        asyncio.get_running_loop().call_soon(notify)

    # rows that belong to no session

    async def put_record(
        self, record: Record, *, amend: bool = False, drop_earlier: bool = False
    ) -> Record:
        name = record.workspace, record.kind, record.id
        versions = self._records.get(name, [])
        self._check_newest(record, record.version - (not amend))
        if not amend:
            self._check_archived(record)
        stored = replace(record, body=_decode_any(codec.encode(record.body)))
        self._queue.record_changed(versions[-1] if versions else None, stored)
        earlier = versions[:-1] if amend else versions
        self._records[name] = [*([] if drop_earlier else earlier), stored]
        return record

    async def put_records(self, records: Sequence[Record], drop: Sequence[Record] = ()) -> None:
        for record in records:
            self._check_newest(record, record.version - 1)
            self._check_archived(record)
        for record in drop:
            self._check_newest(record, record.version)
        for record in records:
            await self.put_record(record)
        for record in drop:
            self._queue.record_changed(record, None)
            del self._records[record.workspace, record.kind, record.id]

    def _check_newest(self, record: Record, expected: int) -> None:
        versions = self._records.get((record.workspace, record.kind, record.id))
        newest = versions[-1].version if versions else 0
        check_record_version(record, newest, expected)

    def _check_archived(self, record: Record) -> None:
        versions = self._records.get((record.workspace, record.kind, record.id))
        if versions and versions[-1].archived_at is not None and record.archived_at is None:
            raise errors.Conflict(f"the {record.kind} is archived now; read it again")

    async def put_part(self, workspace: str, file: str, number: int, data: bytes) -> None:
        self._parts.setdefault((workspace, file), {})[number] = bytes(data)
        self._upload_started_at.setdefault((workspace, file), clock.now())

    async def part(self, workspace: str, file: str, number: int) -> bytes | None:
        return self._parts.get((workspace, file), {}).get(number)

    async def drop_parts(self, workspace: str, file: str) -> None:
        self._parts.pop((workspace, file), None)
        self._upload_started_at.pop((workspace, file), None)

    async def drop_unfinished_uploads(self, before: int) -> None:
        for (workspace, file), at in list(self._upload_started_at.items()):
            has_record = any((workspace, kind, file) in self._records for kind in FILE_KINDS)
            if at < before and not has_record:
                await self.drop_parts(workspace, file)

    async def get_record(
        self, workspace: str, kind: str, id: str, version: int | None = None
    ) -> Record | None:
        versions = self._records.get((workspace, kind, id), [])
        versions = versions[-1:] if version is None else versions
        return next((record for record in versions if version in (None, record.version)), None)

    async def records(
        self,
        workspace: str,
        kind: str,
        *,
        after: Position | None = None,
        archived: bool = False,
        limit: int = 50,
    ) -> list[Record]:
        def position_of(record: Record) -> Position:
            return Position(record.created_at, record.id)

        records = [
            versions[-1]
            for (owner, sort, _), versions in self._records.items()
            if (owner, sort) == (workspace, kind)
            and (archived or versions[-1].archived_at is None)
            and (after is None or position_of(versions[-1]) < after)
        ]
        return sorted(records, key=position_of, reverse=True)[:limit]

    async def usage(self, workspace: str) -> Usage:
        entries = list(self._of(workspace))
        kinds = [kind for owner, kind, _ in self._records if owner == workspace]
        values: list[Any] = [event.body for entry in entries for event in entry.events]
        for (owner, _, _), versions in self._records.items():
            values += versions if owner == workspace else ()
        size = sum(len(codec.encode(value)) for value in values)
        for (owner, _), parts in self._parts.items():
            size += sum(map(len, parts.values())) if owner == workspace else 0
        turns = sum(entry.session.turn is not None for entry in entries)
        turns += sum(item.kind == "prompt" for entry in entries for item in entry.inbox)
        files = sum(map(is_counted_file, kinds))
        return Usage(len(entries), files, size, kinds.count(SCHEDULE_KIND), turns)

    async def probe_write(self) -> None:
        pass


def _stored_row(session: Session) -> Session:
    return decode_session(codec.encode(session))


def _stored_event(added: Event) -> Event:
    return replace(added, body=event.decode_body(codec.encode(added.body)))


def _copy(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body as a store that encodes it would."""
    copied: dict[str, Any] = _decode_any(codec.encode(body))
    return copied
