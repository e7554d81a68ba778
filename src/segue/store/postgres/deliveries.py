"""The queue of webhook deliveries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from segue.model import clock
from segue.model.record import Record
from segue.model.webhooks.delivery import Delivery, decode_delivery, encode_delivery
from segue.model.webhooks.notices import Notice, subscribed_types
from segue.store.rows import DELIVERIES

from .connection import Connection, Database

MAX_NUMBER = (1 << 63) - 1


def notify_cte(first: int, *, only_if: str = "true") -> str:
    """Return a CTE that queues notices; its four parameters begin with the number `first`."""
    types = ("text", "text", "bigint", "bytea")
    columns = ", ".join(f"${number}::{type}[]" for number, type in enumerate(types, first))
    return f"""
    notified AS (
      INSERT INTO deliveries (workspace, webhook, due_at, row)
      SELECT w.workspace, w.webhook, n.at, n.row
      FROM unnest({columns}) WITH ORDINALITY AS n (workspace, type, at, row, position)
      JOIN subscriptions w
        ON w.workspace = n.workspace COLLATE "C" AND w.type = n.type COLLATE "C"
      WHERE {only_if}
      ORDER BY n.position
    )
"""


def notify_arguments(notices: Iterable[tuple[str, Notice]]) -> list[list[Any]]:
    """Return the parameters of `notify_cte` for notices of workspaces."""
    at = clock.now()
    columns: list[list[Any]] = [[], [], [], []]
    for workspace, notice in notices:
        row = encode_delivery(notice.delivery(at))
        for column, value in zip(columns, (workspace, notice.type, at, row), strict=True):
            column.append(value)
    return columns


_NOTIFY = f"WITH {notify_cte(1)} SELECT"


async def notify(connection: Connection, workspace: str, notices: Sequence[Notice]) -> None:
    """Queue notices for the webhooks that announce their types."""
    if notices:
        arguments = notify_arguments((workspace, notice) for notice in notices)
        await connection.fetch(_NOTIFY, *arguments)


async def subscribe(connection: Connection, record: Record) -> None:
    """Store which types a webhook announces."""
    await _unsubscribe(connection, record.workspace, record.id)
    sql = "INSERT INTO subscriptions (workspace, type, webhook) SELECT $1, unnest($2::text[]), $3"
    types = list(subscribed_types(record))
    await connection.execute(sql, record.workspace, types, record.id)


async def drop(connection: Connection, workspace: str, webhook: str) -> None:
    """Delete the deliveries of a webhook that was deleted."""
    await _unsubscribe(connection, workspace, webhook)
    sql = "DELETE FROM deliveries WHERE workspace = $1 AND webhook = $2"
    await connection.execute(sql, workspace, webhook)


async def _unsubscribe(connection: Connection, workspace: str, webhook: str) -> None:
    sql = "DELETE FROM subscriptions WHERE workspace = $1 AND webhook = $2"
    await connection.execute(sql, workspace, webhook)


class Deliveries:
    """Read and write deliveries."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def notify(self, workspace: str, notices: Sequence[Notice]) -> None:
        arguments = notify_arguments((workspace, notice) for notice in notices)
        await self._database.write(_NOTIFY, *arguments)

    async def put_delivery(self, delivery: Delivery) -> Delivery:
        sql = "INSERT INTO deliveries (workspace, webhook, due_at, row) VALUES ($1, $2, $3, $4)"
        values = (delivery.workspace, delivery.webhook, delivery.due_at, encode_delivery(delivery))
        ((number,),) = await self._database.write(f"{sql} RETURNING number", *values)
        return replace(delivery, number=number)

    async def next_delivery(self) -> int | None:
        sql = "SELECT due_at FROM deliveries WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1"
        rows = await self._database.fetch(sql)
        return rows[0][0] if rows else None

    async def claim_deliveries(self, *, now: int, until: int, limit: int) -> list[Delivery]:
        sql = """
            UPDATE deliveries SET due_at = $2 WHERE number IN (
              SELECT number FROM deliveries WHERE due_at <= $1
              ORDER BY due_at, number LIMIT $3 FOR UPDATE SKIP LOCKED
            )
            RETURNING number, workspace, webhook, due_at, row
        """
        rows = await self._database.write(sql, now, until, limit)
        return [decode_delivery(*row) for row in sorted(rows, key=lambda row: row[0])]

    async def save_deliveries(self, saved: Sequence[Delivery]) -> None:
        sql = """
            UPDATE deliveries SET due_at = v.due_at, row = v.row
            FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS v (number, due_at, row)
            WHERE deliveries.number = ANY($1) AND deliveries.number = v.number
        """
        # In order, so that two processes do not wait for each other in a circle.
        ordered = sorted(saved, key=lambda delivery: delivery.number)
        numbers = [delivery.number for delivery in ordered]
        times = [delivery.due_at for delivery in ordered]
        await self._database.write(sql, numbers, times, list(map(encode_delivery, ordered)))

    async def deliveries(
        self, workspace: str, webhook: str, *, before: int | None = None, limit: int = 50
    ) -> list[Delivery]:
        sql = f"{DELIVERIES} WHERE workspace = $1 AND webhook = $2 AND number < $3"
        sql += " ORDER BY number DESC LIMIT $4"
        before = MAX_NUMBER if before is None else before
        rows = await self._database.fetch(sql, workspace, webhook, before, limit)
        return [decode_delivery(*row) for row in rows]

    async def trim_deliveries(
        self, workspace: str, webhook: str, *, finished: int, pending: int
    ) -> None:
        for condition, kept in (("IS NULL", finished), ("IS NOT NULL", pending)):
            sql = f"""
                DELETE FROM deliveries WHERE number IN (
                  SELECT number FROM deliveries
                  WHERE workspace = $1 AND webhook = $2 AND due_at {condition}
                  ORDER BY number DESC OFFSET $3
                )
            """
            await self._database.write(sql, workspace, webhook, kept)
