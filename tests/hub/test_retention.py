"""Archive, trash and purge old sessions."""

from collections.abc import Callable

import pytest

from segue.hub import Hub
from segue.hub.sessions.retention import RetentionPolicy
from segue.model import clock, ids
from segue.model.errors import InvalidInput, NotFound
from segue.model.event import (
    Created,
    Draft,
    InfoChanged,
    StatusChanged,
)
from segue.model.principal import LOCAL, Principal

MakeHub = Callable[..., Hub]
OTHER = Principal(workspace="other")


async def _create_aged(hub: Hub, days: int, *bodies: object) -> str:
    at = clock.now() - days * clock.DAY
    id = ids.new_id()
    drafts = [Draft(body=body, at=at) for body in (Created(cwd="/p"), *bodies)]
    await hub.store.create("local", id, drafts)
    return id


async def test_retention_is_off_by_default(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        await _create_aged(hub, 4000)
        await _create_aged(hub, 4000, InfoChanged(archived=True))
        assert await hub.retention.prune(LOCAL) == []


async def test_retention_archives_trashes_and_purges_sessions_by_age(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        await hub.retention.set_policy(
            LOCAL, RetentionPolicy(archive_after=30, delete_after=60, purge_after=7)
        )
        old, recent = await _create_aged(hub, 31), await _create_aged(hub, 29)
        running = await _create_aged(hub, 31, StatusChanged(status="running", turn="t"))
        archived = await _create_aged(hub, 61, InfoChanged(archived=True))
        old_trash = await _create_aged(hub, 8, InfoChanged(deleted=True))
        recent_trash = await _create_aged(hub, 6, InfoChanged(deleted=True))
        expected = {("archive", old), ("delete", archived), ("purge", old_trash)}
        planned = await hub.retention.prune(LOCAL, dry_run=True)
        assert {(step.action, step.session.id) for step in planned} == expected
        assert (await hub.sessions.get(LOCAL, old)).state == "active"
        done = await hub.retention.prune(LOCAL)
        assert {(step.action, step.session.id) for step in done} == expected
        states = [
            (await hub.sessions.get(LOCAL, id)).state for id in (old, recent, running, archived)
        ]
        assert states == ["archived", "active", "active", "trashed"]
        assert (await hub.sessions.get(LOCAL, recent_trash)).state == "trashed"
        with pytest.raises(NotFound):
            await hub.sessions.get(LOCAL, old_trash)
        assert await hub.retention.prune(OTHER) == []


async def test_retention_policy_rejects_zero_days() -> None:
    with pytest.raises(InvalidInput):
        RetentionPolicy(archive_after=0)
