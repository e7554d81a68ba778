"""Create, update, archive and delete sessions."""

import re
from pathlib import Path
from typing import Any

import pytest

from segue.model import ids
from segue.model.principal import LOCAL
from tests.interfaces.rest.api import Api, message, open_api


async def test_new_session_has_every_field_and_null_for_missing_values(
    tmp_path: Path,
) -> None:
    async with open_api(tmp_path) as api:
        agent = await api.agent(system="Be brief.", description="d")
        environment = await api.environment()
        session = await api.ok(
            "POST", "/v1/sessions", {"agent": agent["id"], "environment_id": environment}
        )
        for name in ("created_at", "updated_at"):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", session.pop(name))
        assert re.fullmatch(r"sesn_01[1-9A-HJ-NP-Za-km-z]{22}", session.pop("id"))
        assert session.pop("cwd") is None  # segue made the directory
        assert session.pop("stats")["duration_seconds"] < 60
        assert session == {
            "type": "session",
            "agent": {
                "type": "agent",
                "id": agent["id"],
                "version": 1,
                "name": "a",
                "description": "d",
                "system": "Be brief.",
                "model": {
                    "id": "claude-sonnet-4-6",
                    "speed": "standard",
                    "effort": {"type": "high"},
                    "inference_geo": None,
                },
                "tools": [],
                "mcp_servers": [],
                "skills": [],
                "multiagent": None,
                "execution_identity": {"type": "service_account"},
            },
            "environment_id": environment,
            "title": None,
            "metadata": {},
            "vault_ids": [],
            "deployment_id": None,
            "resources": [],
            "outcome_evaluations": [],
            "status": "idle",
            "usage": {
                "input_tokens": 0,
                "output_tokens": 0,
                "cache_read_input_tokens": 0,
                "cache_creation": None,
                "active_seconds": 0.0,
                "list_cost": {"amount": "0", "currency": "USD"},
                "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
            },
            "budget": None,
            "archived_at": None,
            "source": "segue",
            "tag": None,
        }


