"""Export sessions to files and import them into another store."""

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

import segue
from segue.hub import Hub
from segue.hub.sync import export_file
from segue.model import clock, codec, ids
from segue.model.content import Diff, as_content
from segue.model.errors import Conflict, InvalidInput, NotFound, StoreFull
from segue.model.event import (
    BODY_VERSION,
    AgentRef,
    ConfigChanged,
    Event,
    Foreign,
    PermissionAsked,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    decode_body,
)
from segue.model.principal import LOCAL, Principal
from segue.model.tools.titles import call_title, request_title
from segue.store.memory import MemoryStore

MakeHub = Callable[..., Hub]
OTHER = Principal(workspace="other")
OLD_EXPORT = Path(__file__).parent / "old_exports" / "version_1.jsonl"


async def test_imported_session_equals_the_exported_one(make_hub: MakeHub) -> None:
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


async def test_export_of_version_1_is_imported(make_hub: MakeHub) -> None:
    lines = (Path(__file__).parent / "old_exports/version_1_turns.jsonl").read_bytes().splitlines()
    async with make_hub() as hub:
        session = await hub.exchange.import_session(LOCAL, lines)
        expected = Usage(
            input_tokens=3, output_tokens=11, cache_read_tokens=0, cache_write_tokens=0
        )
        assert (session.usage, session.models) == (expected, {"demo": expected})
        bodies = [event.body for event in await hub.history.events(LOCAL, session.id)]
        assert len(bodies) == len(lines) - 1
        assert not any(isinstance(body, Foreign) for body in bodies)
        calls = {body.call_id: body for body in bodies if isinstance(body, ToolCall)}
        assert [(call_title(call), call.effective_verdict) for call in calls.values()] == [
            ("Write notes.txt", "ask"),
            ("Write notes.txt", "ask"),
            ("May I?", "ask"),
            ("grep (demo)", None),
            ("Read notes.txt", None),
        ]
        requests = [body for body in bodies if isinstance(body, PermissionAsked)]
        titles = [request_title(request, calls[str(request.call_id)]) for request in requests]
        assert titles == ["Write notes.txt?", "Write notes.txt?", "May I?"]
        results = [body for body in bodies if isinstance(body, ToolResult)]
        assert {result.status for result in results} == {"completed"}
        assert results[1].content == (
            Diff(path="/tmp/project/notes.txt", old="one\n", new="two\n"),
        )
        exported = [json.loads(line) async for line in hub.exchange.export(LOCAL, session.id)]
        assert {line["version"] for line in exported[1:]} == {BODY_VERSION}


async def test_session_exported_during_a_turn_is_imported_as_idle(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL, cwd="/")).id
        turn = await hub.turns.submit(LOCAL, id, "/ask May I?")
        async for event in hub.history.follow(LOCAL, id):
            if isinstance(event, Event) and event.type == "permission_asked":
                break
        lines = [line async for line in hub.exchange.export(LOCAL, id)]
        copy = await hub.exchange.import_session(LOCAL, lines, new_id=True)
        assert (copy.status, copy.turn, copy.open_asks, copy.open_calls) == ("idle", None, (), ())
        (interrupted,) = await hub.history.events(LOCAL, copy.id, types=["interrupted"])
        assert "copied while" in interrupted.body.reason
        await hub.turns.cancel(LOCAL, id)
        assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"


async def test_import_includes_the_agent_of_the_session(
    make_hub: MakeHub,
) -> None:
    async with make_hub() as hub:
        first = await hub.records.create(
            "local", "agent", {"spec": {"kind": "demo"}, "name": "one"}
        )
        second = await hub.records.update(first, {"spec": {"kind": "demo"}, "name": "two"})
        session = await hub.editor.create(
            LOCAL, agent=AgentRef(id=second.id, version=second.version)
        )
        lines = [line async for line in hub.exchange.export(LOCAL, session.id)]
        await hub.exchange.import_session(OTHER, lines)
        assert await hub.turns.run(OTHER, session.id, "hello") == "end_turn"
        assert (await hub.records.get("other", "agent", second.id)).body["name"] == "two"


