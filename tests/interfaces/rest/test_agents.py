"""Agents, environments and models."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from segue.agents.demo import DemoAgent
from segue.model import clock, ids
from segue.model.record import Record
from tests.agents.provider import Provider
from tests.interfaces.rest.api import open_api

BASH = {"name": "bash", "enabled": False}


async def test_agent_that_only_one_process_has_cannot_start_sessions(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        body = {"name": "echo", "spec": {"kind": "program:echo"}}
        record = await api.hub.records.create("local", "agent", body)
        agent = ids.format_id("agent", record.id)
        environment = (await api.session())["environment_id"]
        sent = {"agent": agent, "environment_id": environment}
        error = await api.fails(400, "POST", "/v1/sessions", sent)
        assert "echo is part of a program" in error
        api.hub.agent_registry.register("program:echo", lambda spec: DemoAgent())
        assert (await api.ok("POST", "/v1/sessions", sent))["agent"]["id"] == agent


async def test_agent_settings_are_stored_with_all_defaults(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        agent = await api.agent(
            model={"id": "m", "speed": "fast"},
            tools=[
                {"type": "agent_toolset_20260401", "configs": [BASH]},
                {
                    "type": "mcp_toolset",
                    "mcp_server_name": "s",
                    "default_config": {"permission_policy": {"type": "auto"}},
                    "configs": [{"name": "t"}],
                },
            ],
            mcp_servers=[{"type": "url", "name": "s", "url": "https://example.com/mcp"}],
        )
        assert agent["tools"] == [
            {
                "type": "agent_toolset_20260401",
                "configs": [
                    {
                        "type": "bash",
                        "name": "bash",
                        "enabled": False,
                        "permission_policy": {"type": "always_allow"},
                    }
                ],
                "default_config": {
                    "enabled": True,
                    "permission_policy": {"type": "always_allow"},
                },
            },
            {
                "type": "mcp_toolset",
                "mcp_server_name": "s",
                "configs": [{"name": "t", "enabled": True, "permission_policy": {"type": "auto"}}],
                "default_config": {"enabled": True, "permission_policy": {"type": "auto"}},
            },
        ]
        assert agent["model"]["speed"] == "fast"
        assert await api.ok("GET", f"/v1/agents/{agent['id']}") == agent


async def test_each_update_of_an_agent_stores_a_version(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        path = f"/v1/agents/{(await api.agent(system='1'))['id']}"
        for number in range(2, 6):
            changed = await api.ok("POST", path, {"system": str(number), "version": number - 1})
            assert (changed["version"], changed["system"]) == (number, str(number))
        same = await api.ok("POST", path, {"system": "5"})
        assert same["version"] == 5
        assert (await api.ok("GET", path, version="2"))["system"] == "2"
        assert await api.fails(404, "GET", path, version="9") == "version: 9 not found"
        seen, page = [], {}
        while True:
            results = await api.ok("GET", f"{path}/versions", limit=2, **page)
            seen += [item["system"] for item in results["data"]]
            if results["next_page"] is None:
                break
            page = {"page": results["next_page"]}
        assert seen == ["5", "4", "3", "2", "1"]


async def test_update_of_a_stale_agent_version_is_409_without_retry(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        path = f"/v1/agents/{(await api.agent())['id']}"
        await api.ok("POST", path, {"name": "b", "version": 1})
        response = await api.raw("POST", path, json={"name": "c", "version": 1})
        assert (response.status_code, response.headers["x-should-retry"]) == (409, "false")
        assert response.json()["error"]["type"] == "conflict_error"
        assert (await api.ok("GET", path))["name"] == "b"


async def test_roster_versions_are_pinned_and_sessions_show_the_agents_in_full(
    tmp_path: Path,
) -> None:
    async with open_api(tmp_path) as api:
        member = await api.agent(name="member", system="research")
        lead = await api.agent(multiagent={"type": "coordinator", "agents": [member["id"]]})
        assert lead["multiagent"] == {
            "type": "coordinator",
            "agents": [{"type": "agent", "id": member["id"], "version": 1}],
        }
        await api.ok("POST", f"/v1/agents/{member['id']}", {"system": "changed"})
        session = await api.session(agent=lead["id"])
        (shown,) = session["agent"]["multiagent"]["agents"]
        assert (shown["name"], shown["version"], shown["system"]) == ("member", 1, "research")
        deep = {"name": "x", "model": "m", "multiagent": {"type": "coordinator"}}
        deep["multiagent"]["agents"] = [lead["id"]]  # type: ignore[index]
        await api.fails(400, "POST", "/v1/agents", deep)


@pytest.mark.parametrize(
    ("fields", "message_part"),
    [
        ({"model": {"id": "m", "speed": "ludicrous"}}, "model.speed"),
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"name": ""}, "name"),
        ({"name": "x" * 257}, "name"),
        ({"description": "x" * 2049}, "description"),
        ({"system": "x" * 100_001}, "system"),
        ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "s"}]}, "tools"),
        ({"tools": [{"type": "agent_toolset_20260401", "configs": [{"name": "rm"}]}]}, "tools"),
        ({"mcp_servers": [{"type": "url", "name": "s", "url": "https://x"}]}, "mcp_servers"),
        ({"mcp_servers": [{"type": "url", "name": "s", "url": "file:///x"}]}, "mcp_servers"),
        ({"metadata": {"k" * 65: ""}}, "metadata"),
        ({"multiagent": {"type": "coordinator", "agents": []}}, "multiagent.agents"),
        ({"surprise": True}, "surprise"),
    ],
)
async def test_error_for_invalid_agent_settings_names_the_field(
    tmp_path: Path, fields: dict[str, Any], message_part: str
) -> None:
    async with open_api(tmp_path) as api:
        body = {"name": "a", "model": "m", **fields}
        assert message_part in await api.fails(400, "POST", "/v1/agents", body)


@pytest.mark.parametrize("first", ["archive", "update"])
async def test_concurrent_archive_and_update_of_an_agent_both_take_effect(
    tmp_path: Path, database: str | None, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Both requests have read the agent when the first of them writes."""
    async with open_api(tmp_path, database=database) as api:
        path = f"/v1/agents/{(await api.agent())['id']}"
        put, read, deleted = api.hub.store.put_record, asyncio.Event(), asyncio.Event()

        async def slow(
            record: Record, *, amend: bool = False, drop_earlier: bool = False
        ) -> Record:
            if amend == (first == "update") and not read.is_set():
                read.set()
                await deleted.wait()
            return await put(record, amend=amend, drop_earlier=drop_earlier)

        monkeypatch.setattr(api.hub.store, "put_record", slow)
        archive = api.call("POST", f"{path}/archive")
        update = api.call("POST", path, json={"name": "other"})
        later, sooner = (update, archive) if first == "archive" else (archive, update)
        waits = asyncio.ensure_future(later)
        await read.wait()
        assert (await sooner)[0] == 200
        deleted.set()
        status, response = await waits
        shown = await api.ok("GET", path)
        assert shown["archived_at"] is not None
        if first == "archive":
            assert (status, shown["name"], shown["version"]) == (400, "a", 1)
            assert "is archived" in response["error"]["message"]
        else:
            assert (status, shown["name"], shown["version"]) == (200, "other", 2)
            assert response == shown


