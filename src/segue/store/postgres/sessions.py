"""Sessions and their events.

An append locks the session's row, so appends to one session are serialized and appends to different
sessions do not wait for each other. Appends of one process are committed in groups. A group is
written in one statement: with reading the rows, BEGIN and COMMIT, it is four round trips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Unpack

from segue.model import clock, codec, errors, event, projection
from segue.model.event import Draft, Drafts, Event
from segue.model.query import EventWindow, WindowOptions
from segue.model.session import Checkpoint, Session, decode_session
from segue.model.webhooks.notices import Notice, purge_notices, session_notices
from segue.store.base import (
    SHARE_KIND,
    TYPES_THAT_KEEP_IDS,
    EventDecider,
    InboxItem,
    Lease,
    Signal,
    append_drafts,
    check_fork_point,
    finished_messages,
    lease_lost,
    not_found,
    seq_range,
    share_record_id,
    start_session,
)
from segue.store.query_sql import STATE_CODES, columns
from segue.store.rows import CHECKPOINTS, decode_checkpoint, encode_checkpoint

from .appends import (
    ADD,
    CHANGE,
    Batch,
    Change,
    add_batches,
    batch_bytes,
    encode_batches,
    with_row_words,
    write_changes,
)
from .connection import Connection, Database, Row
from .deliveries import notify, notify_arguments, notify_cte
from .groups import Changed, ChangeRequest, GroupWriter
from .sql import HAS_LEASE, PK
from .watch import Watcher

_FETCHED_EVENTS = 2_000  # of a fork, at a time
# Like `fork_event`.
_COPY_EVENTS = """
WITH copied AS (
  INSERT INTO events (session, id, seq, at, type, version, body)
  SELECT $1, CASE WHEN type = ANY($5) THEN id ELSE md5($4 || id)::uuid::text END,
    seq, at, type, version, body
  FROM events WHERE session = $2 AND seq > 1 AND seq <= $3
  RETURNING octet_length(body) AS bytes
)
UPDATE sessions SET bytes = bytes + (SELECT coalesce(sum(bytes), 0) FROM copied) WHERE pk = $1"""
_COPY_SEARCH = """
INSERT INTO search (session, seq, part, words) SELECT $1, seq, part, words
FROM search WHERE session = $2 AND seq > 1 AND seq <= $3"""
# Jump from one directory to the next along the index, however many sessions each has.
_IN_ORDER = "SELECT cwd, row FROM sessions WHERE workspace = $1 AND state = $2"
_IN_ORDER += " AND status <> 'by cwd'"
_DIRECTORIES = f"""
WITH RECURSIVE found AS (
  ({_IN_ORDER} ORDER BY cwd LIMIT 1)
  UNION ALL
  SELECT following.* FROM found,
    LATERAL ({_IN_ORDER} AND cwd > found.cwd ORDER BY cwd LIMIT 1) AS following
)
SELECT row FROM found"""
_EVENTS = "SELECT seq, id, at, version, body FROM events"


class SessionHistory:
    """Create, read and change sessions and their events."""

    def __init__(self, database: Database, watcher: Watcher) -> None:
        self._database = database
        self._watcher = watcher
        self._groups = GroupWriter(database, self._change_requested)

    async def create(
        self, workspace: str, id: str, drafts: Drafts, *, checkpoint: Checkpoint | None = None
    ) -> Session:
        session, events = start_session(workspace, id, drafts, clock.now())
        notices = session_notices(None, session, events)
        return await self._insert(session, events, CHANGE, checkpoint, notices)

    async def load(
        self,
        workspace: str,
        id: str,
        events: Iterable[Event],
        *,
        checkpoint: Checkpoint | None = None,
    ) -> Session:
        session = projection.project(workspace, id, events)
        return await self._insert(session, events, "0", checkpoint)

    async def _insert(
        self,
        session: Session,
        events: Iterable[Event],
        born: str,
        checkpoint: Checkpoint | None = None,
        notices: Sequence[Notice] = (),
    ) -> Session:
        batches = encode_batches(events)
        insertion = _insertion(session, with_row_words(next(batches), session), born, notices)
        second = next(batches, None)

        async def insert(connection: Connection) -> None:
            pk = _inserted(await connection.fetch(*insertion), session)
            batches = encode_batches(events)
            next(batches)
            await add_batches(connection, pk, batches)
            await _put_checkpoint(connection, pk, session, checkpoint)

        if second is not None or checkpoint is not None:
            await self._database.transact(insert)
        else:
            _inserted(await self._database.write(*insertion), session)
        self._watcher.publish(Signal("events", session.workspace, session.id))
        return session

    async def get(self, workspace: str, id: str) -> Session | None:
        sql = "SELECT row FROM sessions WHERE workspace = $1 AND id = $2"
        rows = await self._database.fetch(sql, workspace, id)
        return decode_session(rows[0][0]) if rows else None

    async def existing_ids(self, workspace: str, ids: Sequence[str]) -> set[str]:
        sql = "SELECT id FROM sessions WHERE workspace = $1 AND id = ANY($2)"
        return {id for (id,) in await self._database.fetch(sql, workspace, list(ids))}

    async def in_id_range(self, workspace: str, low: str, high: str, limit: int) -> list[Session]:
        sql = "SELECT row FROM sessions WHERE workspace = $1 AND id BETWEEN $2 AND $3"
        sql += " ORDER BY id LIMIT $4"
        rows = await self._database.fetch(sql, workspace, low, high, limit)
        return [decode_session(row) for (row,) in rows]

    async def directories(self, workspace: str) -> set[str]:
        directories = set()
        for state in (STATE_CODES["active"], STATE_CODES["archived"]):
            rows = await self._database.fetch(_DIRECTORIES, workspace, state)
            directories |= {decode_session(row).directory for (row,) in rows}
        return directories

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
        if consume or begin or checkpoint is not None:
            work = self._change_alone(workspace, id, decide, lease, consume, begin, checkpoint)
        else:
            work = self._groups.change((workspace, id), decide, lease)
        session, events = await work
        if events:
            self._watcher.publish(Signal("events", workspace, id))
        return session, events

    async def _change_requested(self, request: ChangeRequest) -> Changed:
        return await self._change_alone(*request.name, request.decide, request.lease)

    async def _change_alone(
        self,
        workspace: str,
        id: str,
        decide: EventDecider,
        lease: Lease | None,
        consume: Sequence[int] = (),
        begin: Sequence[InboxItem] = (),
        checkpoint: Checkpoint | None = None,
    ) -> Changed:
        """Change a session in a transaction of its own."""

        async def change(connection: Connection) -> Changed:
            pk, session = await _lock(connection, workspace, id, lease)
            if consume:
                sql = "DELETE FROM inbox WHERE session = $1 AND number = ANY($2) RETURNING number"
                dropped = {number for (number,) in await connection.fetch(sql, pk, list(consume))}
                if dropped != set(consume):
                    raise errors.Conflict("another process has already handled that request")
            for item in begin:
                sql = "UPDATE inbox SET kind = 'turn', holder = $3, body = $4"
                sql += " WHERE session = $1 AND number = $2 AND kind = 'prompt' RETURNING number"
                values = (pk, item.number, item.holder, codec.encode(item.body))
                if not await connection.fetch(sql, *values):
                    raise errors.Conflict("another process has already handled that request")
            drafts = await _without_stored(connection, pk, decide(session))
            if not drafts:
                await _put_checkpoint(connection, pk, session, checkpoint)
                return session, []
            after, events = append_drafts(session, drafts, clock.now())
            finished = finished_messages(events) if lease is not None else []
            await write_changes(connection, [Change(pk, session, after, events, finished)])
            await _put_checkpoint(connection, pk, after, checkpoint)
            return after, events

        return await self._database.transact(change)

    async def fork(
        self, workspace: str, id: str, new_id: str, upto: int, created: Draft, tail: EventDecider
    ) -> Session:
        async def fork(connection: Connection) -> Session:
            sql = "SELECT pk, row FROM sessions WHERE workspace = $1 AND id = $2"
            parent, row = _decode_row(await connection.fetchrow(sql, workspace, id), id)
            check_fork_point(row, upto)
            at = clock.now()
            session, first = start_session(workspace, new_id, [created], at)
            sql = f"{_EVENTS} WHERE session = $1 AND seq > 1 AND seq <= $2 ORDER BY seq"
            async for copied in connection.cursor(sql, parent, upto, prefetch=_FETCHED_EVENTS):
                session = projection.apply(session, as_event(copied))
            session, added = append_drafts(session, tail(session), at)
            (batch,) = encode_batches(first)
            notices = session_notices(None, session, added)
            insertion = _insertion(session, with_row_words(batch, session), CHANGE, notices)
            pk = _inserted(await connection.fetch(*insertion), session)
            # The events were read to compute the row; the server makes the copies.
            named = (pk, parent, upto)
            await connection.execute(_COPY_EVENTS, *named, new_id, TYPES_THAT_KEEP_IDS)
            await connection.execute(_COPY_SEARCH, *named)
            await add_batches(connection, pk, encode_batches(added))
            return session

        # In one snapshot, so that the parent can change meanwhile without waiting.
        session = await self._database.transact(fork, "repeatable_read")
        self._watcher.publish(Signal("events", workspace, new_id))
        return session

    async def checkpoint(self, workspace: str, id: str) -> Checkpoint | None:
        sql = f"{CHECKPOINTS} WHERE session = ({PK})"
        rows = await self._database.fetch(sql, workspace, id)
        return decode_checkpoint(rows[0]) if rows else None

    async def purge(
        self,
        workspace: str,
        id: str,
        guard: Callable[[Session], None],
        *,
        replacement: Iterable[Event] | None = None,
    ) -> None:
        async def purge(connection: Connection) -> None:
            sql = "SELECT pk, row FROM sessions WHERE workspace = $1 AND id = $2 FOR UPDATE"
            pk, session = _decode_row(await connection.fetchrow(sql, workspace, id), id)
            guard(session)
            await connection.execute(_DELETE, pk)
            sql = "DELETE FROM records WHERE workspace = $1 AND kind = $2 AND id = $3"
            await connection.execute(sql, workspace, SHARE_KIND, share_record_id(id))
            if replacement is not None:
                changed = projection.project(workspace, id, replacement)
                batches = encode_batches(replacement)
                first = with_row_words(next(batches), changed)
                rows = await connection.fetch(*_insertion(changed, first, "0", ()))
                await add_batches(connection, _inserted(rows, changed), batches)
                return
            await connection.execute(_TOMBSTONE, workspace, id)
            await notify(connection, workspace, purge_notices(session))

        await self._database.transact(purge)
        kind: Literal["purged", "events"] = "purged" if replacement is None else "events"
        self._watcher.publish(Signal(kind, workspace, id))

    async def events(
        self,
        workspace: str,
        id: str,
        **window: Unpack[WindowOptions],
    ) -> list[Event]:
        selection = EventWindow(**window)
        low, high = seq_range(selection)
        where = f"session = ({PK}) AND seq > $3 AND seq <= $4"
        args: list[Any] = [workspace, id, low, high]
        for condition, value in (
            ("type = ANY({})", list(selection.types) or None),
            ("at >= {}", selection.since),
            ("at <= {}", selection.until),
        ):
            if value is not None:
                args.append(value)
                where += " AND " + condition.format(f"${len(args)}")
        sql = f"{_EVENTS} WHERE {where} ORDER BY seq {'DESC' if selection.backward else 'ASC'}"
        rows = await self._database.fetch(f"{sql} LIMIT ${len(args) + 1}", *args, selection.limit)
        if not rows:
            await self._must_exist(workspace, id)
        events = [as_event(row) for row in rows]
        return events[::-1] if selection.backward else events

    async def locate(self, workspace: str, id: str, event_id: str) -> int | None:
        sql = f"SELECT seq FROM events WHERE session = ({PK}) AND id = $3"
        rows = await self._database.fetch(sql, workspace, id, event_id)
        if not rows:
            await self._must_exist(workspace, id)
        return rows[0][0] if rows else None

    async def _must_exist(self, workspace: str, id: str) -> None:
        if not await self._database.fetch(PK, workspace, id):
            raise not_found(id)


def as_event(row: Row) -> Event:
    """Return the event of a row (seq, id, at, version, body)."""
    seq, id, at, version, body = row
    return Event(seq=seq, id=id, at=at, body=event.decode_body(body, version))


def _decode_row(row: Row | None, id: str) -> tuple[int, Session]:
    if row is None:
        raise not_found(id)
    return row[0], decode_session(row[1])


async def _lock(
    connection: Connection, workspace: str, id: str, lease: Lease | None
) -> tuple[int, Session]:
    """Return the session, locked until the transaction ends.

    With `lease`, the lease is locked as well, so it stays valid until then. The lock still lets
    other transactions refer to the session and add to its inbox.
    """
    sql = "SELECT s.pk, s.row FROM sessions s {} WHERE s.workspace = $1 AND s.id = $2 {}"
    if lease is None:
        sql = sql.format("", "FOR NO KEY UPDATE")
        return _decode_row(await connection.fetchrow(sql, workspace, id), id)
    sql = sql.format("JOIN leases l ON l.session = s.pk", f"AND {HAS_LEASE} FOR NO KEY UPDATE")
    row = await connection.fetchrow(sql, workspace, id, lease.holder, lease.epoch)
    if row is None and await connection.fetchrow(PK, workspace, id):
        raise lease_lost(lease)
    return _decode_row(row, id)


async def _put_checkpoint(
    connection: Connection, pk: int, session: Session, checkpoint: Checkpoint | None
) -> None:
    if checkpoint is None:
        return
    sql = """
        INSERT INTO imports
          (session, workspace, source, path, inode, "offset", tail_hash, extra)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        ON CONFLICT (session) DO UPDATE SET
          source = $3, path = $4, inode = $5, "offset" = $6, tail_hash = $7, extra = $8
    """
    await connection.execute(sql, pk, session.workspace, *encode_checkpoint(checkpoint))


async def _without_stored(connection: Connection, pk: int, drafts: Drafts) -> Drafts:
    """Return the drafts without those whose ids the session has already."""
    named = [draft.id for draft in drafts if isinstance(draft, Draft) and draft.id is not None]
    if not named:
        return drafts
    sql = "SELECT id FROM events WHERE session = $1 AND id = ANY($2)"
    stored = {id for (id,) in await connection.fetch(sql, pk, named)}
    return [draft for draft in drafts if not isinstance(draft, Draft) or draft.id not in stored]


_DELETE = f"""
    WITH {
    ", ".join(
        f"gone_{table} AS (DELETE FROM {table} WHERE session = $1)"
        for table in ("links", "events", "search", "leases", "inbox", "deltas", "imports")
    )
}
    DELETE FROM sessions WHERE pk = $1
