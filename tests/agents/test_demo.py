"""The demo agent's little language: what every instruction does."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from segue.agents.demo import HELP, _DemoTurn
from segue.hub import Hub
from segue.model.content import Diff, as_content
from segue.model.event import Event, PermissionAsked, PlanEntry, ToolResult
from segue.model.principal import LOCAL
from segue.store.memory import MemoryStore


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(MemoryStore(), tmp_path)


async def play(hub: Hub, script: str, answer: str = "allow", **made: Any) -> list[Any]:
    """Run a script in a new session, answering what it asks; the bodies of its events."""
    session = await hub.editor.create(LOCAL, **made)
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


def of(bodies: list[Any], kind: str) -> list[Any]:
    return [body for body in bodies if body.__struct_config__.tag == kind]


def test_help_names_every_instruction() -> None:
    known = set(_DemoTurn(None)._commands())  # type: ignore[arg-type]  # only its names are wanted
    assert set(re.findall(r"^    /([a-z]+)", HELP, re.MULTILINE)) == known


async def test_plain_text_is_repeated_and_the_agent_says_what_it_is(hub: Hub) -> None:
    (said,) = texts(await play(hub, "What is\nthis?"), "agent_message")
    assert "demo agent" in said and "no model" in said
    assert said.endswith("What is\nthis?")


async def test_lines_between_instructions_are_said_back(hub: Hub) -> None:
    bodies = await play(hub, "first\n/think hm\nlast\n/unknown thing")
    assert texts(bodies, "agent_message") == ["first", "last\n/unknown thing"]
    assert texts(bodies, "agent_thought") == ["hm"]


async def test_a_plan_has_its_marks(hub: Hub) -> None:
    (plan,) = of(await play(hub, "/plan a; > b c; x d"), "plan_changed")
    assert plan.entries == (
        PlanEntry(content="a"),
        PlanEntry(content="b c", status="in_progress"),
        PlanEntry(content="d", status="completed"),
    )


async def test_a_tool_call_has_its_result(hub: Hub) -> None:
    bodies = await play(hub, "/tool grep two hits")
    (call,), (result,) = of(bodies, "tool_call"), of(bodies, "tool_result")
    assert (call.name, result.call_id, result.status) == ("grep", call.call_id, "completed")
    assert texts(bodies, "tool_result") == ["two hits"]


@pytest.mark.parametrize(("answer", "status"), [("allow", "completed"), ("reject", "failed")])
async def test_a_question_waits_for_its_answer(hub: Hub, answer: str, status: str) -> None:
    bodies = await play(hub, "/ask sure?", answer)
    (asked,), (result,) = of(bodies, "permission_asked"), of(bodies, "tool_result")
    assert (asked.title, result.status) == ("sure?", status)


async def test_write_asks_then_writes_and_shows_the_difference(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old\n")
    bodies = await play(hub, "/write a.txt new text\n/read a.txt", cwd=str(tmp_path))
    assert (tmp_path / "a.txt").read_text() == "new text\n"
    wrote, read = of(bodies, "tool_result")
    assert wrote.content == (Diff(path=str(tmp_path / "a.txt"), old="old\n", new="new text\n"),)
    assert read.content == as_content("new text\n")
    assert [path.name for path in tmp_path.glob(".segue-*")] == []


async def test_write_that_is_not_allowed_writes_nothing(hub: Hub, tmp_path: Path) -> None:
    bodies = await play(hub, "/write a.txt x", "reject", cwd=str(tmp_path))
    assert not (tmp_path / "a.txt").exists()
    assert of(bodies, "tool_result")[0].status == "failed"


@pytest.mark.parametrize("path", ["../out.txt", "/etc/hostname", "link/out.txt", "nul\0"])
async def test_files_outside_the_session_s_directories_are_out_of_reach(
    hub: Hub, tmp_path: Path, path: str
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "out.txt").write_text("secret")
    (inside / "link").symlink_to(tmp_path)
    bodies = await play(hub, f"/read {path}\n/write {path} x", cwd=str(inside))
    results = of(bodies, "tool_result")
    assert [result.status for result in results] == ["failed", "failed"]
    assert "secret" not in repr(results)
    assert (tmp_path / "out.txt").read_text() == "secret"


async def test_further_roots_are_within_reach(hub: Hub, tmp_path: Path) -> None:
    inside, more = tmp_path / "inside", tmp_path / "more"
    inside.mkdir()
    more.mkdir()
    (more / "x").write_text("seen")
    bodies = await play(hub, f"/read {more}/x", cwd=str(inside), roots=(str(more),))
    assert texts(bodies, "tool_result") == ["seen"]


async def test_mcp_calls_go_to_the_session_s_servers(hub: Hub) -> None:
    called = []

    class Servers:
        def servers(self) -> list[str]:
            return ["tools"]

        async def call(self, server: str, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
            called.append((server, tool, arguments))
            return ToolResult(call_id="", content=as_content("four"))

    session = await hub.editor.create(LOCAL)
    await hub.turns.lease(LOCAL, session.id, tools=Servers())
    await hub.turns.run(LOCAL, session.id, '/mcp tools add {"a": 2, "b": 2}\n/mcp tools add {oops')
    assert called == [("tools", "add", {"a": 2, "b": 2})]
    (result,) = [e.body for e in await hub.history.events(LOCAL, session.id, types=["tool_result"])]
    assert result.content == as_content("four")
    await hub.close()


async def test_an_mcp_server_that_is_not_there_is_a_failed_result(hub: Hub) -> None:
    (result,) = of(await play(hub, "/mcp tools add {}"), "tool_result")
    assert result.status == "failed" and "tools" in result.content[0].text


async def test_the_rest_of_the_language(hub: Hub) -> None:
    script = "/title Named\n/usage 5 7\n/compact so far\n/repeat 2 again\n/history\n/wait 0"
    bodies = await play(hub, script)
    assert of(bodies, "info_changed")[-1].title == "Named"
    assert of(bodies, "model_called")[0].usage.output_tokens == 7
    assert of(bodies, "compacted")[0].summary == as_content("so far")
    assert texts(bodies, "agent_message") == [
        "again (1)",
        "again (2)",
        "Before this turn: 0 messages of yours, 0 of mine.",
    ]


@pytest.mark.parametrize("reason", ["end_turn", "max_tokens", "max_turn_requests", "refusal"])
async def test_stop_ends_the_turn_with_its_reason(hub: Hub, reason: str) -> None:
    bodies = await play(hub, f"/stop {reason}\n/say never")
    assert bodies[-1].stop_reason == reason
    assert texts(bodies, "agent_message") == []