async def test_session_keeps_the_agent_version_it_was_created_with(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        agent = await api.agent(system="one")
        first = await api.session(agent=agent["id"])
        await api.ok("POST", f"/v1/agents/{agent['id']}", {"system": "two"})
        second = await api.session(agent=agent["id"])
        pinned = await api.session(agent={"type": "agent", "id": agent["id"], "version": 1})
        shown = [
            (await api.ok("GET", f"/v1/sessions/{item['id']}"))["agent"]
            for item in (first, second, pinned)
        ]
        assert [(item["version"], item["system"]) for item in shown] == [
            (1, "one"),
            (2, "two"),
            (1, "one"),
        ]
        missing = {"type": "agent", "id": agent["id"], "version": 999}
        environment = await api.environment()
        body = {"agent": missing, "environment_id": environment}
        assert await api.fails(404, "POST", "/v1/sessions", body) == "agent.version: 999 not found"


async def test_overrides_replace_settings_of_one_session_only(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        agent = await api.agent(system="one", tools=[{"type": "agent_toolset_20260401"}])
        overridden = await api.session(
            agent={
                "type": "agent_with_overrides",
                "id": agent["id"],
                "system": None,
                "tools": [],
                "model": {"id": "m", "speed": "fast", "effort": "low"},
            }
        )
        shown = overridden["agent"]
        assert (shown["system"], shown["tools"]) == (None, [])
        assert shown["model"] == {
            "id": "m",
            "speed": "fast",
            "effort": {"type": "low"},
            "inference_geo": None,
        }
        assert (await api.ok("GET", f"/v1/agents/{agent['id']}"))["system"] == "one"
        body = {
            "agent": {"type": "agent_with_overrides", "id": agent["id"], "model": None},
            "environment_id": await api.environment(),
        }
        status, response = await api.call("POST", "/v1/sessions", json=body)
        assert status == 400
        assert response["error"]["details"] == {"error_code": "agent_model_required"}


async def test_initial_events_start_a_turn(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        session = await api.session(initial_events=[message("one"), message("two")])
        assert session["status"] == "running"
        id = ids.parse(session["id"]) or ""
        async for event in api.hub.history.follow(api.principal, id):
            if (
                await api.hub.sessions.get(api.principal, id)
            ).turns == 2 and event.type == "status_changed":
                break
        request = await api.events(session["id"], **{"types[]": "user.message"})
        assert [event["content"][0]["text"] for event in request] == ["one", "two"]


async def test_session_shows_a_repository_without_its_token(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        session = await api.session(
            resources=[
                {
                    "type": "github_repository",
                    "url": "https://github.com/a/b.git",
                    "authorization_token": "ghp_secret",
                    "checkout": {"type": "branch", "name": "main"},
                }
            ]
        )
        (stored,) = session["resources"]
        assert (stored["url"], stored["mount_path"]) == (
            "https://github.com/a/b.git",
            "/workspace/b",
        )
        assert stored["checkout"] == {"type": "branch", "name": "main"}
        path = f"/v1/sessions/{session['id']}/resources"
        assert (await api.ok("GET", path))["data"] == [stored]
        assert await api.ok("GET", f"{path}/{stored['id']}") == stored
        await api.fails(404, "GET", f"{path}/sesrsc_nothing")
        exported = b"".join(
            [line async for line in api.hub.exchange.export(LOCAL, ids.parse(session["id"]) or "")]
        )
        assert b"ghp_secret" not in exported


@pytest.mark.parametrize(
    ("fields", "status", "message_part"),
    [
        ({"metadata": {str(n): "" for n in range(17)}}, 400, "metadata"),
        ({"metadata": {"k" * 65: "v"}}, 400, "metadata"),
        ({"metadata": {"k": "v" * 513}}, 400, "metadata"),
        ({"metadata": {"k": 1}}, 400, "metadata"),
        ({"title": 7}, 400, "title: expected str"),
        ({"title": "x" * 1_001}, 400, "title: expected str of length <= 1000"),
        ({"agent": None}, 400, "agent"),
        ({"agent": "agent_nothing"}, 404, "agent_nothing"),
        ({"agent": ids.format_id("agent", ids.new_id())}, 404, "not found"),
        ({"environment_id": "env_nothing"}, 404, "env_nothing"),
        ({"vault_ids": ["vlt_nothing"]}, 404, "vlt_nothing"),
        ({"resources": [{"type": "file", "file_id": "file_x"}]}, 404, "file_x"),
        ({"resources": [{"type": "nonsense"}]}, 400, "resources"),
        ({"initial_events": [{"type": "user.interrupt"}]}, 400, "initial_events"),
        ({"initial_events": [message("x")] * 51}, 400, "initial_events"),
        ({"surprise": 1}, 400, "surprise: unknown field"),
    ],
)
async def test_invalid_create_request_is_refused_and_stores_nothing(
    tmp_path: Path, fields: dict[str, Any], status: int, message_part: str
) -> None:
    async with open_api(tmp_path) as api:
        body = {
            "agent": await api.built_in("agents"),
            "environment_id": await api.built_in("environments"),
            **fields,
        }
        assert message_part in await api.fails(status, "POST", "/v1/sessions", body)
        assert (await api.ok("GET", "/v1/sessions"))["data"] == []


@pytest.mark.parametrize("content", [b"{", b"[1]", b'"x"', b"\xff\xfe", b"[" * 100_000])
async def test_body_that_is_not_a_json_object_is_400(tmp_path: Path, content: bytes) -> None:
    async with open_api(tmp_path) as api:
        status, response = await api.call("POST", "/v1/sessions", content=content)
        assert (status, response["error"]["type"]) == (400, "invalid_request_error")


async def test_metadata_can_be_patched_and_the_title_set_and_cleared(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        session = await api.session(metadata={"a": "1", "b": "2"}, title="first")
        path = f"/v1/sessions/{session['id']}"
        changed = await api.ok("POST", path, {"title": "second", "metadata": {"a": None, "c": "3"}})
        assert (changed["title"], changed["metadata"]) == ("second", {"b": "2", "c": "3"})
        event = (await api.events(session["id"]))[-1]
        assert event["type"] == "session.updated"
        assert (event["title"], event["metadata"]) == ("second", {"b": "2", "c": "3"})
        assert (await api.ok("POST", path, {"title": None}))["title"] is None
        assert (await api.ok("POST", path, {}))["metadata"] == {"b": "2", "c": "3"}
        many = {str(n): "" for n in range(15)}
        assert "16" in await api.fails(400, "POST", path, {"metadata": many})
        wrong = {"metadata": {"a": "1", "n": 5, "z": None}}
        error = await api.fails(400, "POST", path, wrong)
        assert "metadata['n']: expected str | null, got int" in error
        await api.fails(400, "POST", path, {"vault_ids": ["vlt_x"]})
        await api.fails(400, "POST", path, {"budget": {"type": "limit", "max_list_cost": {}}})


async def test_tools_of_an_idle_session_can_be_replaced(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        session = await api.session()
        tool = {
            "type": "custom",
            "name": "w",
            "description": "",
            "input_schema": {"type": "object"},
        }
        path = f"/v1/sessions/{session['id']}"
        changed = await api.ok("POST", path, {"agent": {"tools": [tool]}})
        assert changed["agent"]["tools"] == [tool]
        assert (await api.ok("GET", path))["agent"]["tools"] == [tool]
        assert (await api.events(session["id"]))[-1]["agent"]["tools"] == [tool]
        bad = {"agent": {"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]}}
        assert "'x'" in await api.fails(400, "POST", path, bad)


async def test_archived_session_is_terminated_readable_and_not_listed(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        session = await api.session()
        id = session["id"]
        await api.say(id, "hello")
        archived = await api.ok("POST", f"/v1/sessions/{id}/archive")
        assert (archived["status"], archived["archived_at"] is not None) == ("terminated", True)
        again = await api.ok("POST", f"/v1/sessions/{id}/archive")
        assert again["archived_at"] == archived["archived_at"]
        assert (await api.events(id))[-1]["type"] == "session.status_terminated"
        assert (await api.ok("GET", "/v1/sessions"))["data"] == []
        shown = await api.ok("GET", "/v1/sessions", include_archived="true")
        assert [item["id"] for item in shown["data"]] == [id]
        first = (await api.ok("GET", f"/v1/sessions/{id}"))["stats"]
        assert (await api.ok("GET", f"/v1/sessions/{id}"))["stats"] == first
        body = {"events": [message("more")]}
        refusal = await api.fails(400, "POST", f"/v1/sessions/{id}/events", body)
        assert "is archived and thereby terminated" in refusal
        await api.fails(400, "POST", f"/v1/sessions/{id}", {"title": "no"})


async def test_running_session_cannot_be_archived_or_deleted(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session())["id"]
        await api.send(id, message("/wait 60"))
        await until_status(api, id, "running")
        response = await api.fails(400, "POST", f"/v1/sessions/{id}/archive")
        assert response == (
            f'Session {id} cannot be archived while its status is "running".'
            " Only pending or idle sessions may be archived."
        )
        response = await api.fails(400, "DELETE", f"/v1/sessions/{id}")
        assert response.startswith("Cannot delete session while it is running.")
        await api.send(id, {"type": "user.interrupt"})
        await until_status(api, id, "idle")
        assert await api.ok("DELETE", f"/v1/sessions/{id}") == {
            "type": "session_deleted",
            "id": id,
        }
        await api.fails(404, "GET", f"/v1/sessions/{id}")
        await api.fails(404, "GET", f"/v1/sessions/{id}/events")


async def until_status(api: Api, id: str, status: str) -> None:
    own = ids.parse(id) or ""
    async for _ in api.hub.history.follow(api.principal, own):
        if (await api.hub.sessions.get(api.principal, own)).status == status:
            return


async def test_session_can_be_read_by_its_uuid(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session())["id"]
        assert (await api.ok("GET", f"/v1/sessions/{ids.parse(id)}"))["id"] == id
        for wrong in ("sesn_x", f"agent_{id[5:]}", "sesn_01" + "z" * 22, "%00", "ümlaut"):
            await api.fails(404, "GET", f"/v1/sessions/{wrong}")


async def test_session_in_the_trash_is_not_found(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session())["id"]
        await api.hub.editor.trash(LOCAL, ids.parse(id) or "")
        await api.fails(404, "GET", f"/v1/sessions/{id}")
        assert (await api.ok("GET", "/v1/sessions", include_archived="true"))["data"] == []


async def test_sessions_of_other_interfaces_can_be_listed_and_continued(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        session = await api.hub.editor.create(
            LOCAL, cwd="/p", tag="t", title="From the command line"
        )
        (shown,) = (await api.ok("GET", "/v1/sessions"))["data"]
        assert (shown["title"], shown["cwd"], shown["tag"]) == (session.title, "/p", "t")
        assert (await api.say(shown["id"], "hello"))[-1]["type"] == "session.status_idle"
