"""Sessions and their history.

Whoever appends locks the session's row, so the appends of one session stand in line and those of
different sessions do not meet. What a change writes, signal included, goes in one statement: with
the reading of the row and the two ends of the transaction, an append is four round trips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...model import clock, codec, errors, event, fold, text
from ...model.event import Draft, Event
from ...model.session import Session, decode_session
from ..base import MAX_SEQ, Decide, Drafts, Lease, Signal, begin, extend
from ..listing import columns
from .connection import Connection, Database, Row
from .turns import HELD, lease_lost
from .watch import NOTIFY, payload
from .words import vectors

# The id of the writing transaction; see `Lists.mark`.
_CHANGE = "pg_current_xact_id()::text::bigint"
_CHUNK = 2_000  # events written by one statement
_TOMBSTONES = "1 day"

# Events, and their words, for the session that `s` names.
_ADD = """
    added AS (
      INSERT INTO events (session, seq, id, at, type, version, body)
      SELECT s.pk, e.* FROM s, unnest(
        $1::int[], $2::text[], $3::bigint[], $4::text[], $5::int[], $6::bytea[]
      ) AS e
    ),
    indexed AS (
      INSERT INTO search (session, seq, part, words)
      SELECT s.pk, w.seq, w.part, w.words::tsvector
      FROM s, unnest($7::int[], $8::int[], $9::text[]) AS w (seq, part, words)
    )
