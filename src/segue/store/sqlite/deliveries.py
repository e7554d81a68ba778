"""The queue of webhook deliveries: writes, each run in a transaction of the writer."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from segue.model.record import Record
from segue.model.webhooks.delivery import Delivery, decode_delivery, encode_delivery
from segue.model.webhooks.notices import Notice, subscribed_types
from segue.store.rows import DELIVERIES

from .writer import Transaction


def notify(tx: Transaction, workspace: str, notices: Sequence[Notice]) -> None:
    """Queue notices for the webhooks that announce their types."""
    sql = "SELECT webhook FROM subscriptions WHERE workspace = ? AND type = ?"
    for notice in notices:
        webhooks = tx.execute(sql, (workspace, notice.type)).fetchall()
        if webhooks:
            delivery = replace(notice.delivery(tx.at), workspace=workspace, due_at=tx.at)
            for (webhook,) in webhooks:
                put(tx, replace(delivery, webhook=webhook))


def put(tx: Transaction, delivery: Delivery) -> Delivery:
    sql = "INSERT INTO deliveries (workspace, webhook, due_at, row) VALUES (?, ?, ?, ?)"
    values = (delivery.workspace, delivery.webhook, delivery.due_at, _row(delivery))
    number = tx.execute(sql, values).lastrowid
    assert number is not None
    return replace(delivery, number=number)


def claim(tx: Transaction, *, now: int, until: int, limit: int) -> list[Delivery]:
    sql = (
        f"{DELIVERIES} INDEXED BY deliveries_due WHERE due_at <= ? ORDER BY due_at, number LIMIT ?"
    )
    claimed = [decode_delivery(*row) for row in tx.execute(sql, (now, limit)).fetchall()]
    sql = "UPDATE deliveries SET due_at = ? WHERE number = ?"
    tx.connection.executemany(sql, [(until, delivery.number) for delivery in claimed])
    return [replace(delivery, due_at=until) for delivery in claimed]


def save(tx: Transaction, deliveries: Sequence[Delivery]) -> None:
    sql = "UPDATE deliveries SET due_at = ?, row = ? WHERE number = ?"
    values = [(delivery.due_at, _row(delivery), delivery.number) for delivery in deliveries]
    tx.connection.executemany(sql, values)


def trim(tx: Transaction, workspace: str, webhook: str, *, finished: int, pending: int) -> None:
    for condition, kept in (("IS NULL", finished), ("IS NOT NULL", pending)):
        sql = f"""
            DELETE FROM deliveries WHERE number IN (
              SELECT number FROM deliveries INDEXED BY deliveries_log
              WHERE workspace = ? AND webhook = ? AND due_at {condition}
              ORDER BY number DESC LIMIT -1 OFFSET ?
            )
        """
        tx.execute(sql, (workspace, webhook, kept))


def subscribe(tx: Transaction, record: Record) -> None:
    """Store which types a webhook announces."""
    unsubscribe(tx, record.workspace, record.id)
    values = [(record.workspace, type, record.id) for type in subscribed_types(record)]
    tx.connection.executemany("INSERT INTO subscriptions VALUES (?, ?, ?)", values)


def unsubscribe(tx: Transaction, workspace: str, webhook: str) -> None:
    sql = "DELETE FROM subscriptions WHERE workspace = ? AND webhook = ?"
    tx.execute(sql, (workspace, webhook))


def drop(tx: Transaction, workspace: str, webhook: str) -> None:
    """Delete the deliveries of a webhook that was deleted."""
    unsubscribe(tx, workspace, webhook)
    tx.execute("DELETE FROM deliveries WHERE workspace = ? AND webhook = ?", (workspace, webhook))


def _row(delivery: Delivery) -> str:
    return encode_delivery(delivery).decode()
