"""The same scripted turn through every door: what is stored is the same."""

import asyncio
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import segue
from segue.model import ids
from segue.model.event import ConfigChanged, Created, Event, InfoChanged, PermissionAsked
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore
from tests.interfaces.acp.house import House as AcpHouse
from tests.interfaces.rest.api import Api, message, open_api
from tests.interfaces.rest.test_turns import rests, until
from tests.interfaces.web.site import Site, open_site

from .conftest import PATIENCE
from .provider import Provider, Say, Step, Think, Use

ASK = "How many lines?"
MODEL = "anthropic:claude-sonnet-4-6"


def script(request: dict[str, Any]) -> Sequence[Step]:
    """Think, say, read, search and write, which needs permission; then say how it went."""
    if request["messages"][-1]["content"][-1]["type"] == "tool_result":
        return [Say("Two lines, as you can see.")]
    return [
        Think("a file, then"),
        Say("I look."),
        Use("read", {"file_path": "a.txt"}),
        Use("grep", {"pattern": "("}),
        Use("write", {"file_path": "b.txt", "content": "x"}),
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
        if not isinstance(event.body, Created | InfoChanged | ConfigChanged)
    ]


async def typed(place: Path, data: Path) -> None:
    """Ask in a terminal, where the question is answered too."""
    ours, theirs = os.openpty()
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "segue", "prompt", "new", ASK),
        cwd=place,
        env={**os.environ, "SEGUE_DATA_DIR": str(data)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown, answered = b"", False
    with os.fdopen(ours, "r+b", buffering=0) as terminal, suppress(OSError):  # its end is an error
        while some := await asyncio.to_thread(terminal.read, 65536):
            shown += some
            if b"Which" in shown and not answered:
                answered = True
                terminal.write(b"1\n")
    plain = re.sub(rb"\x1b\[\d*m", b"", shown)
    assert await child.wait() == 0 and b"Two lines, as you can see." in plain, shown


async def answered(api: Api, session: str) -> list[dict[str, Any]]:
    """Ask over REST, and confirm what wants to be."""
    await api.send(session, message(ASK))
    events = await until(api, session, rests(1))
    use = next(each for each in events if each.get("name") == "write")
    assert use["evaluated_permission"] == "ask"
    confirmed = {"type": "user.tool_confirmation", "tool_use_id": use["id"], "result": "allow"}
    await api.send(session, confirmed)
    return await until(api, session, rests(2))


async def clicked(site: Site, place: Path) -> str:
    """Ask in the browser, and press the button; the session's id."""
    made = await site.post("/new", cwd=str(place))
    page = made.headers["location"]
    id = page.rpartition("/")[2]
    await site.post(f"{page}/prompt", text=ASK)
    async for event in site.hub.history.follow(LOCAL, id):
        assert isinstance(event, Event)
        if isinstance(event.body, PermissionAsked):
            choice = f"{event.body.ask_id} allow"
            assert f'value="{choice}"' in await site.get(page)
            await site.post(f"{page}/answer", choice=choice)
        if getattr(event.body, "stop_reason", None) == "end_turn":
            break
    return id


async def test_every_door_stores_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    acp = AcpHouse(tmp_path)
    place = tmp_path / "place"
    place.mkdir()
    (place / "a.txt").write_text("one\ntwo\n")
    histories: dict[str, list[Any]] = {}
    async with Provider() as provider, asyncio.timeout(3 * PATIENCE):
        provider.otherwise = script
        async with acp.hub() as hub:
            await hub.config.set("local", "model", MODEL)
            await hub.config.set("local", "model.base_url", provider.url)

            async def seen(id: str) -> list[Any]:
                cwd = (await hub.sessions.get(LOCAL, id)).cwd
                assert Path(cwd, "b.txt").read_text() == "x"
                Path(cwd, "b.txt").unlink()
                return told([event async for event in hub.history.read(LOCAL, id)], cwd)

            async def allow(name: str, given: Any) -> bool:
                return name == "write"

            async with segue.create_session(
                model=MODEL, cwd=place, store=hub, can_use_tool=allow
            ) as session:
                await session.send(ASK)
                messages = [each async for each in session.stream()]
            assert messages[-1].result == "Two lines, as you can see."
            histories["python"] = await seen(session.session_id)

            for version in (1, 2):
                async with acp.inside(version) as client:
                    id = await client.new(place)
                    await client.run(id, ASK)
                    assert len(client.asked) == 1
                    histories[f"acp {version}"] = await seen(id)

            await typed(place, acp.data)
            newest = (await hub.sessions.list(LOCAL)).sessions[0]
            histories["cli"] = await seen(newest.id)

            async with open_api(tmp_path, store=SQLiteStore.open(acp.data / "segue.db")) as api:
                made = await api.session()
                id = ids.parse(made["id"]) or ""
                (Path((await hub.sessions.get(LOCAL, id)).cwd) / "a.txt").write_text("one\ntwo\n")
                events = await answered(api, made["id"])
                use = next(each for each in events if each["type"] == "agent.tool_use")
                assert use["evaluated_permission"] == "allow"
                assert use["evaluation"] == {"type": "auto", "evaluated_permission": "allow"}
                histories["rest"] = await seen(id)

            async with open_site(acp.data) as site:
                histories["web"] = await seen(await clicked(site, place))
    first = histories.pop("python")
    kinds = [body["type"] for body in first]
    assert kinds.count("tool_result") == 3 and kinds.count("agent_message") == 2
    assert kinds.count("permission_answered") == 1
    assert histories.keys() == {"acp 1", "acp 2", "cli", "rest", "web"}
    for door, history in histories.items():
        assert history == first, door
