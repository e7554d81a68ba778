"""What stands beside the sessions: keys, records, overlays and settings."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from segue.model import ids
from segue.model.errors import Conflict
from segue.model.principal import ApiKey
from segue.model.query import Position
from segue.model.record import Record
from segue.store.base import Store

from .harness import FAR, HERE, THERE, Contract, OpenStore, at


def a_key(name: str, workspace: str = HERE) -> ApiKey:
    return ApiKey(
        id=ids.new_id(),
        workspace=workspace,
        name=name,
        digest=b"\0\xff" + name.encode(),
        hint=name[-4:],
        created_at=at(0),
    )


def a_record(seconds: float = 0, **fields: Any) -> Record:
    given: dict[str, Any] = {
        "workspace": HERE,
        "kind": "agent",
        "id": ids.new_id(),
        "version": 1,
        "created_at": at(seconds),
        "updated_at": at(seconds),
    }
    return Record(**{**given, **fields})


class RecordContract(Contract):
    # keys

    async def test_a_key_is_found_by_its_digest(self, store: Store) -> None:
        key = a_key("one")
        await store.put_key(key)
        await store.put_key(a_key("two"))
        assert await store.find_key(key.digest) == key
        assert await store.find_key(b"unknown") is None

    async def test_keys_are_listed_by_workspace_or_all(self, store: Store) -> None:
        one, two, there = a_key("one"), a_key("two"), a_key("there", THERE)
        for key in (two, there, one):
            await store.put_key(key)
        assert await store.keys(HERE) == [one, two]
        assert await store.keys(THERE) == [there]
        assert await store.keys() == [one, two, there]
        assert await store.keys("nowhere") == []

    async def test_a_key_is_revoked_once_and_in_its_workspace_only(self, store: Store) -> None:
        key = a_key("one")
        await store.put_key(key)
        assert not await store.revoke_key(THERE, key.id, at(5))
        assert await store.find_key(key.digest) == key
        assert await store.revoke_key(HERE, key.id, at(5))
        assert await store.find_key(key.digest) == replace(key, revoked_at=at(5))
        assert not await store.revoke_key(HERE, key.id, at(6))
        assert not await store.revoke_key(HERE, ids.new_id(), at(6))
        assert await store.keys(HERE) == [replace(key, revoked_at=at(5))]

    # records

    async def test_every_version_of_a_record_is_kept(self, store: Store) -> None:
        first = a_record(body={"model": "m", "tools": [{"name": "x"}]})
        second = replace(first, version=2, updated_at=at(9), body={"model": "n"})
        assert await store.put_record(first) == first
        assert await store.put_record(second) == second
        assert await store.get_record(HERE, "agent", first.id) == second
        assert await store.get_record(HERE, "agent", first.id, 1) == first
        assert await store.get_record(HERE, "agent", first.id, 2) == second
        assert await store.get_record(HERE, "agent", first.id, 3) is None

    async def test_a_version_out_of_turn_conflicts(self, store: Store) -> None:
        record = a_record()
        for version in (2, 0):
            with pytest.raises(Conflict):
                await store.put_record(replace(record, version=version))
        assert await store.get_record(HERE, "agent", record.id) is None
        await store.put_record(record)
        for version in (1, 3):
            with pytest.raises(Conflict):
                await store.put_record(replace(record, version=version, body={"new": True}))
        assert await store.get_record(HERE, "agent", record.id) == record

    async def test_amending_replaces_the_newest_version(self, store: Store) -> None:
        first = a_record()
        second = replace(first, version=2)
        await store.put_record(first)
        await store.put_record(second)
        amended = replace(second, archived_at=at(5), body={"note": "archived"})
        assert await store.put_record(amended, amend=True) == amended
        assert await store.get_record(HERE, "agent", first.id) == amended
        assert await store.get_record(HERE, "agent", first.id, 1) == first
        for version in (1, 3):
            with pytest.raises(Conflict):
                await store.put_record(replace(first, version=version), amend=True)
        assert await store.get_record(HERE, "agent", first.id) == amended

    async def test_a_new_version_brings_nothing_back_that_is_archived(self, store: Store) -> None:
        first = a_record()
        await store.put_record(first)
        archived = await store.put_record(replace(first, archived_at=at(5)), amend=True)
        second = replace(first, version=2, body={"new": True})
        for put in (store.put_record(second), store.put_records([second])):
            with pytest.raises(Conflict):
                await put
        assert await store.get_record(HERE, "agent", first.id) == archived
        second = replace(second, archived_at=at(5))
        assert await store.put_record(second) == second

    async def test_the_only_version_of_a_record_is_its_newest(self, store: Store) -> None:
        first = a_record()
        second = replace(first, version=2, body={"new": True})
        await store.put_record(first)
        assert await store.put_record(second, drop_earlier=True) == second
        with pytest.raises(Conflict):
            await store.put_record(second, drop_earlier=True)
        assert await store.get_record(HERE, "agent", first.id, 1) is None
        assert await store.get_record(HERE, "agent", first.id, 2) == second
        assert await store.get_record(HERE, "agent", first.id) == second
        assert await store.records(HERE, "agent") == [second]
        third = replace(first, version=3)
        assert await store.put_record(third) == third
        assert await store.get_record(HERE, "agent", first.id, 2) == second

    async def test_records_are_listed_newest_first_each_once(self, store: Store) -> None:
        old, new = a_record(1), a_record(2)
        for record in (new, old, replace(old, version=2)):
            await store.put_record(record)
        await store.put_record(a_record(3, kind="environment"))
        await store.put_record(a_record(3, workspace=THERE))
        assert await store.records(HERE, "agent") == [new, replace(old, version=2)]
        assert len(await store.records(HERE, "environment")) == 1
        assert await store.records(HERE, "unheard") == []

    async def test_archived_records_are_listed_on_request(self, store: Store) -> None:
        live, archived = a_record(1), a_record(2)
        await store.put_record(live)
        await store.put_record(archived)
        archived = await store.put_record(replace(archived, archived_at=at(9)), amend=True)
        assert await store.records(HERE, "agent") == [live]
        assert await store.records(HERE, "agent", archived=True) == [archived, live]
        live_again = await store.put_record(replace(archived, archived_at=None), amend=True)
        assert await store.records(HERE, "agent") == [live_again, live]

    async def test_records_are_paged_through_ties(self, store: Store) -> None:
        records = [a_record(i // 3, archived_at=at(9) if i % 2 else None) for i in range(9)]
        for record in records:
            await store.put_record(record)
        for archived in (True, False):
            wanted = [record for record in records if archived or record.archived_at is None]
            wanted.sort(key=lambda record: (record.created_at, record.id), reverse=True)
            got: list[Record] = []
            after: Position | None = None
            while page := await store.records(
                HERE, "agent", after=after, archived=archived, limit=2
            ):
                got += page
                after = Position(page[-1].created_at, page[-1].id)
            assert got == wanted

    async def test_kinds_and_workspaces_have_their_own_records(self, store: Store) -> None:
        record = a_record()
        twins = [replace(record, kind="environment"), replace(record, workspace=THERE)]
        for each in (record, *twins):
            await store.put_record(each)
        assert await store.get_record(HERE, "agent", record.id) == record
        assert await store.get_record(HERE, "environment", record.id) == twins[0]
        assert await store.get_record(THERE, "agent", record.id) == twins[1]
        assert await store.get_record(THERE, "environment", record.id) is None

    async def test_several_records_are_put_and_dropped_together(self, store: Store) -> None:
        old, new = a_record(1), a_record(2)
        await store.put_records([old, new])
        changed = replace(old, version=2)
        with pytest.raises(Conflict):
            await store.put_records([changed, new])
        with pytest.raises(Conflict):
            await store.put_records([changed], drop=[replace(new, version=2)])
        assert await store.records(HERE, "agent") == [new, old]
        await store.put_records([changed], drop=[new])
        assert await store.records(HERE, "agent", archived=True) == [changed]
        with pytest.raises(Conflict):
            await store.put_records([], drop=[old])
        await store.put_records([], drop=[changed])
        for version in (None, 1, 2):
            assert await store.get_record(HERE, "agent", old.id, version) is None
        assert await store.put_record(old) == old

    # files

    async def test_a_file_is_kept_in_parts(self, store: Store) -> None:
        for number, data in enumerate((b"\0\xff" * 3, b"", b"end")):
            await store.put_part(HERE, "f", number, data)
        await store.put_part(THERE, "f", 0, b"theirs")
        assert [await store.part(HERE, "f", n) for n in range(4)] == [
            b"\0\xff" * 3,
            b"",
            b"end",
            None,
        ]
        await store.put_part(HERE, "f", 2, b"END")
        assert await store.part(HERE, "f", 2) == b"END"
        await store.drop_parts(HERE, "f")
        assert await store.part(HERE, "f", 0) is None
        assert await store.part(THERE, "f", 0) == b"theirs"

    async def test_files_without_a_record_are_strays(self, store: Store) -> None:
        kept, other, stray = a_record(kind="file"), a_record(kind="archive"), ids.new_id()
        for file in (kept.id, other.id, stray):
            for number in range(2):
                await store.put_part(HERE, file, number, b"x")
        await store.put_record(kept)
        await store.put_record(other)
        await store.drop_unfinished_uploads(at(0))  # all are younger
        assert await store.part(HERE, stray, 1) == b"x"
        await store.drop_unfinished_uploads(FAR)
        assert [await store.part(HERE, stray, n) for n in range(2)] == [None, None]
        for file in (kept.id, other.id):
            assert [await store.part(HERE, file, n) for n in range(2)] == [b"x", b"x"]

    # overlays and settings

    async def test_an_overlay_is_kept_by_workspace_source_and_id(self, store: Store) -> None:
        await store.set_overlay(HERE, "claude", "a", {"title": "A"})
        await store.set_overlay(HERE, "claude", "b", {"archived_at": 5})
        await store.set_overlay(HERE, "other", "a", {"title": "B"})
        await store.set_overlay(THERE, "claude", "a", {"title": "C"})
        assert await store.overlays(HERE, "claude") == {
            "a": {"title": "A"},
            "b": {"archived_at": 5},
        }
        assert await store.overlays(HERE, "other") == {"a": {"title": "B"}}
        assert await store.overlays(THERE, "claude") == {"a": {"title": "C"}}
        assert await store.overlays(THERE, "other") == {}

    async def test_an_overlay_is_replaced_whole(self, store: Store) -> None:
        await store.set_overlay(HERE, "claude", "a", {"title": "A", "tag": "t"})
        await store.set_overlay(HERE, "claude", "a", {"title": "B"})
        assert await store.overlays(HERE, "claude") == {"a": {"title": "B"}}

    async def test_settings_are_kept_by_workspace(self, store: Store) -> None:
        await store.set_setting(HERE, "retention", {"days": 30})
        await store.set_setting(HERE, "nothing", None)
        await store.set_setting(THERE, "retention", [1, "two"])
        await store.set_setting(HERE, "retention", {"days": 60})
        assert await store.settings(HERE) == {"retention": {"days": 60}, "nothing": None}
        assert await store.settings(THERE) == {"retention": [1, "two"]}
        assert await store.settings("nowhere") == {}

    async def test_what_is_put_stays_as_it_was_put(self, store: Store) -> None:
        body = {"list": [1]}
        record = await store.put_record(a_record(body=body))
        await store.set_setting(HERE, "s", body)
        await store.set_overlay(HERE, "claude", "a", body)
        body["list"].append(2)
        kept = await store.get_record(HERE, "agent", record.id)
        assert kept is not None
        assert kept.body == {"list": [1]}
        assert await store.settings(HERE) == {"s": {"list": [1]}}
        assert await store.overlays(HERE, "claude") == {"a": {"list": [1]}}

    async def test_the_cursor_key_is_secret_and_lasts(
        self, store: Store, open_store: OpenStore
    ) -> None:
        key = await store.cursor_key()
        assert len(key) >= 32
        assert len(set(key)) > 1
        assert await store.cursor_key() == key
        again = await open_store()
        assert await again.cursor_key() == key
        await again.close()
