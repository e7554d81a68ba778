"""Sessions of Claude Code over REST: they have a built-in agent and their source."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from segue import claude
from segue.model import ids
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from tests.claude.entries import S2, Home, S, as_line, assistant, call, result, user
from tests.claude.helpers import write_session_with_subagent
from tests.interfaces.rest.api import Api, open_api

ID = ids.format_id("sesn", S)
PATH = f"/v1/sessions/{ID}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    home = Home(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home.root))
    home.write(
        [
            user("u1", None, "Why is it slow?", cwd="/p"),
            assistant("a1", "u1", call("toolu_1"), id="m1"),
            user("u2", "a1", result("toolu_1")),
            assistant("a2", "u2", [{"type": "text", "text": "Nothing is cached."}]),
        ]
    )
    return home


@asynccontextmanager
async def open_with(tmp_path: Path, home: Home) -> AsyncIterator[Api]:
    source = ClaudeSource(tmp_path / "index", ClaudeHome(str(home.root)))
    async with open_api(tmp_path, sources=[source]) as api:
        await api.hub.config.set("local", "model", "demo")
        yield api


async def test_claude_session_is_listed_and_read(tmp_path: Path, home: Home) -> None:
    async with open_with(tmp_path, home) as api:
        own = await api.session(title="own")
        shown = {row["id"]: row for row in (await api.ok("GET", "/v1/sessions"))["data"]}
        assert shown.keys() == {ID, own["id"]}
        assert (shown[ID]["source"], shown[ID]["cwd"]) == ("claude", "/p")
        assert (shown[ID]["title"], shown[ID]["status"]) == ("Why is it slow?", "idle")
        assert shown[ID]["agent"]["id"] != own["agent"]["id"] == await api.built_in("agents")
        assert shown[ID]["environment_id"] == await api.built_in("environments")
        (row,) = (await api.ok("GET", "/v1/sessions", source="claude"))["data"]
        assert row["id"] == (await api.ok("GET", PATH))["id"] == ID
        assert [event["type"] for event in await api.events(ID)] == [
            "user.message",
            "agent.tool_use",
            "agent.tool_result",
            "agent.message",
        ]
        (first,) = await api.events(ID, limit=1)
        assert first["content"] == [{"type": "text", "text": "Why is it slow?"}]


async def test_claude_session_has_the_claude_code_agent(tmp_path: Path, home: Home) -> None:
    sent = {"model": "claude-x", "usage": {"input_tokens": 3}}
    last = assistant("a3", "a2", id="m3")
    last["message"] |= sent
    home.write([user("u1", None), last], S2)
    async with open_with(tmp_path, home) as api:
        await api.session(title="own")
        rows = (await api.ok("GET", "/v1/sessions", source="claude"))["data"]
        agent = {row["id"]: row["agent"] for row in rows}[ids.format_id("sesn", S2)]
        assert (agent["name"], agent["model"]["id"]) == ("Claude Code", "claude-x")
        record = await api.ok("GET", f"/v1/agents/{agent['id']}")
        assert (record["name"], record["model"]["id"]) == ("Claude Code", "default")
        listed = (await api.ok("GET", "/v1/agents"))["data"]
        assert {item["name"] for item in listed} == {"segue", "Claude Code"}
        own_api = (await api.ok("GET", "/v1/sessions", agent_id=agent["id"]))["data"]
        assert {row["id"] for row in own_api} == {ID, ids.format_id("sesn", S2)}
        for version, count in ((1, 2), (2, 0)):
            params = {"agent_id": agent["id"], "agent_version": version}
            assert len((await api.ok("GET", "/v1/sessions", **params))["data"]) == count
        ours = (await api.ok("GET", "/v1/sessions", agent_id=await api.built_in("agents")))["data"]
        assert [row["title"] for row in ours] == ["own"]
        await api.fails(400, "POST", f"/v1/agents/{agent['id']}/archive")
        other = await api.other("elsewhere")  # which has no sources
        assert [item["name"] for item in (await other.ok("GET", "/v1/agents"))["data"]] == ["segue"]


async def test_session_that_claude_code_works_on_is_running(tmp_path: Path, home: Home) -> None:
    async with open_with(tmp_path, home) as api:
        assert (await api.ok("GET", "/v1/sessions"))["data"][0]["status"] == "idle"
        home.write_process_file()
        (row,) = (await api.ok("GET", "/v1/sessions"))["data"]
        assert row["status"] == (await api.ok("GET", PATH))["status"] == "running"
        assert row["stats"]["active_seconds"] > 0
        params = {"statuses[]": "running"}
        assert len((await api.ok("GET", "/v1/sessions", **params))["data"]) == 1


async def test_rename_archive_and_delete_change_the_files_of_claude_code(
    tmp_path: Path, home: Home
) -> None:
    async with open_with(tmp_path, home) as api:
        assert (await api.ok("POST", PATH, {"title": "Slow"}))["title"] == "Slow"
        info = claude.get_session_info(S)
        assert info is not None and info.custom_title == "Slow"
        assert (await api.ok("POST", f"{PATH}/archive"))["status"] == "terminated"
        info = claude.get_session_info(S)
        assert info is not None and info.archived is True
        await api.ok("DELETE", PATH)
        assert claude.list_sessions() == []
        assert [deleted.session_id for deleted in claude.list_trash()] == [S]
        await api.fails(404, "GET", PATH)


async def test_prompt_imports_the_session_and_continues_the_copy(
    tmp_path: Path, home: Home
) -> None:
    last = assistant("a3", "a2", id="m3")
    last["message"] |= {"model": "claude-x", "usage": {"input_tokens": 3}}
    with next(home.projects.rglob("*.jsonl")).open("ab") as file:
        file.write(as_line(last))
    (before,) = [path.read_bytes() for path in home.projects.rglob("*.jsonl")]
    async with open_with(tmp_path, home) as api:
        old = [event["type"] for event in await api.events(ID)]
        agent = (await api.ok("GET", PATH))["agent"]
        assert (agent["name"], agent["model"]["id"]) == ("Claude Code", "claude-x")
        await api.say(ID, "/say Yes.")
        assert (await api.ok("GET", PATH))["agent"] == agent
        events = await api.events(ID)
        shown = [event["type"] for event in events]
        assert shown[: len(old)] == old and shown[-1] == "session.status_idle"
        sent = [event["content"] for event in events if event["type"] == "agent.message"]
        assert sent[-1] == [{"type": "text", "text": "Yes."}]
        (row,) = (await api.ok("GET", "/v1/sessions"))["data"]
        assert row["id"] == ID
    (after,) = [path.read_bytes() for path in home.projects.rglob("*.jsonl")]
    assert after == before


async def test_deleted_copy_is_not_imported_again(tmp_path: Path, home: Home) -> None:
    async with open_with(tmp_path, home) as api:
        await api.say(ID, "/say Yes.")
        await api.ok("DELETE", PATH)
        await api.fails(404, "GET", PATH)
        assert (await api.ok("GET", "/v1/sessions"))["data"] == []
    assert [deleted.session_id for deleted in claude.list_trash()] == [S]


async def test_stream_continues_with_the_imported_copy(tmp_path: Path, home: Home) -> None:
    async with open_with(tmp_path, home) as api:
        stored = await api.hub.sessions.get(api.principal, S)
        headers = {"last-event-id": f"{stored.last_seq}.0"}
        await api.say(ID, "/say one")
        copy = await api.hub.sessions.get(api.principal, S)
        assert copy.last_seq < stored.last_seq
        await api.ok("POST", f"{PATH}/archive")  # deleting the session ends its streams
        response = await api.raw("GET", f"{PATH}/events/stream", headers=headers)
        assert response.status_code == 200, response.text
        text = re.findall(r"^event: (.+)$", response.text, re.MULTILINE)
        assert text[:2] == [
            "ping",
            "session.status_running",
        ]  # the stream has no events from before the first turn
        assert text.count("agent.message") == 1 and text[-1] == "session.status_terminated"
        own = await api.session()
        response = await api.raw("GET", f"/v1/sessions/{own['id']}/events/stream", headers=headers)
        assert response.status_code == 400


async def test_other_workspaces_do_not_see_claude_sessions(tmp_path: Path, home: Home) -> None:
    async with open_with(tmp_path, home) as api:
        other = await api.other("elsewhere")
        assert (await other.ok("GET", "/v1/sessions"))["data"] == []
        await other.fails(404, "GET", PATH)


async def test_subagent_is_a_thread_of_its_session(tmp_path: Path, home: Home) -> None:
    write_session_with_subagent(home)
    async with open_with(tmp_path, home) as api:
        primary, other = (await api.ok("GET", f"{PATH}/threads"))["data"]
        assert (primary["parent_thread_id"], other["parent_thread_id"]) == (None, primary["id"])
        assert primary["agent"]["name"] == "Claude Code"
        agent = other["agent"]
        assert (agent["name"], agent["description"]) == ("Explore", "count birds")
        assert (other["usage"]["input_tokens"], other["status"]) == (7, "idle")
        assert await api.ok("GET", f"{PATH}/threads/{other['id']}") == other
        path = f"{PATH}/threads/{other['id']}/events"
        shown = (await api.ok("GET", path))["data"]
        assert [entry["type"] for entry in shown][:2] == ["user.message", "agent.message"]
        assert shown[1]["content"] == [{"type": "text", "text": "A kingfisher, too"}]
        page = await api.ok("GET", path, limit=1)
        following = await api.ok("GET", path, limit=1, page=page["next_page"])
        assert [page["data"][0], following["data"][0]] == shown[:2]
        item = await api.ok("GET", f"{PATH}/threads", limit=1)
        two = await api.ok("GET", f"{PATH}/threads", limit=1, page=item["next_page"])
        assert [entry["id"] for entry in item["data"]] == [primary["id"]]
        assert (two["data"], two["next_page"]) == ([other], None)
        await api.fails(400, "POST", f"{PATH}/threads/{other['id']}/archive")
        await api.fails(400, "GET", f"{PATH}/threads/{other['id']}/stream")
        own = ids.format_id("sesn", ids.derived_id("unknown"))
        await api.fails(404, "GET", f"/v1/sessions/{own}/threads/{other['id']}")


async def test_parent_of_a_thread_is_the_thread_that_started_it(tmp_path: Path, home: Home) -> None:
    _, first = write_session_with_subagent(home, "b1")
    write_subagent(first, "c2", parentAgentId="b1")
    write_subagent(first, "d3", parentAgentId="unknown")  # its transcript was deleted
    async with open_with(tmp_path, home) as api:
        threads = (await api.ok("GET", f"{PATH}/threads"))["data"]
        primary, started = threads[0]["id"], thread_named(threads, "count birds")
        assert (
            started["parent_thread_id"]
            == thread_named(threads, "d3")["parent_thread_id"]
            == primary
        )
        inner = thread_named(threads, "c2")
        assert inner["parent_thread_id"] == started["id"]
        assert await api.ok("GET", f"{PATH}/threads/{inner['id']}") == inner


async def test_pages_of_threads_continue_after_the_last_thread(tmp_path: Path, home: Home) -> None:
    _, file = write_session_with_subagent(home, "b1")
    write_subagent(file, "c2")
    async with open_with(tmp_path, home) as api:
        threads = await api.ok("GET", f"{PATH}/threads")
        page = await api.ok("GET", f"{PATH}/threads", limit=2)
        assert thread_ids(page) == thread_ids(threads)[:2]
        write_subagent(file, "a0")  # it comes before the listed threads
        rest = await api.ok("GET", f"{PATH}/threads", limit=2, page=page["next_page"])
        assert (thread_ids(rest), rest["next_page"]) == (thread_ids(threads)[2:], None)
        assert len((await api.ok("GET", f"{PATH}/threads"))["data"]) == 4
        idle = await api.ok("GET", f"{PATH}/threads", limit=3, **{"statuses[]": "idle"})
        assert len(idle["data"]) == 3 and idle["next_page"]
        assert (await api.ok("GET", f"{PATH}/threads", **{"statuses[]": "running"}))["data"] == []


def write_subagent(transcript: Path, agent: str, **about: str) -> None:
    """Write the transcript of another subagent of a session."""
    file = transcript.with_name(f"agent-{agent}.jsonl")
    sent = user(f"{agent}-1", None, "Continue", isSidechain=True, agentId=agent)
    file.write_bytes(as_line(sent))
    file.with_suffix(".meta.json").write_text(json.dumps({"description": agent, **about}))


def thread_ids(page: dict[str, Any]) -> list[str]:
    return [item["id"] for item in page["data"]]


def thread_named(threads: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(thread for thread in threads if thread["agent"]["description"] == name)
