"""The messages of the subagents that a session started."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from segue import claude
from tests.claude.entries import (
    Home,
    S,
    as_line,
    assistant,
    attachment,
    call,
    entry,
    result,
    system,
    user,
)


@pytest.fixture
def agents(home: Home) -> Path:
    directory = home.write_conversation().with_suffix("") / "subagents"
    directory.mkdir(parents=True)
    return directory


def write(directory: Path, id: str, *lines: Any, meta: Any = None) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"agent-{id}.jsonl").write_bytes(b"".join(map(as_line, lines)))
    if meta is not None:
        text = meta if isinstance(meta, str) else json.dumps(meta)
        (directory / f"agent-{id}.meta.json").write_text(text)


def side(line: dict[str, Any]) -> dict[str, Any]:
    return {**line, "isSidechain": True, "agentId": "x"}


def uuids(agents: Path, *lines: Any) -> str:
    write(agents, "x", *map(side, lines))
    return " ".join(message.uuid for message in claude.get_subagent_messages(S, "x"))


def test_subagents_are_found_at_any_depth(agents: Path) -> None:
    write(agents, "b", user("u1", None))
    write(agents, "a", user("u1", None))
    write(agents / "workflows" / "run-1", "deep", user("u1", None))
    for name in ("other.jsonl", "agent-a.meta.json", "agent-noend", "agent-.jsonl"):
        (agents / name).write_text("{}\n")
    assert claude.list_subagents(S) == ["a", "b", "deep"]
    assert len(claude.get_subagent_messages(S, "deep")) == 1
    for other in ("missing", "", "../a", "agent-a", "workflows/run-1/agent-deep"):
        assert claude.get_subagent_messages(S, other) == []


def test_links_pipes_and_directories_are_not_subagents(agents: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside, "far", user("u1", None))
    (agents / "agent-link.jsonl").symlink_to(outside / "agent-far.jsonl")
    (agents / "linked").symlink_to(outside)
    (agents / "round").symlink_to(agents)
    (agents / "agent-directory.jsonl").mkdir()
    os.mkfifo(agents / "agent-pipe.jsonl")
    assert claude.list_subagents(S) == []


@pytest.mark.parametrize(
    ("meta", "call_id", "parent"),
    [
        ({"toolUseId": "toolu_1", "parentAgentId": "p"}, "toolu_1", "p"),
        ({"toolUseId": "toolu_1"}, "toolu_1", None),
        ({"toolUseId": 5, "parentAgentId": [1]}, None, None),
        ("no json {", None, None),
        (None, None, None),
    ],
)
def test_message_names_the_tool_call_that_started_its_subagent(
    agents: Path, meta: Any, call_id: str | None, parent: str | None
) -> None:
    write(agents, "x", user("u1", None), assistant("a1", "u1"), meta=meta)
    for message in claude.get_subagent_messages(S, "x"):
        assert (message.parent_tool_use_id, message.parent_agent_id) == (call_id, parent)


def test_subagent_messages_are_the_branch_to_its_last_message(agents: Path) -> None:
    assert uuids(agents, user("u1", None), assistant("a1", "u1"), assistant("a2", "u1")) == "u1 a2"
    assert uuids(agents, user("u1", None), user("m", "u1", isMeta=True), assistant("a", "m")) == (
        "u1 m a"
    )
    between = [system("s", "u1"), entry("progress", "p", "s"), attachment("t", "p", type="x")]
    assert uuids(agents, user("u1", None), *between, assistant("a", "t")) == "u1 a"


def test_all_parallel_calls_of_a_subagent_are_returned(agents: Path) -> None:
    calls = [assistant("c0", "u1", call("t0"), "m"), assistant("c1", "c0", call("t1"), "m")]
    results = [user("r0", "c0", result("t0")), user("r1", "c1", result("t1"))]
    assert uuids(agents, user("u1", None), *calls, *results) == "u1 c0 c1 r0 r1"


def test_limit_and_offset_select_a_page_of_a_subagent(agents: Path) -> None:
    lines = [user("m0", None), *(user(f"m{n}", f"m{n - 1}") for n in range(1, 5))]
    write(agents, "x", *lines)
    page = claude.get_subagent_messages(S, "x", limit=2, offset=1)
    assert [message.uuid for message in page] == ["m1", "m2"]
    assert len(claude.get_subagent_messages(S, "x", limit=0)) == 5


def test_readable_part_of_a_damaged_subagent_is_returned(agents: Path) -> None:
    write(agents, "x", user("u1", None), "no json {", b"\xff\xfe", assistant("a1", "u1"))
    assert len(claude.get_subagent_messages(S, "x")) == 2
    write(agents, "empty")
    assert claude.get_subagent_messages(S, "empty") == []