"""
_TOMBSTONE = f"""
    WITH tombstone AS (INSERT INTO purged (change, workspace, id) VALUES ({CHANGE}, $1, $2))
    -- Rows that another transaction has locked are being deleted by it.
    DELETE FROM purged WHERE ctid = ANY (ARRAY (
      SELECT ctid FROM purged WHERE at < now() - interval '1 day'
      LIMIT 1000 FOR UPDATE SKIP LOCKED
    ))
"""


def _insertion(
    session: Session, events: Batch, born: str, notices: Sequence[Notice]
) -> tuple[Any, ...]:
    """Return a statement that creates a session with its events, unless its id exists."""
    values = {
        "workspace": session.workspace,
        "id": session.id,
        **columns(session),
        "row": codec.encode(session),
        "bytes": batch_bytes(events),
    }
    *placeholders, last = [f"${number}" for number in range(10, 11 + len(values))]
    stores = list(dict.fromkeys(session.memory_store_ids))
    sql = f"""
        WITH s AS (
          INSERT INTO sessions ({", ".join(values)}, change, born)
          VALUES ({", ".join(placeholders)}, {CHANGE}, {born})
          ON CONFLICT (workspace, id) DO NOTHING
          RETURNING pk, workspace, id, state, created_at, active_at
        ),
        {ADD},
        linked AS (
          INSERT INTO links (session, store, workspace, state, created_at, active_at, id)
          SELECT s.pk, m.store, s.workspace, s.state, s.created_at, s.active_at, s.id
          FROM s, unnest({last}::text[]) AS m (store)
        ),
        {notify_cte(11 + len(values), only_if="EXISTS (SELECT FROM s)")}
        SELECT pk FROM s
    """
    notified = notify_arguments((session.workspace, notice) for notice in notices)
    return sql, *events, *values.values(), stores, *notified


def _inserted(rows: list[Row], session: Session) -> int:
    if not rows:
        raise errors.Conflict(f"session {session.id} exists already", session=session.id)
    return int(rows[0][0])
