"""Tests of the demo agent's commands."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from segue.agents.base import Turn
from segue.agents.demo import HELP, MAX_PIECES, _DemoTurn
from segue.hub import Hub
from segue.model.content import Diff, as_content
from segue.model.event import Event, PermissionAsked, PlanEntry, ToolResult
from segue.model.principal import LOCAL
from segue.model.tools.patches import as_diffs
from segue.model.tools.titles import request_title
from segue.store.memory import MemoryStore


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(MemoryStore(), tmp_path)


async def run_script(hub: Hub, script: str, answer: str = "allow", **options: Any) -> list[Any]:
    """Run a script in a new session, answer permission requests and return the event bodies."""
    session = await hub.editor.create(LOCAL, **options)
    turn = await hub.turns.submit(LOCAL, session.id, script)
    bodies = []
    async with asyncio.timeout(20):
        async for item in hub.history.follow(LOCAL, session.id):
            assert isinstance(item, Event)
            bodies.append(item.body)
            if isinstance(item.body, PermissionAsked):
                await hub.turns.answer(LOCAL, session.id, item.body.ask_id, answer)
            if getattr(item.body, "stop_reason", None) not in (None, "requires_action"):
                break
    assert await hub.turns.wait(LOCAL, session.id, turn)
    await hub.close()
    return bodies


def texts(bodies: list[Any], kind: str) -> list[str]:
    return [
        body.content[0].text
        for body in bodies
        if body.__struct_config__.tag == kind and body.content
    ]


def bodies_of(bodies: list[Any], kind: str) -> list[Any]:
    return [body for body in bodies if body.__struct_config__.tag == kind]


def test_help_lists_every_command() -> None:
    known = set(_DemoTurn(None)._commands())  # type: ignore[arg-type]  # the test needs only the names
    assert set(re.findall(r"^    /([a-z]+)", HELP, re.MULTILINE)) == known


async def test_plain_text_is_repeated_with_an_introduction(hub: Hub) -> None:
    (text,) = texts(await run_script(hub, "What is\nthis?"), "agent_message")
    assert "demo agent" in text and "no model" in text
    assert text.endswith("What is\nthis?")


async def test_lines_between_commands_are_repeated(hub: Hub) -> None:
    bodies = await run_script(hub, "first\n/think hm\nlast\n/unknown thing")
    assert texts(bodies, "agent_message") == ["first", "last\n/unknown thing"]
    assert texts(bodies, "agent_thought") == ["hm"]


async def test_plan_command_parses_the_status_of_each_entry(hub: Hub) -> None:
    (plan,) = bodies_of(await run_script(hub, "/plan a; > b c; x d"), "plan_changed")
    assert plan.entries == (
        PlanEntry(content="a"),
        PlanEntry(content="b c", status="in_progress"),
        PlanEntry(content="d", status="completed"),
    )


async def test_tool_command_stores_a_call_and_its_result(hub: Hub) -> None:
    bodies = await run_script(hub, "/tool grep two hits")
    (call,), (result,) = bodies_of(bodies, "tool_call"), bodies_of(bodies, "tool_result")
    assert (call.name, result.call_id, result.status) == ("grep", call.call_id, "completed")
    assert texts(bodies, "tool_result") == ["two hits"]


@pytest.mark.parametrize(("answer", "status"), [("allow", "completed"), ("reject", "failed")])
async def test_ask_command_waits_for_the_answer(hub: Hub, answer: str, status: str) -> None:
    bodies = await run_script(hub, "/ask sure?", answer)
    (request,), (result,) = bodies_of(bodies, "permission_asked"), bodies_of(bodies, "tool_result")
    (call,) = bodies_of(bodies, "tool_call")
    assert (request.title, request_title(request, call)) == (None, "sure?")
    assert result.status == status


async def test_write_command_asks_writes_and_shows_the_diff(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old\n")
    bodies = await run_script(hub, "/write a.txt new text\n/read a.txt", cwd=str(tmp_path))
    assert (tmp_path / "a.txt").read_text() == "new text\n"
    wrote, read = bodies_of(bodies, "tool_result")
    (change,) = wrote.content
    assert as_diffs(change) == [Diff(path=str(tmp_path / "a.txt"), old="old\n", new="new text\n")]
    assert read.content == as_content("new text\n")
    assert [path.name for path in tmp_path.glob(".segue-*")] == []


async def test_write_command_without_permission_writes_nothing(hub: Hub, tmp_path: Path) -> None:
    bodies = await run_script(hub, "/write a.txt x", "reject", cwd=str(tmp_path))
    assert not (tmp_path / "a.txt").exists()
    assert bodies_of(bodies, "tool_result")[0].status == "failed"


@pytest.mark.parametrize("path", ["../out.txt", "/etc/hostname", "link/out.txt", "nul\0"])
async def test_files_outside_the_session_directories_are_refused(
    hub: Hub, tmp_path: Path, path: str
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "out.txt").write_text("secret")
    (inside / "link").symlink_to(tmp_path)
    bodies = await run_script(hub, f"/read {path}\n/write {path} x", cwd=str(inside))
    results = bodies_of(bodies, "tool_result")
    assert [result.status for result in results] == ["failed", "failed"]
    assert "secret" not in repr(results)
    assert (tmp_path / "out.txt").read_text() == "secret"


async def test_files_in_additional_roots_are_readable(hub: Hub, tmp_path: Path) -> None:
    inside, additional = tmp_path / "inside", tmp_path / "more"
    inside.mkdir()
    additional.mkdir()
    (additional / "x").write_text("seen")
    bodies = await run_script(
        hub, f"/read {additional}/x", cwd=str(inside), roots=(str(additional),)
    )
    assert texts(bodies, "tool_result") == ["seen"]


async def test_mcp_command_calls_the_servers_of_the_session(hub: Hub) -> None:
    called = []

    class Servers:
        def servers(self) -> list[str]:
            return ["tools"]

        async def call(self, server: str, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
            called.append((server, tool, arguments))
            return ToolResult(call_id="", content=as_content("four"))

    session = await hub.editor.create(LOCAL)
    opened = await hub.turns.open(LOCAL, session.id, tools=Servers())
    script = '/mcp tools add {"a": 2, "b": 2}\n/mcp tools add {oops'
    await hub.turns.run(LOCAL, session.id, script, opened=opened)
    assert called == [("tools", "add", {"a": 2, "b": 2})]
    (result,) = [e.body for e in await hub.history.events(LOCAL, session.id, types=["tool_result"])]
    assert result.content == as_content("four")
    await hub.close()


async def test_mcp_command_fails_for_an_unknown_server(hub: Hub) -> None:
    (result,) = bodies_of(await run_script(hub, "/mcp tools add {}"), "tool_result")
    assert result.status == "failed" and "tools" in result.content[0].text


async def test_other_commands_emit_their_events(hub: Hub) -> None:
    script = "/title Named\n/usage 5 7\n/compact so far\n/repeat 2 again\n/history\n/wait 0"
    bodies = await run_script(hub, script)
    assert bodies_of(bodies, "info_changed")[-1].title == "Named"
    assert bodies_of(bodies, "model_called")[0].usage.output_tokens == 7
    assert bodies_of(bodies, "compacted")[0].summary == as_content("so far")
    assert texts(bodies, "agent_message") == [
        "again (1)",
        "again (2)",
        "Before this turn: 0 messages of yours, 0 of mine.",
    ]


@pytest.mark.parametrize("reason", ["end_turn", "max_tokens", "max_turn_requests", "refusal"])
async def test_stop_ends_the_turn_with_its_reason(hub: Hub, reason: str) -> None:
    bodies = await run_script(hub, f"/stop {reason}\n/say never")
    assert bodies[-1].stop_reason == reason
    assert texts(bodies, "agent_message") == []


async def test_long_text_is_streamed_in_few_pieces(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[str] = []
    delta = Turn.delta

    async def record(turn: Turn, text: str, kind: Any = "message") -> None:
        pieces.append(text)
        await delta(turn, text, kind)

    monkeypatch.setattr(Turn, "delta", record)
    text = "a long text " * 100_000 + "ends"
    assert texts(await run_script(hub, f"/say {text}"), "agent_message") == [text]
    assert 1 < len(pieces) <= MAX_PIECES
