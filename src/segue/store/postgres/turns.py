"""The state of turns: leases, the inbox, deltas and acknowledgements.

Acquiring a lease and appending under it both lock the lease's row, so a process that lost its lease
writes nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from segue.model import clock, codec
from segue.model.event import Delta
from segue.store.base import (
    ENDED_HOLDER,
    InboxItem,
    InboxKind,
    Lease,
    Signal,
    lease_lost,
    not_found,
)
from segue.store.rows import (
    DELTAS,
    INBOX_ITEMS,
    LEASES,
    WAITING,
    decode_delta,
    decode_inbox_item,
    decode_lease,
)

from .connection import Database, Row
from .sql import HAS_LEASE, PK
from .watch import Watcher

# For changes that need not survive a crash of the server: the commit does not wait for the disk.
_NO_SYNC = "set_config('synchronous_commit', 'off', true)"


class TurnState:
    """Read and write leases, inbox items, deltas and acknowledgements."""

    def __init__(self, database: Database, watcher: Watcher) -> None:
        self._database = database
        self._watcher = watcher

    async def acquire(
        self, workspace: str, id: str, holder: str, *, over: Lease | None = None
    ) -> Lease | None:
        # The lock prevents that the session is purged meanwhile.
        sql = f"""
            WITH s AS ({PK} FOR KEY SHARE),
            taken AS (
              INSERT INTO leases AS l (session, holder, epoch, renewals)
              SELECT pk, $3, 1, 0 FROM s
              ON CONFLICT (session) DO UPDATE SET
                holder = $3,
                epoch = l.epoch + (l.holder <> $3)::int,
                renewals = CASE WHEN l.holder = $3 THEN l.renewals ELSE 0 END
              WHERE l.holder = $3 OR l.holder = ''
                OR (l.holder = $4 AND l.epoch = $5 AND l.renewals = $6)
              RETURNING epoch, renewals
            )
            SELECT taken.epoch, taken.renewals FROM s LEFT JOIN taken ON true
        """
        died = ("", 0, 0)
        if over is not None and (over.workspace, over.session) == (workspace, id):
            died = (over.holder, over.epoch, over.renewals)
        rows = await self._database.write(sql, workspace, id, holder, *died)
        if not rows:
            raise not_found(id)
        ((epoch, renewals),) = rows
        if epoch is None:
            return None
        return decode_lease((workspace, id, holder, epoch, renewals))

    async def renew(self, holder: str) -> set[tuple[str, str]]:
        sql = f"""
            WITH renewed AS (
              UPDATE leases SET renewals = renewals + 1
              WHERE holder = $1 AND holder <> '' RETURNING session
            )
            SELECT s.workspace, s.id, {_NO_SYNC} FROM renewed r JOIN sessions s ON s.pk = r.session
        """
        rows = await self._database.write(sql, holder)
        return {(workspace, id) for workspace, id, _ in rows}

    async def release(self, lease: Lease) -> None:
        sql = f"""
            WITH released AS (
              UPDATE leases SET holder = ''
              WHERE session = ({PK}) AND holder = $3 AND epoch = $4 RETURNING session
            ),
            cleared AS (DELETE FROM deltas d USING released r WHERE d.session = r.session)
            SELECT {_NO_SYNC} FROM released
        """
        name = lease.workspace, lease.session
        if await self._database.write(sql, *name, lease.holder, lease.epoch):
            self._watcher.publish(Signal("inbox", *name))

    async def lease_of(self, workspace: str, id: str) -> Lease | None:
        sql = f"{LEASES} AND s.workspace = $1 AND s.id = $2"
        return next(map(decode_lease, await self._database.fetch(sql, workspace, id)), None)

    async def leases(self) -> list[Lease]:
        return [decode_lease(row) for row in await self._database.fetch(LEASES)]

    async def put_inbox(
        self,
        workspace: str,
        id: str,
        kind: InboxKind,
        item_id: str,
        body: dict[str, Any],
        holder: str = "",
    ) -> InboxItem:
        at, data = clock.now(), codec.encode(body)
        # Of two answers to one request, each client must see the one with the lower number.
        lock = "NO KEY UPDATE" if kind in ("answer", "result") else "KEY SHARE"
        sql = f"""
            WITH s AS ({PK} FOR {lock}),
            put AS (
              INSERT INTO inbox (session, workspace, kind, id, at, body, holder)
              SELECT pk, $1, $3, $4, $5, $6, $7 FROM s RETURNING number
            )
            SELECT number FROM put
        """
        rows = await self._database.write(sql, workspace, id, kind, item_id, at, data, holder)
        if not rows:
            raise not_found(id)
        self._watcher.publish(Signal("inbox", workspace, id))
        number = rows[0][0]
        return InboxItem(
            number=number, session=id, kind=kind, id=item_id, at=at, body=body, holder=holder
        )

    async def inbox(self, workspace: str, id: str) -> list[InboxItem]:
        rows = await self._rows_of_session(workspace, id, INBOX_ITEMS)
        return [decode_inbox_item(id, row) for row in rows]

    async def drop_inbox(self, workspace: str, id: str, numbers: Sequence[int]) -> set[int]:
        sql = f"""
            WITH s AS ({PK}),
            dropped AS (
              DELETE FROM inbox USING s
              WHERE session = s.pk AND number = ANY($3) AND kind <> 'turn' RETURNING number
            )
            SELECT dropped.number FROM s LEFT JOIN dropped ON true
        """
        rows = await self._database.write(sql, workspace, id, list(numbers))
        if not rows:
            raise not_found(id)
        return {number for (number,) in rows if number is not None}

    async def ack(self, workspace: str, id: str, seq: int) -> None:
        sql = "UPDATE sessions SET acked_seq = greatest(acked_seq, $3)"
        sql += " WHERE workspace = $1 AND id = $2"
        if not await self._database.write(f"{sql} RETURNING pk", workspace, id, seq):
            raise not_found(id)

    async def acked_seq(self, workspace: str, id: str) -> int:
        sql = "SELECT acked_seq FROM sessions WHERE workspace = $1 AND id = $2"
        rows = await self._database.fetch(sql, workspace, id)
        if not rows:
            raise not_found(id)
        return int(rows[0][0])

    async def disown_inbox(self, holder: str) -> None:
        sql = """
            WITH disowned AS (
              UPDATE inbox SET holder = CASE kind WHEN 'turn' THEN $2 ELSE '' END
              WHERE holder = $1 AND holder <> '' RETURNING session
            )
            SELECT DISTINCT s.workspace, s.id FROM disowned d JOIN sessions s ON s.pk = d.session
        """
        for workspace, id in await self._database.write(sql, holder, ENDED_HOLDER):
            self._watcher.publish(Signal("inbox", workspace, id))

    async def waiting(self) -> list[tuple[str, str]]:
        return [(workspace, id) for workspace, id in await self._database.fetch(WAITING)]

    async def put_deltas(self, lease: Lease, deltas: Sequence[Delta]) -> None:
        # The lock prevents that the lease or the session is deleted meanwhile.
        sql = f"""
            WITH held AS (
              SELECT l.session FROM sessions s JOIN leases l ON l.session = s.pk
              WHERE s.workspace = $1 AND s.id = $2 AND {HAS_LEASE} FOR KEY SHARE OF l
            ),
            put AS (
              INSERT INTO deltas (session, message, kind, "offset", text)
              SELECT held.session, d.message, d.kind, d.place, d.text
              FROM held, unnest($5::text[], $6::text[], $7::bigint[], $8::bytea[])
                WITH ORDINALITY AS d (message, kind, place, text, number)
              ORDER BY d.number
            )
            SELECT {_NO_SYNC} FROM held
        """
        name = lease.workspace, lease.session
        rows = await self._database.write(
            sql,
            *name,
            lease.holder,
            lease.epoch,
            [delta.message for delta in deltas],
            [delta.kind for delta in deltas],
            [delta.offset for delta in deltas],
            [delta.text.encode("utf-8", "surrogatepass") for delta in deltas],
        )
        if not rows:
            known = await self._database.fetch(PK, *name)
            raise lease_lost(lease) if known else not_found(lease.session)
        self._watcher.publish(Signal("deltas", *name))

    async def deltas(self, workspace: str, id: str) -> list[Delta]:
        rows = await self._rows_of_session(workspace, id, DELTAS)
        return [decode_delta(id, row) for row in rows]

    async def new_deltas(self, workspace: str, id: str, after: int) -> tuple[list[Delta], int]:
        sql = f"""
            WITH s AS ({PK})
            SELECT t.* FROM s
            LEFT JOIN LATERAL ({DELTAS} WHERE session = s.pk AND number > $3) t ON true
            ORDER BY t.number
        """
        joined_rows = await self._database.fetch(sql, workspace, id, after)
        if not joined_rows:
            raise not_found(id)
        rows = [row for row in joined_rows if row[0] is not None]
        return [decode_delta(id, row) for row in rows], rows[-1][0] if rows else after

    async def _rows_of_session(self, workspace: str, id: str, sql: str) -> list[Row]:
        """Return the rows that belong to a session, in the order of their numbers."""
        sql = f"""
            WITH s AS ({PK})
            SELECT t.* FROM s LEFT JOIN LATERAL ({sql} WHERE session = s.pk) t ON true
            ORDER BY t.number
        """
        rows = await self._database.fetch(sql, workspace, id)
        if not rows:
            raise not_found(id)
        return [row for row in rows if row[0] is not None]