async def test_agents_are_listed_newest_first_and_archived_ones_on_request(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        agent = [await api.agent(name=str(number)) for number in range(3)]
        path = f"/v1/agents/{agent[1]['id']}"
        assert (await api.ok("POST", f"{path}/archive"))["archived_at"] is not None

        async def names(**params: Any) -> list[str]:
            return [item["name"] for item in (await api.ok("GET", "/v1/agents", **params))["data"]]

        assert await names() == ["2", "0", "segue"]
        assert await names(include_archived="true") == ["2", "1", "0", "segue"]
        assert await names(**{"created_at[lte]": agent[2]["created_at"]}) == ["2", "0", "segue"]
        assert await names(**{"created_at[gte]": agent[2]["created_at"]}) == ["2"]
        await api.fails(400, "POST", path, {"name": "x"})
        body = {"agent": agent[1]["id"], "environment_id": await api.environment()}
        assert "archived" in await api.fails(400, "POST", "/v1/sessions", body)


async def test_built_in_records_are_listed_and_cannot_be_deleted(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        (agent,) = (await api.ok("GET", "/v1/agents"))["data"]
        (environment,) = (await api.ok("GET", "/v1/environments"))["data"]
        assert (agent["name"], agent["model"]["id"]) == ("segue", "demo")
        assert (environment["name"], environment["config"]["type"]) == ("local", "cloud")
        await api.fails(400, "POST", f"/v1/agents/{agent['id']}/archive")
        await api.fails(400, "DELETE", f"/v1/environments/{environment['id']}")


async def test_reading_built_in_records_does_not_store_them(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        agent = await api.ok("GET", f"/v1/agents/{await api.built_in('agents')}")
        environment = await api.ok("GET", f"/v1/environments/{await api.built_in('environments')}")
        await api.ok("GET", "/v1/agents")
        await api.ok("GET", f"/v1/agents/{agent['id']}/versions")
        for kind in ("agent", "environment"):
            assert await api.hub.store.records("local", kind) == []
        session = await api.session()
        assert session["agent"]["version"] == agent["version"]
        for kind, shown in (("agent", agent), ("environment", environment)):
            (stored,) = await api.hub.store.records("local", kind)
            assert clock.to_rfc3339(stored.created_at) == shown["created_at"]


async def test_updating_built_in_records_stores_them(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        await api.hub.config.set("local", "model", "anthropic:claude-opus-4-8")
        path = f"/v1/agents/{await api.built_in('agents')}"
        assert (await api.ok("GET", path))["version"] == 2
        changed = await api.ok("POST", path, {"system": "Be brief.", "version": 2})
        assert (changed["version"], changed["system"]) == (3, "Be brief.")
        versions = (await api.ok("GET", f"{path}/versions"))["data"]
        assert [version["version"] for version in versions] == [3, 2, 1]
        path = f"/v1/environments/{await api.built_in('environments')}"
        assert (await api.ok("POST", path, {"name": "here"}))["name"] == "here"
        assert (await api.ok("GET", path))["name"] == "here"


async def test_environment_can_be_updated_field_by_field_and_deleted(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        config = {"type": "cloud", "packages": {"pip": ["httpx"]}}
        environment = await api.ok(
            "POST", "/v1/environments", {"name": "e", "config": config, "metadata": {"a": "1"}}
        )
        path = f"/v1/environments/{environment['id']}"
        limited = {"type": "cloud", "networking": {"type": "limited", "allowed_hosts": ["x.org"]}}
        changed = await api.ok("POST", path, {"config": limited, "metadata": {"a": "", "b": "2"}})
        assert changed["metadata"] == {"b": "2"}
        assert changed["config"]["packages"]["pip"] == ["httpx"]
        assert changed["config"]["networking"] == {
            "type": "limited",
            "allowed_hosts": ["x.org"],
            "allow_mcp_servers": False,
            "allow_package_managers": False,
        }
        assert await api.ok("GET", path) == changed
        assert await api.ok("DELETE", path) == {
            "type": "environment_deleted",
            "id": environment["id"],
        }
        await api.fails(404, "GET", path)
        listed = await api.ok("GET", "/v1/environments", include_archived="true")
        assert [item["name"] for item in listed["data"]] == ["local"]


async def test_pages_of_environments_skip_deleted_ones(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        created = [await api.environment() for _ in range(9)]
        for id in created[2:8]:
            await api.ok("DELETE", f"/v1/environments/{id}")
        seen, page = [], {}
        while True:
            results = await api.ok(
                "GET", "/v1/environments", limit=2, include_archived="true", **page
            )
            seen += [item["id"] for item in results["data"]]
            if results["next_page"] is None:
                break
            assert len(results["data"]) == 2
            page = {"page": results["next_page"]}
        assert set(created) - set(created[2:8]) < set(seen)
        assert len(seen) == len(set(seen)) == 4


async def test_models_list_has_the_configured_model(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        results = await api.ok("GET", "/v1/models")
        assert [model["id"] for model in results["data"]] == ["demo"]
        assert results["has_more"] is False
        assert await api.ok("GET", "/v1/models/demo") == results["data"][0]
        await api.fails(404, "GET", "/v1/models/claude-unknown")


async def test_fast_mode_is_not_requested_from_a_model_without_it(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        for model in ("claude-haiku-4-5", "claude-opus-4-5-20251101"):
            body = {"name": "a", "model": {"id": model, "speed": "fast"}}
            assert "no fast mode" in await api.fails(400, "POST", "/v1/agents", body)
        agent = await api.agent(model={"id": "claude-opus-4-8", "speed": "fast"})
        assert agent["model"]["speed"] == "fast"
        ended = {"type": "agent_with_overrides", "id": agent["id"]}
        ended["model"] = {"id": "claude-sonnet-4-6", "speed": "fast"}
        environment_id = await api.built_in("environments")
        body = {"agent": ended, "environment_id": environment_id}
        assert "no fast mode" in await api.fails(400, "POST", "/v1/sessions", body)


async def test_agent_without_tools_has_none(tmp_path: Path, model: Provider) -> None:
    async with model, open_api(tmp_path) as api:
        await api.hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
        await api.hub.config.set("local", "model.base_url", model.url)
        agent = await api.agent(model="anthropic:claude-sonnet-4-6")
        assert agent["tools"] == []
        session = await api.session(agent=agent["id"])
        await api.say(session["id"], "hello")
        assert not model.requests[0].get("tools")


async def test_built_in_agent_shows_the_tools_that_its_model_gets(
    tmp_path: Path, model: Provider
) -> None:
    async with model, open_api(tmp_path) as api:
        await api.hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
        await api.hub.config.set("local", "model.base_url", model.url)
        session = await api.session()
        (toolset,) = session["agent"]["tools"]
        assert toolset["default_config"] == {
            "enabled": True,
            "permission_policy": {"type": "auto"},
        }
        await api.say(session["id"], "hello")
        assert "bash" in {tool["name"] for tool in model.requests[0]["tools"]}


async def test_custom_tool_cannot_have_the_name_of_a_built_in_tool(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        schema = {"type": "object", "properties": {}}
        tool = {"type": "custom", "name": "grep", "description": "d", "input_schema": schema}
        sent = {"name": "a", "model": "demo", "tools": [tool]}
        error = await api.fails(400, "POST", "/v1/agents", sent)
        assert error == "tools: 'grep' is a built-in tool; give the custom tool another name"
