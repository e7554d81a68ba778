"""Claude Code's own sessions at this door: of a built-in agent, and marked by their source."""

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
        yield api


async def test_it_is_listed_and_read(tmp_path: Path, home: Home) -> None:
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


async def test_it_is_a_session_of_claude_code_s_own_agent(tmp_path: Path, home: Home) -> None:
    said = {"model": "claude-x", "usage": {"input_tokens": 3}}
    last = assistant("a3", "a2", id="m3")
    last["message"] |= said
    home.write([user("u1", None), last], S2)
    async with open_with(tmp_path, home) as api:
        await api.session(title="own")
        rows = (await api.ok("GET", "/v1/sessions", source="claude"))["data"]
        agent = {row["id"]: row["agent"] for row in rows}[ids.format_id("sesn", S2)]
        assert (agent["name"], agent["model"]["id"]) == ("Claude Code", "claude-x")
        record = await api.ok("GET", f"/v1/agents/{agent['id']}")
        assert (record["name"], record["model"]["id"]) == ("Claude Code", "default")
        listed = (await api.ok("GET", "/v1/agents"))["data"]
        assert {each["name"] for each in listed} == {"segue", "Claude Code"}
        mine = (await api.ok("GET", "/v1/sessions", agent_id=agent["id"]))["data"]
        assert {row["id"] for row in mine} == {ID, ids.format_id("sesn", S2)}
        for version, count in ((1, 2), (2, 0)):
            params = {"agent_id": agent["id"], "agent_version": version}
            assert len((await api.ok("GET", "/v1/sessions", **params))["data"]) == count
        ours = (await api.ok("GET", "/v1/sessions", agent_id=await api.built_in("agents")))["data"]
        assert [row["title"] for row in ours] == ["own"]
        await api.fails(400, "POST", f"/v1/agents/{agent['id']}/archive")
        other = await api.other("elsewhere")  # which has no such sessions
        assert [each["name"] for each in (await other.ok("GET", "/v1/agents"))["data"]] == ["segue"]


async def test_one_that_claude_code_works_on_is_running(tmp_path: Path, home: Home) -> None:
    async with open_with(tmp_path, home) as api:
        assert (await api.ok("GET", "/v1/sessions"))["data"][0]["status"] == "idle"
        home.write_process_file()
        (row,) = (await api.ok("GET", "/v1/sessions"))["data"]
        assert row["status"] == (await api.ok("GET", PATH))["status"] == "running"
        assert row["stats"]["active_seconds"] > 0
        params = {"statuses[]": "running"}
        assert len((await api.ok("GET", "/v1/sessions", **params))["data"]) == 1