async def test_imported_session_keeps_its_built_in_agent_if_the_model_changes(
    make_hub: MakeHub, tmp_path: Path
) -> None:
    """Each hub has its own store; the second one has not stored its built-in agent yet."""
    async with make_hub() as hub:
        await hub.config.set("local", "model", "anthropic:claude-x")
        session = await hub.editor.create(LOCAL)
        lines = [line async for line in hub.exchange.export(LOCAL, session.id)]
    async with Hub(MemoryStore(), tmp_path) as hub:
        await hub.config.set("local", "model", "anthropic:claude-x")
        imported = await hub.exchange.import_session(LOCAL, lines)
        assert imported.agent is not None and imported.agent.version == 2
        await hub.config.unset("local", "model")
        assert await hub.turns.run(LOCAL, session.id, "/say hi") == "end_turn"


async def test_session_is_not_imported_if_its_agent_cannot_be_stored(
    make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def raise_full(*_: Any) -> None:
        raise StoreFull("disk full")

    async with make_hub() as hub:
        agent = await hub.records.create(
            "local", "agent", {"spec": {"kind": "demo"}, "name": "one"}
        )
        session = await hub.editor.create(LOCAL, agent=AgentRef(id=agent.id, version=agent.version))
        lines = [line async for line in hub.exchange.export(LOCAL, session.id)]
        with monkeypatch.context() as patch:
            patch.setattr(hub.store, "put_record", raise_full)
            with pytest.raises(StoreFull):
                await hub.exchange.import_session(OTHER, lines)
        with pytest.raises(NotFound):
            await hub.sessions.get(OTHER, session.id)
        await hub.editor.create(OTHER, id=session.id)
        with pytest.raises(Conflict):
            await hub.exchange.import_session(OTHER, lines)
        assert await hub.records.find("other", "agent", agent.id) is None


@pytest.mark.parametrize(
    "id", ["", "x", "../../victim", "/tmp/victim", "01980000-0000-7000-8000-00000000000A"]
)
async def test_id_of_an_imported_session_is_a_uuid(
    make_hub: MakeHub, tmp_path: Path, id: str
) -> None:
    """A purge deletes the directories that the id names."""
    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL, cwd="/w")
        first, *events = [line async for line in hub.exchange.export(LOCAL, session.id)]
        header = json.loads(first)
        header["session"]["id"] = id
        with pytest.raises(InvalidInput, match=r"session\.id: expected a UUID"):
            await hub.exchange.import_session(LOCAL, [json.dumps(header).encode(), *events])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("environment_id", "zzz"),
        ("deployment_id", "../x"),
        ("vault_ids", [""]),
        ("memory_store_ids", ["01980000-0000-7000-8000-000000000001", "x"]),
    ],
)
async def test_ids_of_a_sessions_resources_are_uuids(
    make_hub: MakeHub, field: str, value: Any
) -> None:
    """The REST API could not write them, and its list of sessions would fail."""
    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL, cwd="/w")
        lines = [json.loads(line) async for line in hub.exchange.export(LOCAL, session.id)]
        lines[1]["body"][field] = value
        changed = [json.dumps(line).encode() for line in lines]
        with pytest.raises(InvalidInput, match=rf"line 2: body\.{field}: expected a UUID"):
            await hub.exchange.import_session(LOCAL, changed, new_id=True)


@pytest.mark.parametrize(
    ("field", "value"), [("id", "x"), ("created_at", 2**62), ("archived_at", 2**62)]
)
async def test_id_and_times_of_an_agent_can_be_shown(
    make_hub: MakeHub, field: str, value: Any
) -> None:
    lines = OLD_EXPORT.read_bytes().splitlines()
    header = json.loads(lines[0])
    header["agents"][0][field] = value
    async with make_hub() as hub:
        with pytest.raises(InvalidInput, match=rf"line 1: agents\[0\]\.{field}: expected"):
            await hub.exchange.import_session(LOCAL, [json.dumps(header).encode(), *lines[1:]])


