"""Contract: changes queue notices for webhooks, and processes claim and store deliveries."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from segue.model import clock, ids
from segue.model.errors import Conflict
from segue.model.event import InfoChanged, StatusChanged
from segue.model.record import Record
from segue.model.webhooks.delivery import Attempt, Delivery
from segue.model.webhooks.notices import TYPES, Notice
from segue.store.base import WEBHOOK_KIND, Store

from .harness import OTHER_WORKSPACE, WORKSPACE, Contract, allow_purge, create_session
from .records import new_record


async def put_webhook(
    store: Store, *types: str, workspace: str = WORKSPACE, enabled: bool = True
) -> Record:
    body = {"event_types": list(types), "enabled": enabled}
    record = new_record(kind=WEBHOOK_KIND, workspace=workspace, body=body)
    return await store.put_record(record)


async def queued(store: Store, webhook: Record) -> list[Delivery]:
    """Return the deliveries of a webhook, oldest first."""
    return (await store.deliveries(webhook.workspace, webhook.id, limit=1000))[::-1]


class DeliveryContract(Contract):
    async def test_changes_of_a_session_are_queued_by_type(self, store: Store) -> None:
        every = await put_webhook(store, *TYPES)
        some = await put_webhook(store, "session.deleted", "session.created")
        disabled = await put_webhook(store, *TYPES, enabled=False)
        foreign = await put_webhook(store, *TYPES, workspace=OTHER_WORKSPACE)
        session = await create_session(store)
        for body in (
            StatusChanged(status="running", turn=ids.new_id()),
            StatusChanged(status="idle", stop_reason="requires_action"),
            InfoChanged(title="t"),
            InfoChanged(archived=True),
        ):
            await store.change(WORKSPACE, session.id, lambda _, body=body: [body])  # type: ignore[misc]
        await store.purge(WORKSPACE, session.id, allow_purge)
        deliveries = await queued(store, every)
        assert [delivery.type for delivery in deliveries] == [
            "session.created",
            "session.status_run_started",
            "session.running",
            "session.status_idled",
            "session.idled",
            "session.requires_action",
            "session.updated",
            "session.archived",
            "session.status_terminated",
            "session.deleted",
        ]
        assert {delivery.object_ids["id"] for delivery in deliveries} == {session.id}
        others = await queued(store, some)
        assert [delivery.type for delivery in others] == ["session.created", "session.deleted"]
        assert [delivery.event for delivery in others] == [
            deliveries[0].event,
            deliveries[-1].event,
        ]
        assert await queued(store, disabled) == await queued(store, foreign) == []

    async def test_changes_of_records_are_queued_unless_they_fail(self, store: Store) -> None:
        webhook = await put_webhook(store, *TYPES)
        environment = await store.put_record(new_record(kind="environment"))
        changed = replace(environment, version=2, body={"name": "b"})
        await store.put_record(changed)
        with pytest.raises(Conflict):
            await store.put_record(changed)
        credential = new_record(kind="credential:v")
        await store.put_records([credential], drop=[changed])
        types = [delivery.type for delivery in await queued(store, webhook)]
        assert types == [
            "environment.created",
            "environment.updated",
            "vault_credential.created",
            "environment.deleted",
        ]
        row = (await queued(store, webhook))[2]
        assert row.object_ids == {"id": credential.id, "vault_id": "v"}

    async def test_changed_webhook_announces_its_new_types_only(self, store: Store) -> None:
        webhook = await put_webhook(store, "agent.created")
        body = {"event_types": ["vault.created"], "enabled": True}
        webhook = await store.put_record(replace(webhook, version=2, body=body), drop_earlier=True)
        await store.put_record(new_record(kind="agent"))
        await store.put_record(new_record(kind="vault"))
        assert [row.type for row in await queued(store, webhook)] == ["vault.created"]
        await store.put_records([], drop=[webhook])
        assert await queued(store, webhook) == []
        await store.put_record(new_record(kind="vault"))
        assert await store.next_delivery() is None

    async def test_delivery_is_claimed_once_until_its_claim_ends(self, store: Store) -> None:
        webhook = await put_webhook(store, "agent.created")
        assert await store.next_delivery() is None
        notices = [Notice("agent.created", {"id": ids.new_id()}) for _ in range(3)]
        await store.notify(WORKSPACE, notices)
        now = clock.now() + clock.SECOND
        due_at = await store.next_delivery()
        assert due_at is not None and due_at <= now
        first = await store.claim_deliveries(now=now, until=now + 10, limit=2)
        second = await store.claim_deliveries(now=now, until=now + 20, limit=2)
        assert [row.object_ids for row in (*first, *second)] == [n.object_ids for n in notices]
        assert await store.claim_deliveries(now=now, until=now + 30, limit=2) == []
        assert await store.next_delivery() == now + 10
        attempt = Attempt(at=now, ms=3, status=200)
        done = replace(first[0], due_at=None, status="delivered", attempts=(attempt,))
        await store.save_deliveries([done, replace(second[0], due_at=now + 40)])
        again = await store.claim_deliveries(now=now + 15, until=now + 50, limit=9)
        assert [row.number for row in again] == [first[1].number]
        assert (await queued(store, webhook))[0] == done

    async def test_old_deliveries_are_trimmed(self, store: Store) -> None:
        webhook, other = await put_webhook(store), await put_webhook(store)
        rows = []
        for number in range(6):
            for target in (webhook, other):
                delivery = Delivery(
                    event=ids.new_id(),
                    type="agent.created",
                    at=number,
                    object_ids={"id": ids.new_id()},
                    workspace=WORKSPACE,
                    webhook=target.id,
                    due_at=None if number % 2 else number,
                )
                rows.append(await store.put_delivery(delivery))
        await store.trim_deliveries(WORKSPACE, webhook.id, finished=1, pending=2)
        assert [row.at for row in await queued(store, webhook)] == [2, 4, 5]
        assert len(await queued(store, other)) == 6
        page = await store.deliveries(WORKSPACE, other.id, before=rows[5].number, limit=2)
        assert [row.at for row in page] == [1, 0]
