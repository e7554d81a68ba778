"""Claude Code's sessions over ACP: listed, opened, edited and forked."""

import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from segue import claude
from segue.interfaces.acp import ServedAgent
from segue.model import clock
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from tests.claude.entries import S2, Home, S, as_line, assistant, call, result, user
from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.harness import Client, ErrorResponse, Update
from tests.interfaces.acp.test_client_requests import PROGRAM, send_agent_requests
from tests.interfaces.acp.testbed import AcpTestbed

CONVERSATION = [
    ("user", "Why is it slow?"),
    ("tool", "Bash: completed"),
    ("agent", "Nothing is cached."),
]


@pytest.fixture
def home(testbed: AcpTestbed, monkeypatch: pytest.MonkeyPatch) -> Home:
    home = Home(testbed.directory / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home.root))
    home.write(
        [
            user("u1", None, "Why is it slow?", cwd="/p"),
            user("x1", "u1", "a branch that was left", cwd="/p"),
            assistant("a1", "u1", call("t1"), id="m1"),
            user("u2", "a1", result("t1")),
            assistant("a2", "u2", [{"type": "text", "text": "Nothing is cached."}]),
        ]
    )
    return home


@asynccontextmanager
async def connect_with_claude(
    testbed: AcpTestbed, version: int, home: Home, **options: Any
) -> AsyncIterator[Client]:
    source = ClaudeSource(testbed.directory / "index", ClaudeHome(str(home.root)))
    async with testbed.connect_in_process(version, sources=[source], **options) as client:
        yield client


async def list_by_id(client: Client, **params: object) -> dict[str, dict[str, object]]:
    listed = (await client.request("session/list", params))["sessions"]
    return {row["sessionId"]: row for row in listed}


async def test_running_server_lists_the_first_claude_session(
    testbed: AcpTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(testbed.directory / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home.root))
    async with testbed.connect_child(1) as (client, _):
        assert await list_by_id(client) == {}
        home.write_conversation()
        assert list(await list_by_id(client)) == [S]


async def test_claude_session_is_listed_with_its_source(
    testbed: AcpTestbed, version: int, home: Home
) -> None:
    async with connect_with_claude(testbed, version, home) as client:
        own_id = await client.new_session("/p")
        rows = await list_by_id(client, cwd="/p")
        assert {id: row["_meta"]["source"] for id, row in rows.items()} == {  # type: ignore[index]
            S: "claude",
            own_id: "segue",
        }
        assert (rows[S]["title"], rows[S]["cwd"]) == ("Why is it slow?", "/p")


async def test_claude_session_is_replayed_resumed_and_followed(
    testbed: AcpTestbed, version: int, home: Home
) -> None:
    async with connect_with_claude(testbed, version, home) as client:
        assert conversation(await client.replay(S, "/p")) == CONVERSATION
        with (home.projects / "-w" / f"{S}.jsonl").open("ab") as file:
            file.write(as_line(user("u3", "a2", "And now?")))
        await client.wait_for_update(lambda update: "And now?" in str(update.body))
        await client.request("session/close", {"sessionId": S})
        before = len(client.log)
        await client.open_session("resume", S, "/p")
        assert conversation(client.updates(before)) == []


async def test_agent_that_has_a_claude_session_resumes_it(
    testbed: AcpTestbed, version: int, home: Home
) -> None:
    transcript = home.projects / "-w" / f"{S}.jsonl"
    program = [sys.executable, str(PROGRAM), str(version), "capable", f"lists={S}"]
    agent = ServedAgent("acp:asking", {"kind": "acp", "command": shlex.join(program)})
    async with connect_with_claude(testbed, version, home, served_agent=agent) as client:
        assert (await list_by_id(client)).keys() == {S}
        before = await client.replay(S, "/p")
        assert conversation(before) == CONVERSATION
        (requests,) = await send_agent_requests(client, S, ["received", {}])
        assert requests["session/resume"]["sessionId"] == S and "session/new" not in requests
        stored = conversation(await client.replay(S, "/p"))
        assert stored[:3] == CONVERSATION and len(stored) == 5
        # The agent has recorded the turn in the tool's own file, under other ids.
        now, later = clock.to_rfc3339(clock.now()), clock.to_rfc3339(clock.now() + 3600 * 10**6)
        with transcript.open("ab") as file:
            file.write(as_line(user("u3", "a2", "the prompt", timestamp=now)))
            file.write(as_line(assistant("a3", "u3", timestamp=now)))
        await client.request("session/close", {"sessionId": S})
        assert conversation(await client.replay(S, "/p")) == stored
        with transcript.open("ab") as file:
            file.write(as_line(user("u4", "a3", "And now?", timestamp=later)))
        await client.wait_for_update(lambda update: "And now?" in str(update.body))
        again = await client.replay(S, "/p")
    assert conversation(again) == [*stored, ("user", "And now?")]
    ids = [[u.body["messageId"] for u in us if "messageId" in u.body] for us in (before, again)]
    assert ids[1][: len(ids[0])] == ids[0]


