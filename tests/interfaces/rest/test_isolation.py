"""A key cannot read or change the resources of another workspace."""

import json
import socket
from pathlib import Path
from typing import Any

from segue.interfaces.rest.routes import ROUTES
from segue.model import ids
from segue.model.event import AgentRef
from tests.interfaces.rest.api import Api, message, open_api
from tests.interfaces.rest.test_credentials import BEARER
from tests.interfaces.rest.test_files import upload_file
from tests.interfaces.rest.test_skills import skill

STORE = "/v1/memory_stores/{memory_store_id}"
WORK = "/v1/environments/{environment_id}/work"
VAULT = "/v1/vaults/{vault_id}"

# The bodies with which requests are valid up to the ids in their paths.
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/v1/sessions/{session_id}"): {"title": "stolen"},
    ("POST", "/v1/sessions/{session_id}/events"): {"events": [message("stolen")]},
    ("POST", "/v1/sessions/{session_id}/resources"): {"type": "file", "file_id": "file_x"},
    ("POST", "/v1/sessions/{session_id}/resources/{resource_id}"): {"authorization_token": "t"},
    ("POST", "/v1/agents/{agent_id}"): {"name": "stolen"},
    ("POST", "/v1/environments/{environment_id}"): {"name": "stolen"},
    ("POST", f"{WORK}/{{work_id}}"): {"metadata": {"k": "stolen"}},
    ("POST", f"{WORK}/{{work_id}}/stop"): {"force": True},
    ("POST", STORE): {"name": "stolen"},
    ("POST", f"{STORE}/memories"): {"path": "/stolen", "content": "stolen"},
    ("POST", f"{STORE}/memories/{{memory_id}}"): {"content": "stolen"},
    ("POST", VAULT): {"display_name": "stolen"},
    ("POST", f"{VAULT}/credentials"): {"auth": BEARER},
    ("POST", f"{VAULT}/credentials/{{credential_id}}"): {"display_name": "stolen"},
    ("POST", "/v1/deployments/{deployment_id}"): {"name": "stolen"},
    ("POST", "/v1/webhooks/{webhook_id}"): {"description": "stolen"},
    ("POST", "/v1/webhooks/{webhook_id}/rotate_secret"): {"overlap_seconds": 0},
    ("POST", "/v1/webhooks/{webhook_id}/test"): {"event_type": "agent.created"},
}
# Routes without ids in their paths.
KINDS = ("agents", "environments", "memory_stores", "vaults", "deployments", "webhooks")
UNNAMED = ("sessions", "models", "deployment_runs", "files", "skills")
LISTS = {f"/v1/{kind}" for kind in (*UNNAMED, *KINDS)}

CLOSED = socket.socket()  # webhooks are sent to this port, where no server listens
CLOSED.bind(("127.0.0.1", 0))


