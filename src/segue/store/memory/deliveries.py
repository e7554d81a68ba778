"""The queue of webhook deliveries of the store in memory."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from segue.model import clock
from segue.model.record import Record
from segue.model.webhooks.delivery import Delivery, decode_delivery, encode_delivery
from segue.model.webhooks.notices import (
    Notice,
    is_announced,
    record_notices,
    subscribed_types,
)
from segue.store.base import WEBHOOK_KIND


class MemoryDeliveries:
    """Deliveries by number, and the types that each webhook announces."""

    def __init__(self) -> None:
        self._types: dict[tuple[str, str], tuple[str, ...]] = {}
        self._deliveries: dict[int, Delivery] = {}
        self._number = 0

    def queue(self, workspace: str, notices: Sequence[Notice]) -> None:
        """Queue notices for the webhooks that announce their types."""
        now = clock.now()
        for notice in notices:
            delivery = replace(notice.delivery(now), workspace=workspace, due_at=now)
            for (owner, webhook), types in sorted(self._types.items()):
                if owner == workspace and notice.type in types:
                    self._add(replace(delivery, webhook=webhook))

    def record_changed(self, before: Record | None, after: Record | None) -> None:
        """Queue the notices of a record, and store what it announces if it is a webhook."""
        record = after or before
        if record is None:
            return
        if is_announced(record.kind):
            self.queue(record.workspace, record_notices(before, after))
        if record.kind == WEBHOOK_KIND:
            name = record.workspace, record.id
            self._types[name] = () if after is None else subscribed_types(after)
            if after is None:
                for number, delivery in list(self._deliveries.items()):
                    if (delivery.workspace, delivery.webhook) == name:
                        del self._deliveries[number]

    async def notify(self, workspace: str, notices: Sequence[Notice]) -> None:
        self.queue(workspace, notices)

    async def put_delivery(self, delivery: Delivery) -> Delivery:
        return self._add(delivery)

    async def next_delivery(self) -> int | None:
        return min(
            (d.due_at for d in self._deliveries.values() if d.due_at is not None), default=None
        )

    async def claim_deliveries(self, *, now: int, until: int, limit: int) -> list[Delivery]:
        due = [
            (delivery.due_at, number)
            for number, delivery in self._deliveries.items()
            if delivery.due_at is not None and delivery.due_at <= now
        ]
        claimed = [
            replace(self._deliveries[number], due_at=until) for _, number in sorted(due)[:limit]
        ]
        await self.save_deliveries(claimed)
        return claimed

    async def save_deliveries(self, saved: Sequence[Delivery]) -> None:
        for delivery in saved:
            if delivery.number in self._deliveries:
                self._deliveries[delivery.number] = _stored(delivery)

    async def deliveries(
        self, workspace: str, webhook: str, *, before: int | None = None, limit: int = 50
    ) -> list[Delivery]:
        numbers = [
            number
            for number, delivery in self._deliveries.items()
            if (delivery.workspace, delivery.webhook) == (workspace, webhook)
            and (before is None or number < before)
        ]
        return [self._deliveries[number] for number in sorted(numbers, reverse=True)[:limit]]

    async def trim_deliveries(
        self, workspace: str, webhook: str, *, finished: int, pending: int
    ) -> None:
        rows = await self.deliveries(workspace, webhook, limit=len(self._deliveries))
        done = [row for row in rows if row.due_at is None]
        waiting = [row for row in rows if row.due_at is not None]
        for row in (*done[finished:], *waiting[pending:]):
            del self._deliveries[row.number]

    def _add(self, delivery: Delivery) -> Delivery:
        self._number += 1
        stored = _stored(replace(delivery, number=self._number))
        self._deliveries[stored.number] = stored
        return stored


def _stored(delivery: Delivery) -> Delivery:
    """Return a delivery as a store that encodes it would."""
    row = encode_delivery(delivery)
    columns = delivery.number, delivery.workspace, delivery.webhook, delivery.due_at
    return decode_delivery(*columns, row)