async def test_it_is_renamed_archived_and_deleted_in_claude_code_s_files(
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
        assert [gone.session_id for gone in claude.list_trash()] == [S]
        await api.fails(404, "GET", PATH)


async def test_a_prompt_goes_on_with_a_copy(tmp_path: Path, home: Home) -> None:
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
        said = [event["content"] for event in events if event["type"] == "agent.message"]
        assert said[-1] == [{"type": "text", "text": "Yes."}]
        (row,) = (await api.ok("GET", "/v1/sessions"))["data"]
        assert row["id"] == ID
    (after,) = [path.read_bytes() for path in home.projects.rglob("*.jsonl")]
    assert after == before


async def test_a_copy_that_is_deleted_does_not_come_back(tmp_path: Path, home: Home) -> None:
    async with open_with(tmp_path, home) as api:
        await api.say(ID, "/say Yes.")
        await api.ok("DELETE", PATH)
        await api.fails(404, "GET", PATH)
        assert (await api.ok("GET", "/v1/sessions"))["data"] == []
    assert [gone.session_id for gone in claude.list_trash()] == [S]


async def test_a_stream_of_it_goes_on_in_the_copy(tmp_path: Path, home: Home) -> None:
    async with open_with(tmp_path, home) as api:
        held = await api.hub.sessions.get(api.principal, S)
        headers = {"last-event-id": f"{held.last_seq}.0"}
        await api.say(ID, "/say one")
        copy = await api.hub.sessions.get(api.principal, S)
        assert copy.last_seq < held.last_seq
        await api.ok("POST", f"{PATH}/archive")  # which ends streams
        answer = await api.raw("GET", f"{PATH}/events/stream", headers=headers)
        assert answer.status_code == 200, answer.text
        told = re.findall(r"^event: (.+)$", answer.text, re.MULTILINE)
        assert told[:2] == ["ping", "session.status_running"]  # and nothing before its first turn
        assert told.count("agent.message") == 1 and told[-1] == "session.status_terminated"
        own = await api.session()
        answer = await api.raw("GET", f"/v1/sessions/{own['id']}/events/stream", headers=headers)
        assert answer.status_code == 400


async def test_another_workspace_does_not_have_it(tmp_path: Path, home: Home) -> None:
    async with open_with(tmp_path, home) as api:
        other = await api.other("elsewhere")
        assert (await other.ok("GET", "/v1/sessions"))["data"] == []
        await other.fails(404, "GET", PATH)


async def test_what_an_agent_did_is_a_thread_of_its_session(tmp_path: Path, home: Home) -> None:
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
        assert [each["type"] for each in shown][:2] == ["user.message", "agent.message"]
        assert shown[1]["content"] == [{"type": "text", "text": "A kingfisher, too"}]
        page = await api.ok("GET", path, limit=1)
        following = await api.ok("GET", path, limit=1, page=page["next_page"])
        assert [page["data"][0], following["data"][0]] == shown[:2]
        one = await api.ok("GET", f"{PATH}/threads", limit=1)
        two = await api.ok("GET", f"{PATH}/threads", limit=1, page=one["next_page"])
        assert [each["id"] for each in one["data"]] == [primary["id"]]
        assert (two["data"], two["next_page"]) == ([other], None)
        await api.fails(400, "POST", f"{PATH}/threads/{other['id']}/archive")
        await api.fails(400, "GET", f"{PATH}/threads/{other['id']}/stream")
        own = ids.format_id("sesn", ids.derived_id("nobody"))
        await api.fails(404, "GET", f"/v1/sessions/{own}/threads/{other['id']}")


async def test_a_thread_s_parent_is_the_one_that_started_it(tmp_path: Path, home: Home) -> None:
    _, first = write_session_with_subagent(home, "b1")
    begin(first, "c2", parentAgentId="b1")
    begin(first, "d3", parentAgentId="nobody")  # whose transcript is gone
    async with open_with(tmp_path, home) as api:
        threads = (await api.ok("GET", f"{PATH}/threads"))["data"]
        primary, started = threads[0]["id"], named(threads, "count birds")
        assert started["parent_thread_id"] == named(threads, "d3")["parent_thread_id"] == primary
        inner = named(threads, "c2")
        assert inner["parent_thread_id"] == started["id"]
        assert await api.ok("GET", f"{PATH}/threads/{inner['id']}") == inner


async def test_pages_of_threads_go_on_where_they_were(tmp_path: Path, home: Home) -> None:
    _, file = write_session_with_subagent(home, "b1")
    begin(file, "c2")
    async with open_with(tmp_path, home) as api:
        threads = await api.ok("GET", f"{PATH}/threads")
        page = await api.ok("GET", f"{PATH}/threads", limit=2)
        assert spelt(page) == spelt(threads)[:2]
        begin(file, "a0")  # which stands before what was shown
        rest = await api.ok("GET", f"{PATH}/threads", limit=2, page=page["next_page"])
        assert (spelt(rest), rest["next_page"]) == (spelt(threads)[2:], None)
        assert len((await api.ok("GET", f"{PATH}/threads"))["data"]) == 4
        idle = await api.ok("GET", f"{PATH}/threads", limit=3, **{"statuses[]": "idle"})
        assert len(idle["data"]) == 3 and idle["next_page"]
        assert (await api.ok("GET", f"{PATH}/threads", **{"statuses[]": "running"}))["data"] == []


def begin(beside: Path, agent: str, **about: str) -> None:
    """The transcript of one more agent of a session's, beside another's."""
    file = beside.with_name(f"agent-{agent}.jsonl")
    said = user(f"{agent}-1", None, "Go on", isSidechain=True, agentId=agent)
    file.write_bytes(as_line(said))
    file.with_suffix(".meta.json").write_text(json.dumps({"description": agent, **about}))


def spelt(page: dict[str, Any]) -> list[str]:
    return [each["id"] for each in page["data"]]


def named(threads: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(each for each in threads if each["agent"]["description"] == name)
