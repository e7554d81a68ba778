"""The same scripted turn through every door: what is stored is the same."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from segue.model import ids
from segue.model.event import Created, Event, InfoChanged
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore
from tests.doors.acp.house import House as AcpHouse
from tests.doors.rest.api import open_api

from .conftest import PATIENCE
from .provider import Provider, Say, Step, Think, Use

ASK = "How many lines?"


def script(request: dict[str, Any]) -> Sequence[Step]:
    """Think, say, read and write; then say how it went."""
    if request["messages"][-1]["content"][-1]["type"] == "tool_result":
        return [Say("Two lines, as you can see.")]
    return [
        Think("a file, then"),
        Say("I look."),
        Use("read", {"file_path": "a.txt"}),
        Use("grep", {"pattern": "("}),
    ]


def told(events: list[Event], place: str) -> list[Any]:
    """A history without what differs from session to session."""
    names: dict[str, str] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            left_out = ("extra", "duration")
            return {k: plain(v) for k, v in value.items() if k not in left_out}
        if isinstance(value, list | tuple):
            return [plain(each) for each in value]
        if isinstance(value, str) and ids.parse(value) == value:
            return names.setdefault(value, f"id {len(names)}")
        return value.replace(place, "PLACE") if isinstance(value, str) else value

    return [
        plain(msgspec.to_builtins(event.body))
        for event in events
        if not isinstance(event.body, Created | InfoChanged)
    ]


async def test_every_door_stores_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    acp = AcpHouse(tmp_path)
    place = tmp_path / "place"
    place.mkdir()
    (place / "a.txt").write_text("one\ntwo\n")
    histories: dict[str, list[Any]] = {}
    async with Provider() as provider, asyncio.timeout(2 * PATIENCE):
        provider.otherwise = script
        async with acp.hub() as hub:
            await hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
            await hub.config.set("local", "model.base_url", provider.url)

            async def seen(id: str) -> list[Any]:
                cwd = (await hub.get(LOCAL, id)).cwd
                return told([event async for event in hub.history(LOCAL, id)], cwd)

            session = await hub.create(LOCAL, cwd=str(place))
            await hub.run(LOCAL, session.id, ASK)
            histories["python"] = await seen(session.id)

            for version in (1, 2):
                async with acp.inside(version) as client:
                    id = await client.new(place)
                    await client.run(id, ASK)
                    histories[f"acp {version}"] = await seen(id)

            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "segue", "prompt", "new", ASK),
                cwd=place,
                env={**os.environ, "SEGUE_DATA_DIR": str(acp.data)},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            shown, complaints = await child.communicate()
            assert child.returncode == 0, complaints
            assert b"Two lines, as you can see." in shown
            newest = (await hub.list(LOCAL)).sessions[0]
            histories["cli"] = await seen(newest.id)

            async with open_api(tmp_path, store=SQLiteStore.open(acp.data / "segue.db")) as api:
                made = await api.session()
                id = ids.parse(made["id"]) or ""
                (Path((await hub.get(LOCAL, id)).cwd) / "a.txt").write_text("one\ntwo\n")
                events = await api.say(made["id"], ASK)
                assert events[-1]["type"] == "session.status_idle"
                use = next(each for each in events if each["type"] == "agent.tool_use")
                assert use["evaluated_permission"] == "allow"
                assert use["evaluation"] == {"type": "auto", "evaluated_permission": "allow"}
                histories["rest"] = await seen(id)
    first = histories.pop("python")
    kinds = [body["type"] for body in first]
    assert kinds.count("tool_result") == 2 and kinds.count("agent_message") == 2
    for door, history in histories.items():
        assert history == first, door