async def test_prompt_imports_a_claude_session(
    testbed: AcpTestbed, version: int, home: Home
) -> None:
    (before,) = [path.read_bytes() for path in home.projects.rglob("*.jsonl")]
    async with testbed.hub() as hub:
        await hub.config.set("local", "model", "demo")
    async with connect_with_claude(testbed, version, home) as client:
        await client.replay(S, "/p")
        start = len(client.log)
        assert await client.run_prompt(S, "/say Yes.") == "end_turn"
        assert ("agent", "Yes.") in conversation(client.updates(start))
        assert await client.run_prompt(S, "/say And more.") == "end_turn"
        await client.request("session/close", {"sessionId": S})
        entries = conversation(await client.replay(S, "/p"))
        assert entries[:3] == CONVERSATION and entries[-1] == ("agent", "And more.")
        assert (await list_by_id(client)).keys() == {S}
    (after,) = [path.read_bytes() for path in home.projects.rglob("*.jsonl")]
    assert after == before


async def test_fork_of_a_claude_session_can_be_prompted(
    testbed: AcpTestbed, version: int, home: Home
) -> None:
    async with connect_with_claude(testbed, version, home) as client:
        await client.replay(S, "/p")
        fork = (await client.open_session("fork", S, "/p"))["sessionId"]
        async with testbed.hub() as hub:
            await hub.config.set("local", "model", "demo")
        assert await client.run_prompt(fork, "/say Yes.") == "end_turn"
        entries = conversation(await client.replay(fork, "/p"))
        assert entries[:3] == CONVERSATION and entries[-1] == ("agent", "Yes.")
        assert [row.session_id for row in claude.list_sessions()] == [S]


async def test_renaming_and_archiving_a_claude_session_edits_its_files(
    testbed: AcpTestbed, version: int, home: Home
) -> None:
    async with connect_with_claude(testbed, version, home) as client:
        await client.request("session/set_title", {"sessionId": S, "title": "Slow"})
        info = claude.get_session_info(S)
        assert info is not None and info.custom_title == "Slow"
        assert (await list_by_id(client))[S]["title"] == "Slow"
        await client.request("session/archive", {"sessionId": S})
        info = claude.get_session_info(S)
        assert info is not None and info.archived is True
        assert await list_by_id(client) == {}
        await client.request("session/unarchive", {"sessionId": S})
        assert (await list_by_id(client)).keys() == {S}


async def test_deleted_claude_session_is_in_the_trash(
    testbed: AcpTestbed, version: int, home: Home
) -> None:
    home.write_conversation(S2, cwd="/p")
    async with connect_with_claude(testbed, version, home) as client:
        await client.request("session/delete", {"sessionId": S})
        assert (await list_by_id(client)).keys() == {S2}
        assert [row.session_id for row in claude.list_sessions()] == [S2]
        assert [trashed.session_id for trashed in claude.list_trash()] == [S]


async def test_acp_command_lists_claude_sessions_by_default(
    testbed: AcpTestbed, version: int, home: Home
) -> None:
    async with testbed.connect_child(version) as (client, _):
        assert (await list_by_id(client)).keys() == {S}
        assert conversation(await client.replay(S, "/p")) == CONVERSATION
    async with testbed.connect_child(version, "--sources", "none") as (client, _):
        assert await list_by_id(client) == {}
    async with testbed.connect_child(version, "--workspace", "other") as (client, _):
        assert await list_by_id(client) == {}


async def test_fork_continues_in_the_tool_that_meta_names(
    testbed: AcpTestbed, version: int, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(testbed.directory / "codex"))
    async with connect_with_claude(testbed, version, home) as client:
        fork = {"sessionId": S, "cwd": "/p", "mcpServers": []}
        meta = {"segue": {"resumeIn": "codex"}}
        response = await client.request("session/fork", {**fork, "_meta": meta})
        own = response["_meta"]["segue"]
        assert own["resume"]["command"] == ["codex", "resume", response["sessionId"]]
        assert own["resume"]["cwd"] == "/p" and own["report"]["tool_calls"] == 1
        rows = await list_by_id(client, cwd="/p")
        assert rows[response["sessionId"]]["_meta"]["source"] == "codex"  # type: ignore[index]
        with pytest.raises(ErrorResponse, match="resumeIn"):
            await client.request("session/fork", {**fork, "_meta": {"segue": {"resumeIn": 1}}})


async def test_ids_of_an_imported_session_stay_the_same_after_its_first_prompt(
    testbed: AcpTestbed, home: Home
) -> None:
    def ids(updates: list[Update]) -> list[str]:
        bodies = [update.body for update in updates]
        return [body.get("messageId", body.get("toolCallId")) for body in bodies]

    demo = ServedAgent("demo", {"kind": "demo"})
    async with connect_with_claude(testbed, 2, home, served_agent=demo) as client:
        before = [id for id in ids(await client.replay(S, "/p")) if id]
        await client.run_prompt(S, "/say more")
        after = [id for id in ids(await client.replay(S, "/p")) if id]
        assert after[: len(before)] == before
        assert len(set(after) - set(before)) == 2  # the prompt and its answer
