"""SQLiteStore: reads run in the calling thread, writes in the writer's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from segue.model.cursor import ChangePoint
from segue.model.event import Delta, Draft, Drafts, Event
from segue.model.principal import ApiKey
from segue.model.query import Position, Query, SearchHit
from segue.model.record import Record
from segue.model.search_text import Term
from segue.model.session import Checkpoint, Session, SessionState
from segue.store.base import EventDecider, InboxItem, InboxKind, Lease, Signal, Store

from . import writes
from .connection import prepare, read_only_parameters, translated
from .reads import Reader
from .writer import Writer


class SQLiteStore(Store):
    """The store in one SQLite file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reader = Reader(path)
        self._watcher: Any = None
        self._writer = Writer(path, self._publish)

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Return the store in a file, which is created or migrated first."""
        path = Path(path)
        prepare(path)
        return cls(path)

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
        self._writer.close()
        self.reader.close()

    @property
    def read_only(self) -> bool:
        return read_only_parameters(self.path) is not None

    def vitals(self) -> dict[str, int]:
        return {"commits": self._writer.commits, "queue": self._writer.queued}

    def _publish(self, signals: list[Signal]) -> None:
        if self._watcher is not None:
            self._watcher.publish(signals)

    def watch(self, listener: Callable[[Signal], None]) -> Callable[[], None]:
        if self._watcher is None:
            from .watch import Watcher

            self._watcher = Watcher(lambda: Reader(self.path))
        stop: Callable[[], None] = self._watcher.listen(listener)
        return stop

    # Reads.

    async def cursor_key(self) -> bytes:
        with translated(self.path):
            return self.reader.cursor_key()

    async def check(self) -> list[str]:
        with translated(self.path):
            return self.reader.check()

    async def get(self, workspace: str, id: str) -> Session | None:
        with translated(self.path):
            return self.reader.get(workspace, id)

    async def existing_ids(self, workspace: str, ids: Sequence[str]) -> set[str]:
        with translated(self.path):
            return self.reader.existing_ids(workspace, ids)

    async def in_id_range(self, workspace: str, low: str, high: str, limit: int) -> list[Session]:
        with translated(self.path):
            return self.reader.in_id_range(workspace, low, high, limit)

    async def directories(self, workspace: str) -> set[str]:
        with translated(self.path):
            return self.reader.directories(workspace)

    async def events(self, workspace: str, id: str, **options: Any) -> list[Event]:
        with translated(self.path):
            return self.reader.events(workspace, id, **options)

    async def locate(self, workspace: str, id: str, event_id: str) -> int | None:
        with translated(self.path):
            return self.reader.locate(workspace, id, event_id)

    async def checkpoint(self, workspace: str, id: str) -> Checkpoint | None:
        with translated(self.path):
            return self.reader.checkpoint(workspace, id)

    async def page(
        self, workspace: str, query: Query, after: Position | None = None, *, backward: bool = False
    ) -> list[Session]:
        with translated(self.path):
            return self.reader.page(workspace, query, after, backward=backward)

    async def change_point(self, workspace: str) -> ChangePoint:
        with translated(self.path):
            return self.reader.change_point(workspace)

    async def sweep(
        self, workspace: str, query: Query, since: ChangePoint, after: str
    ) -> list[Session]:
        with translated(self.path):
            return self.reader.sweep(workspace, query, since, after)

    async def ranked(self, workspace: str, query: Query) -> list[SearchHit]:
        with translated(self.path):
            return self.reader.ranked(workspace, query)

    async def newest_matches(
        self, workspace: str, sessions: Sequence[Session], terms: Sequence[Term]
    ) -> list[Event | None]:
        with translated(self.path):
            return self.reader.newest_matches(workspace, sessions, terms)

    async def occurrences(
        self, workspace: str, id: str, terms: Sequence[Term], before: int | None, limit: int
    ) -> list[int]:
        with translated(self.path):
            return self.reader.occurrences(workspace, id, terms, before, limit)

    async def stale(
        self, workspace: str, state: SessionState, before: int, limit: int
    ) -> list[Session]:
        with translated(self.path):
            return self.reader.stale(workspace, state, before, limit)

    async def lease_of(self, workspace: str, id: str) -> Lease | None:
        with translated(self.path):
            return self.reader.lease_of(workspace, id)

    async def expired_leases(self) -> list[Lease]:
        with translated(self.path):
            return self.reader.expired_leases()

    async def inbox(self, workspace: str, id: str) -> list[InboxItem]:
        with translated(self.path):
            return self.reader.inbox(workspace, id)

    async def waiting_prompts(self, before: int) -> list[tuple[str, str]]:
        with translated(self.path):
            return self.reader.waiting_prompts(before)

    async def deltas(self, workspace: str, id: str) -> list[Delta]:
        with translated(self.path):
            return self.reader.deltas(workspace, id)

    async def acked_seq(self, workspace: str, id: str) -> int:
        with translated(self.path):
            return self.reader.acked_seq(workspace, id)

    async def find_key(self, digest: bytes) -> ApiKey | None:
        with translated(self.path):
            return self.reader.find_key(digest)

    async def keys(self, workspace: str | None = None) -> list[ApiKey]:
        with translated(self.path):
            return self.reader.keys(workspace)

    async def get_record(
        self, workspace: str, kind: str, id: str, version: int | None = None
    ) -> Record | None:
        with translated(self.path):
            return self.reader.get_record(workspace, kind, id, version)

    async def part(self, workspace: str, file: str, number: int) -> bytes | None:
        with translated(self.path):
            return self.reader.part(workspace, file, number)

    async def records(self, workspace: str, kind: str, **options: Any) -> list[Record]:
        with translated(self.path):
            return self.reader.records(workspace, kind, **options)

    async def overlays(self, workspace: str, source: str) -> dict[str, dict[str, Any]]:
        with translated(self.path):
            return self.reader.overlays(workspace, source)

    async def settings(self, workspace: str) -> dict[str, Any]:
        with translated(self.path):
            return self.reader.settings(workspace)

    # Writes.

    async def create(
        self, workspace: str, id: str, drafts: Drafts, *, checkpoint: Checkpoint | None = None
    ) -> Session:
        return await self._writer.run(
            lambda tx: writes.create(tx, workspace, id, drafts, checkpoint)
        )

    async def load(
        self,
        workspace: str,
        id: str,
        events: Iterable[Event],
        *,
        checkpoint: Checkpoint | None = None,
    ) -> Session:
        return await self._writer.run(lambda tx: writes.load(tx, workspace, id, events, checkpoint))

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
        return await self._writer.run(
            lambda tx: writes.change(tx, workspace, id, decide, lease, consume, checkpoint)
        )

    async def fork(
        self, workspace: str, id: str, new_id: str, upto: int, created: Draft, tail: EventDecider
    ) -> Session:
        return await self._writer.run(
            lambda tx: writes.fork(tx, workspace, id, new_id, upto, created, tail)
        )

    async def purge(self, workspace: str, id: str, guard: Callable[[Session], None]) -> None:
        await self._writer.run(lambda tx: writes.purge(tx, workspace, id, guard))

    async def acquire(self, workspace: str, id: str, holder: str, ttl: int) -> Lease | None:
        return await self._writer.run(lambda tx: writes.acquire(tx, workspace, id, holder, ttl))

    async def renew(self, holder: str, ttl: int) -> set[tuple[str, str]]:
        return await self._writer.run(lambda tx: writes.renew(tx, holder, ttl), durable=False)

    async def release(self, lease: Lease) -> None:
        await self._writer.run(lambda tx: writes.release(tx, lease), durable=False)

    async def put_inbox(
        self, workspace: str, id: str, kind: InboxKind, item_id: str, body: dict[str, Any]
    ) -> InboxItem:
        return await self._writer.run(
            lambda tx: writes.put_inbox(tx, workspace, id, kind, item_id, body)
        )

    async def drop_inbox(self, workspace: str, id: str, numbers: Sequence[int]) -> set[int]:
        return await self._writer.run(lambda tx: writes.drop_inbox(tx, workspace, id, numbers))

    async def put_deltas(self, lease: Lease, deltas: Sequence[Delta]) -> None:
        await self._writer.run(lambda tx: writes.put_deltas(tx, lease, deltas), durable=False)

    async def ack(self, workspace: str, id: str, seq: int) -> None:
        await self._writer.run(lambda tx: writes.ack(tx, workspace, id, seq), durable=False)

    async def put_key(self, key: ApiKey) -> None:
        await self._writer.run(lambda tx: writes.put_key(tx, key))

    async def revoke_key(self, workspace: str, id: str, at: int) -> bool:
        for key in await self.keys(workspace):
            if key.id == id and key.revoked_at is None:
                await self.put_key(msgspec.structs.replace(key, revoked_at=at))
                return True
        return False

    async def put_record(
        self, record: Record, *, amend: bool = False, drop_earlier: bool = False
    ) -> Record:
        return await self._writer.run(
            lambda tx: writes.put_record(tx, record, amend=amend, drop_earlier=drop_earlier)
        )

    async def put_records(self, records: Sequence[Record], drop: Sequence[Record] = ()) -> None:
        await self._writer.run(lambda tx: writes.put_records(tx, records, drop))

    async def put_part(self, workspace: str, file: str, number: int, data: bytes) -> None:
        # The commit of the file's record syncs whatever was written before it.
        await self._writer.run(
            lambda tx: writes.put_part(tx, workspace, file, number, data), durable=False
        )

    async def drop_parts(self, workspace: str, file: str) -> None:
        await self._writer.run(lambda tx: writes.drop_parts(tx, workspace, file))

    async def drop_unfinished_uploads(self, before: int) -> None:
        await self._writer.run(lambda tx: writes.drop_unfinished_uploads(tx, before))

    async def set_overlay(
        self, workspace: str, source: str, id: str, patch: dict[str, Any]
    ) -> None:
        await self._writer.run(lambda tx: writes.set_overlay(tx, workspace, source, id, patch))

    async def set_setting(self, workspace: str, name: str, value: Any) -> None:
        await self._writer.run(lambda tx: writes.set_setting(tx, workspace, name, value))
