"""PostgresStore: the store interface, answered by the parts that this package has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from segue.model.cursor import ChangePoint
from segue.model.event import Delta, Draft, Drafts, Event
from segue.model.principal import ApiKey
from segue.model.query import Position, Query, SearchHit
from segue.model.record import Record
from segue.model.search_text import Term
from segue.model.session import Checkpoint, Session, SessionState
from segue.store.base import EventDecider, InboxItem, InboxKind, Lease, Signal, Store

from .connection import Database
from .lists import SessionLists
from .records import Records
from .sessions import SessionHistory
from .turns import TurnState
from .watch import Watcher


class PostgresStore(Store):
    """The store in a PostgreSQL database, for any number of processes and machines.

    It belongs to the event loop that it was opened in.
    """

    def __init__(self, database: Database, watcher: Watcher, *, read_only: bool = False) -> None:
        self._database = database
        self._watcher = watcher
        self._read_only = read_only
        self._cursor_key: bytes | None = None
        self._sessions = SessionHistory(database, watcher)
        self._lists = SessionLists(database)
        self._turns = TurnState(database, watcher)
        self._records = Records(database)

    @classmethod
    async def open(cls, url: str) -> Self:
        """Return the store in a database, whose tables are created or migrated first."""
        database = await Database.open(url)
        try:
            sql = "SELECT current_setting('transaction_read_only') = 'on'"
            ((read_only,),) = await database.fetch(sql)
            return cls(database, await Watcher.open(url), read_only=read_only)
        except BaseException:
            await database.close()
            raise

    async def close(self) -> None:
        await self._watcher.close()
        await self._database.close()

    @property
    def read_only(self) -> bool:
        return self._read_only

    def vitals(self) -> dict[str, int]:
        return {"commits": self._database.commits, "queue": self._database.queued}

    async def cursor_key(self) -> bytes:
        if self._cursor_key is None:  # it never changes, and every page needs it
            rows = await self._database.fetch("SELECT value FROM meta WHERE name = 'cursor_key'")
            self._cursor_key = bytes(rows[0][0])
        return self._cursor_key

    async def check(self) -> list[str]:
        sql = "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class t ON t.oid = indrelid"
        sql += " WHERE NOT indisvalid AND t.relnamespace = current_schema()::regnamespace"
        rows = await self._database.fetch(sql)
        return [f"the index {name} is not valid; REINDEX INDEX {name} mends it" for (name,) in rows]

    def watch(self, listener: Callable[[Signal], None]) -> Callable[[], None]:
        return self._watcher.listen(listener)

    # Sessions and their events.

    async def create(
        self, workspace: str, id: str, drafts: Drafts, *, checkpoint: Checkpoint | None = None
    ) -> Session:
        return await self._sessions.create(workspace, id, drafts, checkpoint=checkpoint)

    async def load(
        self,
        workspace: str,
        id: str,
        events: Iterable[Event],
        *,
        checkpoint: Checkpoint | None = None,
    ) -> Session:
        return await self._sessions.load(workspace, id, events, checkpoint=checkpoint)

    async def get(self, workspace: str, id: str) -> Session | None:
        return await self._sessions.get(workspace, id)

    async def existing_ids(self, workspace: str, ids: Sequence[str]) -> set[str]:
        return await self._sessions.existing_ids(workspace, ids)

    async def in_id_range(self, workspace: str, low: str, high: str, limit: int) -> list[Session]:
        return await self._sessions.in_id_range(workspace, low, high, limit)

    async def directories(self, workspace: str) -> set[str]:
        return await self._sessions.directories(workspace)

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
        return await self._sessions.change(
            workspace, id, decide, lease=lease, consume=consume, checkpoint=checkpoint
        )

    async def fork(
        self, workspace: str, id: str, new_id: str, upto: int, created: Draft, tail: EventDecider
    ) -> Session:
        return await self._sessions.fork(workspace, id, new_id, upto, created, tail)

    async def checkpoint(self, workspace: str, id: str) -> Checkpoint | None:
        return await self._sessions.checkpoint(workspace, id)

    async def purge(self, workspace: str, id: str, guard: Callable[[Session], None]) -> None:
        await self._sessions.purge(workspace, id, guard)

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
        return await self._sessions.events(
            workspace,
            id,
            after=after,
            before=before,
            types=types,
            since=since,
            until=until,
            limit=limit,
            backward=backward,
        )

    async def locate(self, workspace: str, id: str, event_id: str) -> int | None:
        return await self._sessions.locate(workspace, id, event_id)

    # Lists and searches.

    async def page(
        self, workspace: str, query: Query, after: Position | None = None, *, backward: bool = False
    ) -> list[Session]:
        return await self._lists.page(workspace, query, after, backward=backward)

    async def change_point(self, workspace: str) -> ChangePoint:
        return await self._lists.change_point(workspace)

    async def sweep(
        self, workspace: str, query: Query, since: ChangePoint, after: str
    ) -> list[Session]:
        return await self._lists.sweep(workspace, query, since, after)

    async def stale(
        self, workspace: str, state: SessionState, before: int, limit: int
    ) -> list[Session]:
        return await self._lists.stale(workspace, state, before, limit)

    async def ranked(self, workspace: str, query: Query) -> list[SearchHit]:
        return await self._lists.ranked(workspace, query)

    async def newest_matches(
        self, workspace: str, sessions: Sequence[Session], terms: Sequence[Term]
    ) -> list[Event | None]:
        return await self._lists.newest_matches(workspace, sessions, terms)

    async def occurrences(
        self, workspace: str, id: str, terms: Sequence[Term], before: int | None, limit: int
    ) -> list[int]:
        return await self._lists.occurrences(workspace, id, terms, before, limit)

    # Turns.

    async def acquire(self, workspace: str, id: str, holder: str, ttl: int) -> Lease | None:
        return await self._turns.acquire(workspace, id, holder, ttl)

    async def renew(self, holder: str, ttl: int) -> set[tuple[str, str]]:
        return await self._turns.renew(holder, ttl)

    async def release(self, lease: Lease) -> None:
        await self._turns.release(lease)

    async def lease_of(self, workspace: str, id: str) -> Lease | None:
        return await self._turns.lease_of(workspace, id)

    async def expired_leases(self) -> list[Lease]:
        return await self._turns.expired_leases()

    async def put_inbox(
        self, workspace: str, id: str, kind: InboxKind, item_id: str, body: dict[str, Any]
    ) -> InboxItem:
        return await self._turns.put_inbox(workspace, id, kind, item_id, body)

    async def inbox(self, workspace: str, id: str) -> list[InboxItem]:
        return await self._turns.inbox(workspace, id)

    async def drop_inbox(self, workspace: str, id: str, numbers: Sequence[int]) -> set[int]:
        return await self._turns.drop_inbox(workspace, id, numbers)

    async def ack(self, workspace: str, id: str, seq: int) -> None:
        await self._turns.ack(workspace, id, seq)

    async def acked_seq(self, workspace: str, id: str) -> int:
        return await self._turns.acked_seq(workspace, id)

    async def waiting_prompts(self, before: int) -> list[tuple[str, str]]:
        return await self._turns.waiting_prompts(before)

    async def put_deltas(self, lease: Lease, deltas: Sequence[Delta]) -> None:
        await self._turns.put_deltas(lease, deltas)

    async def deltas(self, workspace: str, id: str) -> list[Delta]:
        return await self._turns.deltas(workspace, id)

    # Keys, records, file parts, overlays, settings.

    async def put_key(self, key: ApiKey) -> None:
        await self._records.put_key(key)

    async def find_key(self, digest: bytes) -> ApiKey | None:
        return await self._records.find_key(digest)

    async def keys(self, workspace: str | None = None) -> list[ApiKey]:
        return await self._records.keys(workspace)

    async def revoke_key(self, workspace: str, id: str, at: int) -> bool:
        return await self._records.revoke_key(workspace, id, at)

    async def put_record(
        self, record: Record, *, amend: bool = False, drop_earlier: bool = False
    ) -> Record:
        return await self._records.put_record(record, amend=amend, drop_earlier=drop_earlier)

    async def put_records(self, records: Sequence[Record], drop: Sequence[Record] = ()) -> None:
        await self._records.put_records(records, drop)

    async def put_part(self, workspace: str, file: str, number: int, data: bytes) -> None:
        await self._records.put_part(workspace, file, number, data)

    async def part(self, workspace: str, file: str, number: int) -> bytes | None:
        return await self._records.part(workspace, file, number)

    async def drop_parts(self, workspace: str, file: str) -> None:
        await self._records.drop_parts(workspace, file)

    async def drop_unfinished_uploads(self, before: int) -> None:
        await self._records.drop_unfinished_uploads(before)

    async def get_record(
        self, workspace: str, kind: str, id: str, version: int | None = None
    ) -> Record | None:
        return await self._records.get_record(workspace, kind, id, version)

    async def records(
        self,
        workspace: str,
        kind: str,
        *,
        after: Position | None = None,
        archived: bool = False,
        limit: int = 50,
    ) -> list[Record]:
        return await self._records.records(
            workspace, kind, after=after, archived=archived, limit=limit
        )

    async def set_overlay(
        self, workspace: str, source: str, id: str, patch: dict[str, Any]
    ) -> None:
        await self._records.set_overlay(workspace, source, id, patch)

    async def overlays(self, workspace: str, source: str) -> dict[str, dict[str, Any]]:
        return await self._records.overlays(workspace, source)

    async def set_setting(self, workspace: str, name: str, value: Any) -> None:
        await self._records.set_setting(workspace, name, value)

    async def settings(self, workspace: str) -> dict[str, Any]:
        return await self._records.settings(workspace)
