"""MemoryStore, and its sessions, their histories and turns."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Unpack

from msgspec.structs import replace

from segue.model import clock, codec, errors, event, projection
from segue.model.cursor import ChangePoint
from segue.model.event import Delta, Draft, Drafts, Event
from segue.model.query import EventWindow, WindowOptions
from segue.model.session import Checkpoint, Session, decode_session
from segue.model.webhooks.notices import purge_notices, session_notices
from segue.store.base import (
    ENDED_HOLDER,
    SCHEDULE_KIND,
    EventDecider,
    InboxItem,
    InboxKind,
    Lease,
    Signal,
    Usage,
    append_drafts,
    check_fork_point,
    finished_messages,
    fork_event,
    is_counted_file,
    not_found,
    start_session,
)

from .deliveries import MemoryDeliveries
from .entry import Entry, check_lease, same_lease
from .lists import MemoryLists
from .records import MemoryRecords
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
        self._records = records = MemoryRecords(queue)
        self.put_record = records.put_record
        self.put_records = records.put_records
        self.get_record = records.get_record
        self.records = records.records
        self.put_part = records.put_part
        self.part = records.part
        self.drop_parts = records.drop_parts
        self.drop_unfinished_uploads = records.drop_unfinished_uploads
        self._lists = lists = MemoryLists(self._entries)
        self.page = lists.page
        self.sweep = lists.sweep
        self.ranked = lists.ranked
        self.known_words = lists.known_words
        self.newest_matches = lists.newest_matches
        self.occurrences = lists.occurrences
        self.stale = lists.stale

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
        sessions = (entry.session for entry in self._lists.of_workspace(workspace))
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

    async def purge(
        self,
        workspace: str,
        id: str,
        guard: Callable[[Session], None],
        *,
        replacement: Iterable[Event] | None = None,
    ) -> None:
        guard(session := self._find(workspace, id).session)
        changed = None if replacement is None else projection.project(workspace, id, replacement)
        del self._entries[workspace, id]
        self._records.drop_share(workspace, id)
        if changed is not None and replacement is not None:
            self._insert(changed, replacement, new=False)
            return
        self._queue.queue(workspace, purge_notices(session))
        self._change += 1
        self._notify(Signal("purged", workspace, id))

    async def erase_deleted(self) -> str | None:
        return None

    async def events(
        self,
        workspace: str,
        id: str,
        **window: Unpack[WindowOptions],
    ) -> list[Event]:
        return EventWindow(**window).select(self._find(workspace, id).events)

    async def locate(self, workspace: str, id: str, event_id: str) -> int | None:
        events = self._find(workspace, id).events
        return next((event.seq for event in events if event.id == event_id), None)

    def _find(self, workspace: str, id: str) -> Entry:
        try:
            return self._entries[workspace, id]
        except KeyError:
            raise not_found(id) from None

    # changes and turns

    async def change_point(self, workspace: str) -> ChangePoint:
        return ChangePoint(self._change + 1, self._change + 1)

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
                replace(item, holder=ENDED_HOLDER if item.kind == "turn" else "")
                if holder and item.holder == holder
                else item
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

    async def usage(self, workspace: str) -> Usage:
        entries = list(self._lists.of_workspace(workspace))
        kinds = self._records.kinds(workspace)
        values: list[Any] = [event.body for entry in entries for event in entry.events]
        values += self._records.versions(workspace)
        size = sum(len(codec.encode(value)) for value in values)
        size += self._records.part_bytes(workspace)
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
