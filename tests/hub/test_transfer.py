"""Sessions that leave for another store, and come from one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from segue.agents.model import settings
from segue.agents.model.settings import Toolset
from segue.agents.permission import verdict
from segue.hub import Hub
from segue.model import ids
from segue.model.content import as_content
from segue.model.errors import Conflict, InvalidInput, NotFound, StoreFull
from segue.model.event import AgentRef, ConfigChanged, Event, ToolCall, UserMessage
from segue.model.principal import LOCAL, Principal

MakeHub = Callable[..., Hub]
OTHER = Principal(workspace="other")


async def test_an_exported_session_comes_back_whole(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL, title="odd \ud800 \0 title", tag="t")).id
        await hub.editor.append(
            LOCAL,
            id,
            UserMessage(
                content=as_content("nul \0, half \ud83d"), extra={"rest": {"a": [1, None]}}
            ),
            ToolCall(call_id="c", name="n", input={"deep": {"er": [1.5, "x", True]}}),
        )
        session = await hub.sessions.get(LOCAL, id)
        lines = [line async for line in hub.exchange.export(LOCAL, id)]
        assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
        with pytest.raises(Conflict):
            await hub.exchange.import_session(LOCAL, lines)
        events = await hub.history.events(LOCAL, id)
        await hub.editor.purge(LOCAL, id)
        assert await hub.exchange.import_session(LOCAL, lines) == session
        assert await hub.history.events(LOCAL, id) == events
        copy = await hub.exchange.import_session(LOCAL, lines, new_id=True)
        assert copy.id != id and copy.title == session.title
        moved = await hub.exchange.import_session(OTHER, lines)
        assert (moved.workspace, moved.id) == ("other", id)


async def test_what_was_allowed_elsewhere_is_asked_for_again(
    make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any, **__: Any) -> None:
        raise StoreFull("no room")

    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL, cwd="/w")
        allowed = ConfigChanged(mode="bypassPermissions", options={"always_allow": ["bash"]})
        await hub.editor.configure(LOCAL, session.id, allowed)
        lines = [line async for line in hub.exchange.export(LOCAL, session.id)]
        monkeypatch.setattr(hub.store, "change", full)  # it is so from the beginning
        copy = await hub.exchange.import_session(LOCAL, lines, new_id=True)
        assert (copy.mode, copy.options["always_allow"]) == ("default", [])
        assert await hub.sessions.get(LOCAL, copy.id) == copy


async def test_a_session_that_was_exported_in_a_turn_is_at_rest(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL, cwd="/")).id
        turn = await hub.turns.submit(LOCAL, id, "/ask May I?")
        async for event in hub.history.follow(LOCAL, id):
            if isinstance(event, Event) and event.type == "permission_asked":
                break
        lines = [line async for line in hub.exchange.export(LOCAL, id)]
        copy = await hub.exchange.import_session(LOCAL, lines, new_id=True)
        assert (copy.status, copy.turn, copy.open_asks, copy.open_calls) == ("idle", None, (), ())
        (cut,) = await hub.history.events(LOCAL, copy.id, types=["interrupted"])
        assert "copied while" in cut.body.reason
        await hub.turns.cancel(LOCAL, id)
        assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"


async def test_an_import_brings_the_agent_that_the_session_was_made_with(
    make_hub: MakeHub,
) -> None:
    async with make_hub() as hub:
        first = await hub.records.create("local", "agent", {"spec": {"kind": "demo"}})
        second = await hub.records.update(first, {"spec": {"kind": "demo"}, "name": "two"})
        session = await hub.editor.create(
            LOCAL, agent=AgentRef(id=second.id, version=second.version)
        )
        lines = [line async for line in hub.exchange.export(LOCAL, session.id)]
        await hub.exchange.import_session(OTHER, lines)
        assert await hub.turns.run(OTHER, session.id, "hello") == "end_turn"
        assert (await hub.records.get("other", "agent", second.id)).body["name"] == "two"


async def test_no_session_is_imported_without_its_agent(
    make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any) -> None:
        raise StoreFull("no room")

    async with make_hub() as hub:
        agent = await hub.records.create("local", "agent", {"spec": {"kind": "demo"}})
        session = await hub.editor.create(LOCAL, agent=AgentRef(id=agent.id, version=agent.version))
        lines = [line async for line in hub.exchange.export(LOCAL, session.id)]
        with monkeypatch.context() as patch:
            patch.setattr(hub.store, "put_record", full)
            with pytest.raises(StoreFull):
                await hub.exchange.import_session(OTHER, lines)
        with pytest.raises(NotFound):
            await hub.sessions.get(OTHER, session.id)
        await hub.editor.create(OTHER, id=session.id)
        with pytest.raises(Conflict):
            await hub.exchange.import_session(OTHER, lines)
        assert await hub.records.find("other", "agent", agent.id) is None


@pytest.mark.parametrize("known", [False, True], ids=["its own agent", "the built-in agent"])
async def test_an_import_starts_no_program_of_its_choice(
    make_hub: MakeHub, tmp_path: Path, known: bool
) -> None:
    """Neither by the agent that it brings nor by what the session says of one."""
    ran = tmp_path / "ran"
    evil = {
        "kind": "acp",
        "command": f"touch {ran}",
        "base_url": "http://evil",
        "system": "be kind",
    }
    async with make_hub() as hub:
        made = await hub.records.create("local", "agent", {"name": "evil", "spec": evil})
        given = await hub.records.built_in_agent("other") if known else AgentRef(id=made.id)
        session = await hub.editor.create(LOCAL, agent=replace(given, overrides=evil))
        await hub.editor.configure(
            LOCAL, session.id, ConfigChanged(agent=replace(given, overrides=evil))
        )
        lines = [line async for line in hub.exchange.export(LOCAL, session.id)]
        copy = await hub.exchange.import_session(OTHER, lines)
        assert copy.agent is not None
        assert copy.agent.id == (await hub.records.built_in_agent("other")).id
        assert copy.agent.overrides == ({"system": "be kind"} if known else {})
        assert await hub.turns.run(OTHER, copy.id, "hello") == "end_turn"
        assert not ran.exists()
        assert await hub.records.find("other", "agent", made.id) is None


async def test_an_import_brings_no_tool_that_is_allowed_without_asking(make_hub: MakeHub) -> None:
    """Whether the agent says so or the session, of a set or of one tool, or leaves it unsaid."""
    allow, ask = ({"permission_policy": {"type": each}} for each in ("always_allow", "always_ask"))
    tools = [
        {
            "type": "agent_toolset_20260401",
            "default_config": {"enabled": False, **ask},
            "configs": [{"name": "bash", "enabled": True, **allow}, {"name": "write", **ask}],
        },
        {"type": "mcp_toolset", "mcp_server_name": "m", "default_config": allow},
        {"type": "custom", "name": "mine"},
    ]
    unsaid = [{"type": "agent_toolset_20260401"}]  # which is to allow all
    async with make_hub() as hub:
        body = {"name": "a", "spec": {"kind": "model", "tools": tools}, "tools": unsaid}
        made = await hub.records.create("local", "agent", body)
        ref = AgentRef(id=made.id, overrides={"tools": unsaid})
        session = await hub.editor.create(LOCAL, agent=ref)
        lines = [line async for line in hub.exchange.export(LOCAL, session.id)]
        copy = await hub.exchange.import_session(OTHER, lines)
        assert copy.agent is not None
        brought = (await hub.records.get("other", "agent", made.id)).body
        for given in (brought["tools"], copy.agent.overrides["tools"]):
            assert settings.parse_settings({"model": "p:m", "tools": given}).built_in == Toolset()
        read = settings.parse_settings({"model": "p:m", "tools": brought["spec"]["tools"]})
        assert read.built_in is not None
        assert read.built_in.tool_config("read") == (False, "always_ask")
        assert read.built_in.tool_config("bash") == (True, "auto")
        assert read.built_in.tool_config("write") == (False, "always_ask")
        assert read.mcp["m"].tool_config("any") == (True, "always_ask")
        assert [each.name for each in read.custom] == ["mine"]
        assert verdict(copy, "bash", "execute", "auto") == "ask"


@pytest.mark.parametrize("tools", ["bash", [1], [{}], [{"type": "x", "configs": [1]}], {"a": 1}])
async def test_an_import_whose_tools_are_not_to_be_read_is_refused(
    make_hub: MakeHub, tools: Any
) -> None:
    async with make_hub() as hub:
        ref = replace(await hub.records.built_in_agent("local"), overrides={"tools": tools})
        session = await hub.editor.create(LOCAL, agent=ref)
        lines = [line async for line in hub.exchange.export(LOCAL, session.id)]
        with pytest.raises(InvalidInput, match="tools"):
            await hub.exchange.import_session(OTHER, lines)
        assert (await hub.sessions.list(OTHER)).sessions == []


async def test_an_import_brings_agents_alone_and_changes_none(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        own = await hub.records.create("other", "agent", {"name": "mine"})
        session = await hub.editor.create(LOCAL, agent=AgentRef(id=own.id, version=2))
        first, *events = [line async for line in hub.exchange.export(LOCAL, session.id)]
        header = json.loads(first)
        given = {**to_builtins(own), "body": {"name": "theirs"}}
        header["agents"] = [{**given, "version": 2}, {**given, "kind": "vault", "id": ids.new_id()}]
        copy = await hub.exchange.import_session(OTHER, [json.dumps(header).encode(), *events])
        assert copy.agent == AgentRef(id=own.id, version=1)
        assert await hub.records.find("other", "agent", own.id) == own
        assert [each async for each in hub.records.all("other", "vault")] == []


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda lines: [], "no session"),
        (lambda lines: lines[:-1], "cut off"),
        (lambda lines: [lines[0], *lines[2:]], "line 2"),
        (lambda lines: [b"hello\n", *lines[1:]], "line 1"),
        (lambda lines: [*lines[:-1], b'{"body":' + b"[" * 100_000], "line 3"),
        (lambda lines: [*lines[:-1], lines[-1][:-9]], "line 3"),
        (lambda lines: [lines[0].replace(b'"segue":1', b'"segue":9'), *lines[1:]], "newer"),
    ],
)
async def test_a_damaged_file_is_refused_and_nothing_is_kept(
    make_hub: MakeHub, damage: Callable[[list[bytes]], list[bytes]], says: str
) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL, title="x")).id
        lines = [line async for line in hub.exchange.export(LOCAL, id)]
        await hub.editor.purge(LOCAL, id)
        with pytest.raises(InvalidInput, match=says):
            await hub.exchange.import_session(LOCAL, damage(lines))
        assert (await hub.sessions.list(LOCAL)).sessions == []