@pytest.mark.parametrize("at", [2**62, -(2**60), 2**70, 253_402_300_800_000_000])
async def test_times_of_version_1_are_in_the_calendar(make_hub: MakeHub, at: int) -> None:
    """A list that shows a time of no year would fail."""
    lines = [json.loads(line) for line in OLD_EXPORT.read_bytes().splitlines()]
    lines[-1]["at"] = at
    async with make_hub() as hub:
        with pytest.raises(InvalidInput, match="line 24: at: expected microseconds"):
            await hub.exchange.import_session(LOCAL, [json.dumps(line).encode() for line in lines])


@pytest.mark.parametrize("tools", ["bash", [1], [{}], [{"type": "x", "configs": [1]}], {"a": 1}])
async def test_import_with_malformed_tools_is_rejected(make_hub: MakeHub, tools: Any) -> None:
    async with make_hub() as hub:
        ref = replace(await hub.records.built_in_agent("local"), overrides={"tools": tools})
        session = await hub.editor.create(LOCAL, agent=ref)
        lines = [line async for line in hub.exchange.export(LOCAL, session.id)]
        with pytest.raises(InvalidInput, match="tools"):
            await hub.exchange.import_session(OTHER, lines)
        assert (await hub.sessions.list(OTHER)).sessions == []


async def test_import_stores_only_agents_and_changes_none(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        existing = await hub.records.create("other", "agent", {"name": "mine"})
        session = await hub.editor.create(LOCAL, agent=AgentRef(id=existing.id, version=2))
        first, *events = [line async for line in hub.exchange.export(LOCAL, session.id)]
        header = json.loads(first)
        at = clock.to_rfc3339(existing.created_at)
        record = {**to_builtins(existing), "created_at": at, "updated_at": at, "version": 1}
        record["body"] = {"name": "theirs"}
        header["agents"] = [
            record,
            {**record, "version": 2},
            {**record, "kind": "vault", "id": ids.new_id()},
        ]
        copy = await hub.exchange.import_session(OTHER, [json.dumps(header).encode(), *events])
        assert copy.agent == AgentRef(id=existing.id, version=1)
        assert await hub.records.find("other", "agent", existing.id) == existing
        assert [vault async for vault in hub.records.all("other", "vault")] == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: [], "no session"),
        (lambda lines: lines[:-1], "cut off"),
        (lambda lines: [lines[0], *lines[2:]], "line 2"),
        (lambda lines: [b"hello\n", *lines[1:]], "line 1"),
        (lambda lines: [*lines[:-1], b'{"body":' + b"[" * 100_000], "line 3"),
        (lambda lines: [*lines[:-1], lines[-1][:-9]], "line 3"),
        (lambda lines: [lines[0].replace(b'"version":3', b'"version":9', 1), *lines[1:]], "newer"),
    ],
)
async def test_damaged_file_is_rejected_and_nothing_is_stored(
    make_hub: MakeHub, damage: Callable[[list[bytes]], list[bytes]], message: str
) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL, title="x")).id
        lines = [line async for line in hub.exchange.export(LOCAL, id)]
        await hub.editor.purge(LOCAL, id)
        with pytest.raises(InvalidInput, match=message):
            await hub.exchange.import_session(LOCAL, damage(lines))
        assert (await hub.sessions.list(LOCAL)).sessions == []


async def test_header_names_the_format_the_harness_and_the_interface(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL, cwd="/w")
        first, event = [line async for line in hub.exchange.export(LOCAL, session.id)]
    header, line = json.loads(first), json.loads(event)
    assert list(header)[:5] == ["format", "version", "harness", "harness_version", "interface"]
    assert (header["format"], header["version"]) == ("segue.session", 3)
    assert (header["harness"], header["harness_version"]) == ("segue", segue.__version__)
    assert header["interface"] == "python"
    assert line["at"] == clock.to_rfc3339(session.created_at)
    # What the events say is not repeated, nor is what every segue knows of its own agent.
    assert header["session"].keys() == {"id", "last_seq", "usage"}
    assert header["agents"][0].keys() == {"id", "version", "updated_at", "body"}