"""


class Sessions:
    """The part of the store that makes, reads and changes sessions."""

    _database: Database

    async def create(self, workspace: str, id: str, drafts: Drafts) -> Session:
        session, events = begin(workspace, id, drafts, clock.now())
        return await self._insert(session, events)

    async def load(self, workspace: str, id: str, events: Sequence[Event]) -> Session:
        return await self._insert(fold.fold(workspace, id, events), events)

    async def _insert(self, session: Session, events: Sequence[Event]) -> Session:
        if len(events) <= _CHUNK:
            _one(await self._database.write(*_insertion(session, events)), session)
            return session

        async def insert(connection: Connection) -> None:
            _one(await connection.fetch(*_insertion(session, events[:_CHUNK])), session)
            pk = await connection.fetchval(_PK, session.workspace, session.id)
            await _add(connection, pk, events[_CHUNK:])

        await self._database.transact(insert)
        return session

    async def get(self, workspace: str, id: str) -> Session | None:
        sql = "SELECT row FROM sessions WHERE workspace = $1 AND id = $2"
        rows = await self._database.fetch(sql, workspace, id)
        return decode_session(rows[0][0]) if rows else None

    async def held(self, workspace: str, ids: Sequence[str]) -> set[str]:
        sql = "SELECT id FROM sessions WHERE workspace = $1 AND id = ANY($2)"
        return {id for (id,) in await self._database.fetch(sql, workspace, list(ids))}

    async def change(
        self,
        workspace: str,
        id: str,
        decide: Decide,
        *,
        lease: Lease | None = None,
        consume: Sequence[int] = (),
    ) -> tuple[Session, list[Event]]:
        async def change(connection: Connection) -> tuple[Session, list[Event]]:
            pk, session = await _lock(connection, workspace, id, lease)
            if consume:
                sql = "DELETE FROM inbox WHERE session = $1 AND number = ANY($2) RETURNING number"
                dropped = {number for (number,) in await connection.fetch(sql, pk, list(consume))}
                if dropped != set(consume):
                    raise errors.Conflict("that request was taken by somebody else already")
            drafts = await _unknown(connection, pk, decide(session))
            if not drafts:
                return session, []
            after, events = extend(session, drafts, clock.now())
            if after.last_seq > MAX_SEQ:
                raise errors.InvalidInput(
                    f"a session holds at most {MAX_SEQ} events; fork it to go on"
                )
            await _add(connection, pk, events[_CHUNK:])
            spent = [added.id for added in events] if lease is not None else []
            await connection.fetch(*_update(pk, after, events[:_CHUNK], spent))
            return after, events

        return await self._database.transact(change)

    async def fork(
        self, workspace: str, id: str, new_id: str, upto: int, created: Draft, tail: Decide
    ) -> Session:
        async def fork(connection: Connection) -> Session:
            sql = "SELECT pk, row FROM sessions WHERE workspace = $1 AND id = $2"
            found = await connection.fetchrow(sql, workspace, id)
            if found is None:
                raise not_found(id)
            parent, last = found[0], decode_session(found[1]).last_seq
            if not 1 <= upto <= last:
                raise errors.InvalidInput(f"session {id} has events 1 to {last}, no {upto}")
            at = clock.now()
            session, first = begin(workspace, new_id, [created], at)
            sql = _EVENTS + " WHERE session = $1 AND seq > 1 AND seq <= $2 ORDER BY seq"
            async for row in connection.cursor(sql, parent, upto, prefetch=_CHUNK):
                session = fold.apply(session, as_event(row))
            session, added = extend(session, tail(session), at)
            _one(await connection.fetch(*_insertion(session, first)), session)
            pk = await connection.fetchval(_PK, workspace, new_id)
            # The copies are made where the originals are; they came here to be counted only.
            for table, names in (
                ("events", "seq, id, at, type, version, body"),
                ("search", "seq, part, words"),
            ):
                sql = f"INSERT INTO {table} (session, {names}) SELECT $1, {names} FROM {table}"
                sql += " WHERE session = $2 AND seq > 1 AND seq <= $3"
                await connection.execute(sql, pk, parent, upto)
            await _add(connection, pk, added)
            return session

        # One snapshot: the parent goes on meanwhile, and need not wait for us.
        return await self._database.transact(fork, "repeatable_read")

    async def purge(self, workspace: str, id: str, guard: Callable[[Session], None]) -> None:
        async def purge(connection: Connection) -> None:
            sql = "SELECT pk, row FROM sessions WHERE workspace = $1 AND id = $2 FOR UPDATE"
            found = await connection.fetchrow(sql, workspace, id)
            if found is None:
                raise not_found(id)
            guard(decode_session(found[1]))
            for table in ("links", "events", "search", "leases", "inbox", "deltas"):
                await connection.execute(f"DELETE FROM {table} WHERE session = $1", found[0])
            await connection.execute("DELETE FROM sessions WHERE pk = $1", found[0])
            sql = f"INSERT INTO purged (change, workspace, id) VALUES ({_CHANGE}, $1, $2)"
            await connection.execute(sql, workspace, id)
            # Whoever else tidies up at this moment has the rows locked, and will do.
            await connection.execute(f"""
                DELETE FROM purged WHERE ctid = ANY (ARRAY (
                  SELECT ctid FROM purged WHERE at < now() - interval '{_TOMBSTONES}'
                  LIMIT 1000 FOR UPDATE SKIP LOCKED
                ))
            """)
            await connection.fetch(f"SELECT {NOTIFY}($1)", payload(Signal("purged", workspace, id)))

        await self._database.transact(purge)

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
        low = min(max(after, 0), MAX_SEQ)
        high = MAX_SEQ if before is None else min(max(before - 1, 0), MAX_SEQ)
        where = f"session = ({_PK}) AND seq > $3 AND seq <= $4"
        args: list[Any] = [workspace, id, low, high]
        for condition, value in (
            ("type = ANY({})", list(types) or None),
            ("at >= {}", since),
            ("at <= {}", until),
        ):
            if value is not None:
                args.append(value)
                where += " AND " + condition.format(f"${len(args)}")
        sql = f"{_EVENTS} WHERE {where} ORDER BY seq {'DESC' if backward else 'ASC'}"
        rows = await self._database.fetch(f"{sql} LIMIT ${len(args) + 1}", *args, limit)
        if not rows:
            await self._must_exist(workspace, id)
        found = [as_event(row) for row in rows]
        return found[::-1] if backward else found

    async def locate(self, workspace: str, id: str, event_id: str) -> int | None:
        sql = f"SELECT seq FROM events WHERE session = ({_PK}) AND id = $3"
        rows = await self._database.fetch(sql, workspace, id, event_id)
        if not rows:
            await self._must_exist(workspace, id)
        return rows[0][0] if rows else None

    async def _must_exist(self, workspace: str, id: str) -> None:
        if not await self._database.fetch(_PK, workspace, id):
            raise not_found(id)


_PK = "SELECT pk FROM sessions WHERE workspace = $1 AND id = $2"
_EVENTS = "SELECT seq, id, at, version, body FROM events"


def not_found(id: str) -> errors.NotFound:
    return errors.NotFound(f"no session {id}", session=id)


def as_event(row: Row) -> Event:
    seq, id, at, version, body = row
    return Event(seq=seq, id=id, at=at, body=event.decode_body(body, version))


def _one(rows: list[Row], session: Session) -> None:
    if not rows:
        raise errors.Conflict(f"session {session.id} exists already", session=session.id)


async def _lock(
    connection: Connection, workspace: str, id: str, lease: Lease | None
) -> tuple[int, Session]:
    """The session's row, which nobody else changes until the transaction ends.

    With `lease`, its row too: a lease that is good here stays good until then.
    """
    source, also = ("sessions s", "true") if lease is None else ...
    raise NotImplementedError


async def _unknown(connection: Connection, pk: int, drafts: Drafts) -> Drafts:
    """The drafts without those whose ids the session holds already."""
    named = [draft.id for draft in drafts if isinstance(draft, Draft) and draft.id is not None]
    if not named:
        return drafts
    sql = "SELECT id FROM events WHERE session = $1 AND id = ANY($2)"
    held = {id for (id,) in await connection.fetch(sql, pk, named)}
    return [draft for draft in drafts if not isinstance(draft, Draft) or draft.id not in held]


async def _add(connection: Connection, pk: int, events: Sequence[Event]) -> None:
    sql = f"WITH s AS (SELECT $10::bigint AS pk), {_ADD} SELECT"
    for start in range(0, len(events), _CHUNK):
        await connection.execute(sql, *_rows(events[start : start + _CHUNK]), pk)