async def create_resources(api: Api) -> dict[str, str]:
    """Create one resource of each kind, and return their ids by path parameter."""
    url = f"http://127.0.0.1:{CLOSED.getsockname()[1]}/{api.workspace}"
    webhook = await api.ok("POST", "/v1/webhooks", {"url": url, "event_types": ["agent.created"]})
    delivery = await api.ok("POST", f"/v1/webhooks/{webhook['id']}/test")
    agent = await api.agent(name=f"agent of {api.workspace}")
    environment = await api.environment()
    repository = {"type": "github_repository", "url": "https://github.com/a/b"}
    store = await api.ok("POST", "/v1/memory_stores", {"name": f"memory of {api.workspace}"})
    path = f"/v1/memory_stores/{store['id']}/memories"
    memory_text = await api.ok("POST", path, {"path": "/a", "content": "xyzzy"})
    vault = await api.ok("POST", "/v1/vaults", {"display_name": f"vault of {api.workspace}"})
    path = f"/v1/vaults/{vault['id']}/credentials"
    credential = await api.ok("POST", path, {"auth": BEARER})
    file = await upload_file(api, b"xyzzy")
    skill_ref = await skill(api, display_name=f"skill of {api.workspace}")
    made_with = {"agent": agent["id"], "environment_id": environment, "vault_ids": [vault["id"]]}
    memory = {"type": "memory_store", "memory_store_id": store["id"]}
    deployment = await api.ok(
        "POST", "/v1/deployments", {**made_with, "name": "d", "initial_events": [message("hi")]}
    )
    run = await api.ok("POST", f"/v1/deployments/{deployment['id']}/run")
    await wait_for_turn(api, run["session_id"])
    await api.ok("DELETE", f"/v1/sessions/{run['session_id']}")
    session = await api.session(
        **made_with,
        title=f"session of {api.workspace}",
        resources=[repository, memory],
    )
    await api.say(session["id"], f"the secret word of {api.workspace} is xyzzy")
    threads = await api.ok("GET", f"/v1/sessions/{session['id']}/threads")
    hosted = {"name": "h", "config": {"type": "self_hosted"}}
    elsewhere = (await api.ok("POST", "/v1/environments", hosted))["id"]
    remote = await api.session(environment_id=elsewhere)
    await api.say(remote["id"], "on")
    (item,) = (await api.ok("GET", f"/v1/environments/{elsewhere}/work"))["data"]
    await api.ok("DELETE", f"/v1/sessions/{remote['id']}")
    await api.ok("DELETE", f"/v1/environments/{elsewhere}")
    return {
        "work_id": item["id"],
        "session_id": session["id"],
        "agent_id": agent["id"],
        "environment_id": environment,
        "resource_id": session["resources"][0]["id"],
        "thread_id": threads["data"][0]["id"],
        "memory_store_id": store["id"],
        "memory_id": memory_text["id"],
        "memory_version_id": memory_text["memory_version_id"],
        "vault_id": vault["id"],
        "credential_id": credential["id"],
        "file_id": file["id"],
        "skill_id": skill_ref["id"],
        "version": skill_ref["latest_version_id"],
        "deployment_id": deployment["id"],
        "deployment_run_id": run["id"],
        "webhook_id": webhook["id"],
        "delivery_id": delivery["id"],
    }


async def wait_for_turn(api: Api, session: str) -> None:
    id = ids.parse(session) or ""
    async for _ in api.hub.history.follow(api.principal, id):
        if (await api.hub.sessions.get(api.principal, id)).stop_reason == "end_turn":
            return


async def test_ids_of_another_workspace_are_not_found(tmp_path: Path) -> None:
    async with open_api(tmp_path) as own_api:
        other_api = await own_api.other("theirs")
        names = await create_resources(other_api)
        before = await read_resources(other_api, names)
        tried = 0
        for endpoint in ROUTES:
            if "{" not in endpoint.path or "model_id" in endpoint.path:
                continue
            path = endpoint.path.format(**names)
            body = BODIES.get((endpoint.method, endpoint.path))
            options = {} if body is None else {"json": body}
            status, response = await own_api.call(endpoint.method, path, **options)
            assert status == 404, (endpoint.method, path, response)
            assert response["error"]["type"] == "not_found_error"
            data = json.dumps(response)
            assert "theirs" not in data and "xyzzy" not in data
            tried += 1
        assert (
            tried == len([e for e in ROUTES if "{" in e.path]) - 1
        )  # models belong to no workspace
        assert {e.path for e in ROUTES if "{" not in e.path} == LISTS
        assert await read_resources(other_api, names) == before


async def read_resources(api: Api, names: dict[str, str]) -> Any:
    session = await api.ok("GET", f"/v1/sessions/{names['session_id']}")
    session.pop("stats")
    inner = (
        "vaults/{vault_id}/credentials",
        "memory_stores/{memory_store_id}/memories",
        "memory_stores/{memory_store_id}/memory_versions",
        "skills/{skill_id}/versions",
        "webhooks/{webhook_id}/deliveries",
    )
    paths = [*KINDS, "files", "skills", *(item.format(**names) for item in inner)]
    lists = [await api.ok("GET", f"/v1/{path}") for path in paths]
    assert all(item["data"] for item in lists)
    return session, await api.events(names["session_id"]), lists


