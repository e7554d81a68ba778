"""Contract: API keys, records, files, overlays and settings."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from segue.model import ids
from segue.model.errors import Conflict
from segue.model.principal import ApiKey
from segue.model.query import Position
from segue.model.record import Record
from segue.store.base import SHARE_KIND, Store, share_record_id

from .harness import (
    FAR_FUTURE,
    OTHER_WORKSPACE,
    WORKSPACE,
    Contract,
    OpenStore,
    allow_purge,
    at,
    create_session,
)


def new_key(name: str, workspace: str = WORKSPACE) -> ApiKey:
    return ApiKey(
        id=ids.new_id(),
        workspace=workspace,
        name=name,
        digest=b"\0\xff" + name.encode(),
        hint=name[-4:],
        created_at=at(0),
    )


def new_record(seconds: float = 0, **fields: Any) -> Record:
    defaults: dict[str, Any] = {
        "workspace": WORKSPACE,
        "kind": "agent",
        "id": ids.new_id(),
        "version": 1,
        "created_at": at(seconds),
        "updated_at": at(seconds),
    }
    return Record(**{**defaults, **fields})


class RecordContract(Contract):
    # keys

    async def test_a_key_is_found_by_its_digest(self, store: Store) -> None:
        key = new_key("one")
        await store.put_key(key)
        await store.put_key(new_key("two"))
        assert await store.find_key(key.digest) == key
        assert await store.find_key(b"unknown") is None

    async def test_keys_are_listed_by_workspace_or_all(self, store: Store) -> None:
        one, two, elsewhere = new_key("one"), new_key("two"), new_key("there", OTHER_WORKSPACE)
        for key in (two, elsewhere, one):
            await store.put_key(key)
        assert await store.keys(WORKSPACE) == [one, two]
        assert await store.keys(OTHER_WORKSPACE) == [elsewhere]
        assert await store.keys() == [one, two, elsewhere]
        assert await store.keys("nowhere") == []

    async def test_key_is_revoked_once_and_only_in_its_workspace(self, store: Store) -> None:
        key = new_key("one")
        await store.put_key(key)
        assert not await store.revoke_key(OTHER_WORKSPACE, key.id, at(5))
        assert await store.find_key(key.digest) == key
        assert await store.revoke_key(WORKSPACE, key.id, at(5))
        assert await store.find_key(key.digest) == replace(key, revoked_at=at(5))
        assert not await store.revoke_key(WORKSPACE, key.id, at(6))
        assert not await store.revoke_key(WORKSPACE, ids.new_id(), at(6))
        assert await store.keys(WORKSPACE) == [replace(key, revoked_at=at(5))]

    # records

    async def test_every_version_of_a_record_is_stored(self, store: Store) -> None:
        first = new_record(body={"model": "m", "tools": [{"name": "x"}]})
        second = replace(first, version=2, updated_at=at(9), body={"model": "n"})
        assert await store.put_record(first) == first
        assert await store.put_record(second) == second
        assert await store.get_record(WORKSPACE, "agent", first.id) == second
        assert await store.get_record(WORKSPACE, "agent", first.id, 1) == first
        assert await store.get_record(WORKSPACE, "agent", first.id, 2) == second
        assert await store.get_record(WORKSPACE, "agent", first.id, 3) is None

    async def test_version_with_the_wrong_number_conflicts(self, store: Store) -> None:
        record = new_record()
        for version in (2, 0):
            with pytest.raises(Conflict):
                await store.put_record(replace(record, version=version))
        assert await store.get_record(WORKSPACE, "agent", record.id) is None
        await store.put_record(record)
        for version in (1, 3):
            with pytest.raises(Conflict):
                await store.put_record(replace(record, version=version, body={"new": True}))
        assert await store.get_record(WORKSPACE, "agent", record.id) == record

    async def test_amending_replaces_the_newest_version(self, store: Store) -> None:
        first = new_record()
        second = replace(first, version=2)
        await store.put_record(first)
        await store.put_record(second)
        amended = replace(second, archived_at=at(5), body={"note": "archived"})
        assert await store.put_record(amended, amend=True) == amended
        assert await store.get_record(WORKSPACE, "agent", first.id) == amended
        assert await store.get_record(WORKSPACE, "agent", first.id, 1) == first
        for version in (1, 3):
            with pytest.raises(Conflict):
                await store.put_record(replace(first, version=version), amend=True)
        assert await store.get_record(WORKSPACE, "agent", first.id) == amended

    async def test_new_version_does_not_restore_an_archived_record(self, store: Store) -> None:
        first = new_record()
        await store.put_record(first)
        archived = await store.put_record(replace(first, archived_at=at(5)), amend=True)
        second = replace(first, version=2, body={"new": True})
        for write in (store.put_record(second), store.put_records([second])):
            with pytest.raises(Conflict):
                await write
        assert await store.get_record(WORKSPACE, "agent", first.id) == archived
        second = replace(second, archived_at=at(5))
        assert await store.put_record(second) == second

    async def test_drop_earlier_leaves_only_the_newest_version(self, store: Store) -> None:
        first = new_record()
        second = replace(first, version=2, body={"new": True})
        await store.put_record(first)
        assert await store.put_record(second, drop_earlier=True) == second
        with pytest.raises(Conflict):
            await store.put_record(second, drop_earlier=True)
        assert await store.get_record(WORKSPACE, "agent", first.id, 1) is None
        assert await store.get_record(WORKSPACE, "agent", first.id, 2) == second
        assert await store.get_record(WORKSPACE, "agent", first.id) == second
        assert await store.records(WORKSPACE, "agent") == [second]
        third = replace(first, version=3)
        assert await store.put_record(third) == third
        assert await store.get_record(WORKSPACE, "agent", first.id, 2) == second

    async def test_each_record_is_listed_once_newest_first(self, store: Store) -> None:
        old, new = new_record(1), new_record(2)
        for record in (new, old, replace(old, version=2)):
            await store.put_record(record)
        await store.put_record(new_record(3, kind="environment"))
        await store.put_record(new_record(3, workspace=OTHER_WORKSPACE))
        assert await store.records(WORKSPACE, "agent") == [new, replace(old, version=2)]
        assert len(await store.records(WORKSPACE, "environment")) == 1
        assert await store.records(WORKSPACE, "unheard") == []

    async def test_archived_records_are_listed_on_request(self, store: Store) -> None:
        live, archived = new_record(1), new_record(2)
        await store.put_record(live)
        await store.put_record(archived)
        archived = await store.put_record(replace(archived, archived_at=at(9)), amend=True)
        assert await store.records(WORKSPACE, "agent") == [live]
        assert await store.records(WORKSPACE, "agent", archived=True) == [archived, live]
        live_again = await store.put_record(replace(archived, archived_at=None), amend=True)
        assert await store.records(WORKSPACE, "agent") == [live_again, live]

    async def test_records_with_the_same_time_are_paged(self, store: Store) -> None:
        records = [new_record(i // 3, archived_at=at(9) if i % 2 else None) for i in range(9)]
        for record in records:
            await store.put_record(record)
        for archived in (True, False):
            expected = [record for record in records if archived or record.archived_at is None]
            expected.sort(key=lambda record: (record.created_at, record.id), reverse=True)
            listed: list[Record] = []
            after: Position | None = None
            while page := await store.records(
                WORKSPACE, "agent", after=after, archived=archived, limit=2
            ):
                listed += page
                after = Position(page[-1].created_at, page[-1].id)
            assert listed == expected

    async def test_kinds_and_workspaces_have_their_own_records(self, store: Store) -> None:
        record = new_record()
        twins = [replace(record, kind="environment"), replace(record, workspace=OTHER_WORKSPACE)]
        for stored in (record, *twins):
            await store.put_record(stored)
        assert await store.get_record(WORKSPACE, "agent", record.id) == record
        assert await store.get_record(WORKSPACE, "environment", record.id) == twins[0]
        assert await store.get_record(OTHER_WORKSPACE, "agent", record.id) == twins[1]
        assert await store.get_record(OTHER_WORKSPACE, "environment", record.id) is None

    async def test_several_records_are_stored_and_deleted_together(self, store: Store) -> None:
        old, new = new_record(1), new_record(2)
        await store.put_records([old, new])
        changed = replace(old, version=2)
        with pytest.raises(Conflict):
            await store.put_records([changed, new])
        with pytest.raises(Conflict):
            await store.put_records([changed], drop=[replace(new, version=2)])
        assert await store.records(WORKSPACE, "agent") == [new, old]
        await store.put_records([changed], drop=[new])
        assert await store.records(WORKSPACE, "agent", archived=True) == [changed]
        with pytest.raises(Conflict):
            await store.put_records([], drop=[old])
        await store.put_records([], drop=[changed])
        for version in (None, 1, 2):
            assert await store.get_record(WORKSPACE, "agent", old.id, version) is None
        assert await store.put_record(old) == old

    # files

    async def test_file_is_stored_in_parts(self, store: Store) -> None:
        for number, data in enumerate((b"\0\xff" * 3, b"", b"end")):
            await store.put_part(WORKSPACE, "f", number, data)
        await store.put_part(OTHER_WORKSPACE, "f", 0, b"theirs")
        assert [await store.part(WORKSPACE, "f", n) for n in range(4)] == [
            b"\0\xff" * 3,
            b"",
            b"end",
            None,
        ]
        await store.put_part(WORKSPACE, "f", 2, b"END")
        assert await store.part(WORKSPACE, "f", 2) == b"END"
        await store.drop_parts(WORKSPACE, "f")
        assert await store.part(WORKSPACE, "f", 0) is None
        assert await store.part(OTHER_WORKSPACE, "f", 0) == b"theirs"

    async def test_parts_without_a_record_are_unfinished_uploads(self, store: Store) -> None:
        stored, other, stray = new_record(kind="file"), new_record(kind="archive"), ids.new_id()
        for file in (stored.id, other.id, stray):
            for number in range(2):
                await store.put_part(WORKSPACE, file, number, b"x")
        await store.put_record(stored)
        await store.put_record(other)
        await store.drop_unfinished_uploads(at(0))  # all are younger
        assert await store.part(WORKSPACE, stray, 1) == b"x"
        await store.drop_unfinished_uploads(FAR_FUTURE)
        assert [await store.part(WORKSPACE, stray, n) for n in range(2)] == [None, None]
        for file in (stored.id, other.id):
            assert [await store.part(WORKSPACE, file, n) for n in range(2)] == [b"x", b"x"]

    # overlays and settings

    async def test_overlay_is_stored_by_workspace_source_and_id(self, store: Store) -> None:
        await store.set_overlay(WORKSPACE, "claude", "a", {"title": "A"})
        await store.set_overlay(WORKSPACE, "claude", "b", {"archived_at": 5})
        await store.set_overlay(WORKSPACE, "other", "a", {"title": "B"})
        await store.set_overlay(OTHER_WORKSPACE, "claude", "a", {"title": "C"})
        assert await store.overlays(WORKSPACE, "claude") == {
            "a": {"title": "A"},
            "b": {"archived_at": 5},
        }
        assert await store.overlays(WORKSPACE, "other") == {"a": {"title": "B"}}
        assert await store.overlays(OTHER_WORKSPACE, "claude") == {"a": {"title": "C"}}
        assert await store.overlays(OTHER_WORKSPACE, "other") == {}

    async def test_overlay_is_replaced_completely(self, store: Store) -> None:
        await store.set_overlay(WORKSPACE, "claude", "a", {"title": "A", "tag": "t"})
        await store.set_overlay(WORKSPACE, "claude", "a", {"title": "B"})
        assert await store.overlays(WORKSPACE, "claude") == {"a": {"title": "B"}}

    async def test_settings_are_stored_by_workspace(self, store: Store) -> None:
        await store.set_setting(WORKSPACE, "retention", {"days": 30})
        await store.set_setting(WORKSPACE, "nothing", None)
        await store.set_setting(OTHER_WORKSPACE, "retention", [1, "two"])
        await store.set_setting(WORKSPACE, "retention", {"days": 60})
        assert await store.settings(WORKSPACE) == {"retention": {"days": 60}, "nothing": None}
        assert await store.settings(OTHER_WORKSPACE) == {"retention": [1, "two"]}
        assert await store.settings("nowhere") == {}

    async def test_stored_values_do_not_change_with_their_originals(self, store: Store) -> None:
        body = {"list": [1]}
        record = await store.put_record(new_record(body=body))
        await store.set_setting(WORKSPACE, "s", body)
        await store.set_overlay(WORKSPACE, "claude", "a", body)
        body["list"].append(2)
        stored = await store.get_record(WORKSPACE, "agent", record.id)
        assert stored is not None
        assert stored.body == {"list": [1]}
        assert await store.settings(WORKSPACE) == {"s": {"list": [1]}}
        assert await store.overlays(WORKSPACE, "claude") == {"a": {"list": [1]}}

    async def test_purge_deletes_the_record_of_the_share_link(self, store: Store) -> None:
        purged, kept = [await create_session(store) for _ in range(2)]
        for session in (purged, kept):
            await store.put_record(new_record(kind=SHARE_KIND, id=share_record_id(session.id)))
        await store.purge(WORKSPACE, purged.id, allow_purge)
        assert await store.get_record(WORKSPACE, SHARE_KIND, share_record_id(purged.id)) is None
        assert await store.get_record(WORKSPACE, SHARE_KIND, share_record_id(kept.id)) is not None

    async def test_probe_write_changes_nothing_that_callers_can_read(self, store: Store) -> None:
        session = await create_session(store)
        await store.set_setting(WORKSPACE, "retention", 1)
        for _ in range(3):
            await store.probe_write()
        assert await store.settings(WORKSPACE) == {"retention": 1}
        assert await store.get(WORKSPACE, session.id) == session

    async def test_cursor_key_is_secret_and_permanent(
        self, store: Store, open_store: OpenStore
    ) -> None:
        key = await store.cursor_key()
        assert len(key) >= 32
        assert len(set(key)) > 1
        assert await store.cursor_key() == key
        again = await open_store()
        assert await again.cursor_key() == key
        await again.close()