async def test_file_of_version_1_is_read_as_before(make_hub: MakeHub) -> None:
    """Its times are integers, and its usage lacks zeros. Its permissions are revoked, as ever."""
    lines = OLD_EXPORT.read_bytes().splitlines(keepends=True)
    header, *old_events = map(json.loads, lines)
    async with make_hub() as hub:
        session = await hub.exchange.import_session(LOCAL, lines)
        events = await hub.history.events(LOCAL, session.id)
        agent = await hub.records.get("local", "agent", header["agents"][1]["id"])
    assert [(event.seq, event.id, event.at) for event in events[:23]] == [
        (old["seq"], old["id"], old["at"]) for old in old_events
    ]
    assert [event.body for event in events[:23]] == [
        decode_body(codec.encode(old["body"]), old["version"]) for old in old_events
    ]
    assert [event.body for event in events[23:]] == [
        ConfigChanged(mode="default", options={"always_allow": []})
    ]
    assert (session.title, session.tag) == ("odd \ud800 \0 title", "t")
    assert session.usage.input_tokens == 5 and session.agent == AgentRef(id=agent.id, version=2)
    assert agent.body == {"name": "two", "spec": {"kind": "demo"}}
    assert agent.created_at == header["agents"][1]["created_at"]


async def test_file_of_version_2_is_read_as_before(make_hub: MakeHub, tmp_path: Path) -> None:
    """It has whole rows in its header, and events at the beginning and end of requests."""
    old_lines = OLD_EXPORT.with_name("version_2.jsonl").read_bytes().splitlines(keepends=True)
    async with make_hub() as hub:
        session = await hub.exchange.import_session(LOCAL, old_lines)
        events = await hub.history.events(LOCAL, session.id)
        agent = await hub.records.get("local", "agent", session.agent.id)
        lines = [line async for line in hub.exchange.export(LOCAL, session.id)]
    old_events = [json.loads(line) for line in old_lines[1:]]
    assert [json.loads(line)["body"] for line in lines[1 : len(old_lines)]] == [
        event["body"] for event in old_events
    ]
    assert {"model_asked", "model_called"} <= {event.type for event in events}
    header = json.loads(old_lines[0])
    assert msgspec.to_builtins(session.usage) == header["session"]["usage"]
    assert clock.to_rfc3339(agent.created_at) == header["agents"][1]["created_at"]
    async with Hub(MemoryStore(), tmp_path) as hub:
        await hub.exchange.import_session(LOCAL, lines)
        assert [line async for line in hub.exchange.export(LOCAL, session.id)] == lines


async def test_built_in_agent_keeps_its_version_in_an_empty_store(
    make_hub: MakeHub, tmp_path: Path
) -> None:
    """The model that was configured where the session ran is in the version of the agent."""
    async with make_hub() as hub:
        await hub.config.set("local", "model", "anthropic:claude-x")
        session = await hub.editor.create(LOCAL)
        lines = [line async for line in hub.exchange.export(LOCAL, session.id)]
    async with Hub(MemoryStore(), tmp_path) as hub:
        assert await hub.exchange.import_session(LOCAL, lines) == session
        assert session.agent is not None and session.agent.version == 2
        record = await hub.records.get("local", "agent", session.agent.id, 2)
        assert record.body["configured"] == "anthropic:claude-x"
        assert [line async for line in hub.exchange.export(LOCAL, session.id)] == lines
        # The next turn uses what is configured here.
        assert await hub.turns.run(LOCAL, session.id, "/say hi") == "end_turn"


async def test_file_without_all_versions_of_an_agent_is_rejected(make_hub: MakeHub) -> None:
    lines = OLD_EXPORT.read_bytes().splitlines(keepends=True)
    header = json.loads(lines[0])
    del header["agents"][0]
    async with make_hub() as hub:
        with pytest.raises(InvalidInput, match="does not have all versions of agent"):
            await hub.exchange.import_session(LOCAL, [json.dumps(header).encode(), *lines[1:]])
        assert (await hub.sessions.list(LOCAL)).sessions == []


async def test_line_that_is_too_long_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(export_file, "MAX_LINE_BYTES", 1_000_000)
    file = BytesIO(b"{}\n" + b" " * 5_000_000)
    lines = export_file.read_lines(file)
    assert next(lines) == b"{}\n"
    with pytest.raises(InvalidInput, match="line 2: the line is longer than 1 MB"):
        next(lines)
    assert file.tell() < 1_100_000
