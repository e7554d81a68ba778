"""Update and archive records."""

from collections.abc import Callable

import pytest

from segue.hub import Hub
from segue.hub.resources.records import Records
from segue.model import ids
from segue.model.errors import Conflict
from segue.store.memory import MemoryStore

MakeHub = Callable[..., Hub]


async def test_stale_update_of_a_record_raises_conflict(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        record = await hub.records.create("local", "agent", {"n": 1})
        newer = await hub.records.update(record, {"n": 2})
        with pytest.raises(Conflict):
            await hub.records.update(record, {"n": 3})
        assert (await hub.records.get("local", "agent", record.id)).body == {"n": 2}
        assert (await hub.records.get("local", "agent", record.id, 1)).body == {"n": 1}
        archived = await hub.records.archive(newer)
        assert archived.version == 2
        assert record.id not in {record.id for record in await hub.records.list("local", "agent")}


async def test_agents_of_sources_are_listed_after_segues_own() -> None:
    agents = {("local", ids.derived_id("agent", name)): {"name": name} for name in "abcd"}
    records = Records(MemoryStore(), agents)
    names = [record.body["name"] for record in await records.list("local", "agent")]
    assert names[0] == "segue" and sorted(names[1:]) == ["a", "b", "c", "d"]