async def test_lists_and_searches_show_only_the_workspace_of_the_key(tmp_path: Path) -> None:
    async with open_api(tmp_path) as own_api:
        other_api = await own_api.other("theirs")
        own, other = await create_resources(own_api), await create_resources(other_api)
        for api, names in ((own_api, own), (other_api, other)):
            for params in ({}, {"q": "xyzzy"}, {"include_archived": "true"}):
                results = (await api.ok("GET", "/v1/sessions", **params))["data"]
                assert [item["id"] for item in results] == [names["session_id"]]
            for kind in KINDS:
                results = (await api.ok("GET", f"/v1/{kind}"))["data"]
                assert len(results) == (2 if kind in KINDS[:2] else 1)  # one is built in
                assert names[f"{kind[:-1]}_id"] in [item["id"] for item in results]
            (skill_ref,) = (await api.ok("GET", "/v1/skills"))["data"]
            assert skill_ref["id"] == names["skill_id"]
            (file,) = (await api.ok("GET", "/v1/files"))["data"]
            assert file["id"] == names["file_id"]
            (run,) = (await api.ok("GET", "/v1/deployment_runs"))["data"]
            assert run["id"] == names["deployment_run_id"]
        assert (await own_api.ok("GET", "/v1/sessions", agent_id=other["agent_id"]))["data"] == []


async def test_cursor_of_another_workspace_is_invalid(tmp_path: Path) -> None:
    async with open_api(tmp_path) as own_api:
        other_api = await own_api.other("theirs")
        for api in (own_api, other_api):
            for _ in range(3):
                await api.session()
        page = (await other_api.ok("GET", "/v1/sessions", limit=1))["next_page"]
        assert await own_api.fails(400, "GET", "/v1/sessions", page=page) == "invalid page cursor"
        await other_api.agent()
        records = (await other_api.ok("GET", "/v1/agents", limit=1))["next_page"]
        assert await own_api.fails(400, "GET", "/v1/agents", page=records) == "invalid page cursor"


async def test_session_cannot_use_resources_of_another_workspace(tmp_path: Path) -> None:
    async with open_api(tmp_path) as own_api:
        other_api = await own_api.other("theirs")
        names = await create_resources(other_api)
        own = {"agent": await own_api.built_in("agents")}
        own["environment_id"] = await own_api.built_in("environments")
        memory = {"type": "memory_store", "memory_store_id": names["memory_store_id"]}
        file = {"type": "file", "file_id": names["file_id"]}
        for field, value in (
            ("agent", names["agent_id"]),
            ("environment_id", names["environment_id"]),
            ("vault_ids", [names["vault_id"]]),
            ("resources", [memory]),
            ("resources", [file]),
        ):
            await own_api.fails(404, "POST", "/v1/sessions", {**own, field: value})
        session = await own_api.session()
        await own_api.fails(404, "POST", f"/v1/sessions/{session['id']}/resources", file)
        roster = {"type": "coordinator", "agents": [names["agent_id"]]}
        skill_ref = [{"type": "custom", "skill_id": names["skill_id"]}]
        for more in ({"multiagent": roster}, {"skills": skill_ref}):
            await own_api.fails(404, "POST", "/v1/agents", {"name": "a", "model": "m", **more})


async def test_session_does_not_show_an_agent_of_another_workspace(
    tmp_path: Path,
) -> None:
    async with open_api(tmp_path) as own_api:
        other_api = await own_api.other("theirs")
        names = await create_resources(other_api)
        stolen = AgentRef(id=ids.parse(names["agent_id"]) or "")
        await own_api.hub.editor.create(own_api.principal, agent=stolen)
        (shown,) = (await own_api.ok("GET", "/v1/sessions"))["data"]
        assert shown["agent"]["name"] == "unknown"
