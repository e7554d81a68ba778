"""Memory stores, vaults and deployments, and the sessions that use them."""

from pathlib import Path
from typing import Any

import pytest

from segue.model import ids
from tests.interfaces.rest.api import Api, message, open_api


async def create(api: Api, kind: str, **fields: Any) -> dict[str, Any]:
    return await api.ok("POST", f"/v1/{kind}", fields)


async def test_session_shows_the_memory_store_as_it_was_when_attached(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        store = await create(api, "memory_stores", name="User's Preferences", description="d")
        attached = {"type": "memory_store", "memory_store_id": store["id"], "access": "read_only"}
        session = await api.session(resources=[attached])
        path = f"/v1/memory_stores/{store['id']}"
        assert (await api.ok("POST", path, {"name": "renamed"}))["name"] == "renamed"
        (stored,) = (await api.ok("GET", f"/v1/sessions/{session['id']}"))["resources"]
        assert stored == {
            "type": "memory_store",
            "memory_store_id": store["id"],
            "access": "read_only",
            "name": "User's Preferences",
            "description": "d",
            "instructions": None,
            "mount_path": "/mnt/memory/user-s-preferences",
        }
        await api.session()
        results = await api.ok("GET", "/v1/sessions", memory_store_id=store["id"])
        assert [item["id"] for item in results["data"]] == [session["id"]]
        twice = {"resources": [attached, attached]}
        twice |= {"agent": session["agent"]["id"], "environment_id": session["environment_id"]}
        assert "only once" in await api.fails(400, "POST", "/v1/sessions", twice)


@pytest.mark.parametrize(("kind", "name"), [("memory_stores", "name"), ("vaults", "display_name")])
async def test_memory_stores_and_vaults_can_be_updated_archived_and_deleted(
    tmp_path: Path, kind: str, name: str
) -> None:
    async with open_api(tmp_path) as api:
        first = await create(api, kind, **{name: "one", "metadata": {"a": "1"}})
        second = await create(api, kind, **{name: "two"})
        path = f"/v1/{kind}/{first['id']}"
        changed = await api.ok("POST", path, {name: "uno", "metadata": {"a": None, "b": "2"}})
        assert (changed[name], changed["metadata"]) == ("uno", {"b": "2"})
        assert await api.ok("GET", path) == changed
        assert (await api.ok("POST", f"{path}/archive"))["archived_at"] is not None
        await api.fails(400, "POST", path, {name: "late"})
        assert [item["id"] for item in (await api.ok("GET", f"/v1/{kind}"))["data"]] == [
            second["id"]
        ]
        both = await api.ok("GET", f"/v1/{kind}", include_archived="true", limit=1)
        assert both["data"][0]["id"] == second["id"]
        rest = await api.ok("GET", f"/v1/{kind}", include_archived="true", page=both["next_page"])
        assert [item["id"] for item in rest["data"]] == [first["id"]]
        assert (await api.ok("DELETE", path))["type"] == f"{kind[:-1]}_deleted"
        await api.fails(404, "GET", path)
        await api.fails(400, "POST", f"/v1/{kind}", {name: ""})
        await api.fails(400, "POST", f"/v1/{kind}", {})


async def test_session_shows_its_vaults(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        vault = await create(api, "vaults", display_name="v")
        session = await api.session(vault_ids=[vault["id"]])
        assert session["vault_ids"] == [vault["id"]]
        await api.ok("POST", f"/v1/vaults/{vault['id']}/archive")
        body = {"agent": session["agent"]["id"], "environment_id": session["environment_id"]}
        body["vault_ids"] = [vault["id"]]
        assert "archived" in await api.fails(400, "POST", "/v1/sessions", body)


async def test_memory_store_is_served_with_either_beta_header(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        for beta in ("managed-agents-2026-04-01", "agent-memory-2026-07-22"):
            headers = {"anthropic-beta": beta}
            assert (await api.call("GET", "/v1/memory_stores", headers=headers))[0] == 200


async def test_run_of_a_deployment_creates_a_session_with_its_settings(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        agent = await api.agent(system="one")
        deployment = await create(
            api,
            "deployments",
            name="nightly",
            agent=agent["id"],
            environment_id=await api.environment(),
            initial_events=[message("go")],
            resources=[
                {
                    "type": "github_repository",
                    "url": "https://github.com/a/b",
                    "authorization_token": "ghp_secret",
                }
            ],
        )
        assert deployment["agent"] == {"type": "agent", "id": agent["id"], "version": 1}
        assert "ghp_secret" not in str(deployment)
        await api.ok("POST", f"/v1/agents/{agent['id']}", {"system": "two"})
        path = f"/v1/deployments/{deployment['id']}"
        run = await api.ok("POST", f"{path}/run")
        assert (run["error"], run["trigger_context"]) == (None, {"type": "manual"})
        session = await api.ok("GET", f"/v1/sessions/{run['session_id']}")
        assert (session["deployment_id"], session["agent"]["system"]) == (deployment["id"], "one")
        await api.session()
        results = await api.ok("GET", "/v1/sessions", deployment_id=deployment["id"])
        assert [item["id"] for item in results["data"]] == [session["id"]]
        id = ids.parse(session["id"]) or ""
        async for _ in api.hub.history.follow(api.principal, id):
            if (await api.hub.sessions.get(api.principal, id)).stop_reason == "end_turn":
                break
        (request,) = await api.events(session["id"], **{"types[]": "user.message"})
        assert request["content"] == [{"type": "text", "text": "go"}]
        for params in ({}, {"deployment_id": deployment["id"]}, {"trigger_type": "manual"}):
            assert (await api.ok("GET", "/v1/deployment_runs", **params))["data"] == [run]
        for params in ({"deployment_id": "depl_x"}, {"has_error": "true"}):
            assert (await api.ok("GET", "/v1/deployment_runs", **params))["data"] == []
        assert await api.ok("GET", f"/v1/deployment_runs/{run['id']}") == run


async def test_deployment_can_send_a_system_message_to_its_sessions(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        sent = {"type": "system.message", "content": [{"type": "text", "text": "be brief"}]}
        base = {"agent": await api.built_in("agents"), "name": "d"}
        base["environment_id"] = await api.built_in("environments")
        opening = [message("one"), message("/system"), sent]
        deployment = await create(api, "deployments", initial_events=opening, **base)
        assert deployment["initial_events"][2] == sent
        run = await api.ok("POST", f"/v1/deployments/{deployment['id']}/run")
        await api.hub.turns.engine.wait_idle()
        events = await api.events(run["session_id"])
        assert [item["type"] for item in events].count("system.message") == 1
        answers = [item["content"][0]["text"] for item in events if item["type"] == "agent.message"]
        assert "be brief" in answers[-1]
        for wrong in ([sent], [sent, message("one")]):
            body = {**base, "initial_events": wrong}
            assert "system.message" in await api.fails(400, "POST", "/v1/deployments", body)


async def test_deployment_can_be_updated_paused_and_archived(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        agent = await api.agent()
        base = {"agent": agent["id"], "environment_id": await api.environment()}
        deployment = await create(
            api, "deployments", name="d", initial_events=[message("one")], **base
        )
        path = f"/v1/deployments/{deployment['id']}"
        changed = await api.ok(
            "POST", path, {"initial_events": [message("two")], "metadata": {"k": "v"}}
        )
        assert changed["initial_events"][0]["content"][0]["text"] == "two"
        assert (changed["name"], changed["metadata"]) == ("d", {"k": "v"})
        paused = await api.ok("POST", f"{path}/pause")
        assert (paused["status"], paused["paused_reason"]) == ("paused", {"type": "manual"})
        for status, count in (("paused", 1), ("active", 0)):
            assert len((await api.ok("GET", "/v1/deployments", status=status))["data"]) == count
        assert (await api.ok("POST", f"{path}/unpause"))["status"] == "active"
        assert (await api.ok("GET", "/v1/deployments", agent_id=agent["id"]))["data"]
        assert not (await api.ok("GET", "/v1/deployments", agent_id="agent_x"))["data"]
        await api.fails(404, "POST", path, {"environment_id": "env_x"})
        await api.fails(400, "POST", path, {"initial_events": []})
        await api.ok("POST", f"{path}/archive")
        assert "archived" in await api.fails(400, "POST", f"{path}/run")
        assert (await api.ok("GET", "/v1/deployments"))["data"] == []
