"""Random requests of two workspaces do not read or change resources of the other workspace."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from segue.interfaces.rest.routes import ROUTES
from segue.model import ids
from tests.interfaces.rest.api import Api, message, open_api
from tests.interfaces.rest.test_isolation import (
    BODIES,
    CLOSED,
    create_resources,
    read_resources,
)
from tests.interfaces.rest.test_skills import FILES, form
from tests.postgres import memory_directory

STREAMS = [route for route in ROUTES if route.path.endswith("stream")]
OTHERS = [route for route in ROUTES if route not in STREAMS]
# Query parameters that are ids, and the path parameters for the same resources.
NAMING = {
    "agent_id": "agent_id",
    "deployment_id": "deployment_id",
    "memory_store_id": "memory_store_id",
    "memory_id": "memory_id",
    "session_id": "session_id",
    "scope_id": "session_id",
    "ids[]": "file_id",
    "after_id": "file_id",
    "before_id": "file_id",
}
# Bodies that are forms.
FORMS: dict[tuple[str, str], Any] = {
    ("POST", "/v1/files"): {"file": ("f", b"xyzzy", "text/plain")},
    ("POST", "/v1/skills"): form(FILES),
    ("POST", "/v1/skills/{skill_id}/versions"): form(FILES),
}


class Step(NamedTuple):
    """A request of one of two workspaces; each index chooses whose ids its parts contain."""

    route: int
    asks: int
    path: int
    query: int
    body: int
    filtered: bool
    key: int = 0  # an idempotency key, which both workspaces use; 0 for none


steps = st.builds(
    Step,
    route=st.integers(0, len(OTHERS) - 1),
    asks=st.integers(0, 1),
    path=st.integers(0, 1),
    query=st.integers(0, 1),
    body=st.integers(0, 1),
    filtered=st.booleans(),
    key=st.integers(0, 3),
)


def creation_body(names: dict[str, str], kind: str) -> Any:
    """Return a body that creates a resource from resources of one workspace."""
    setup = {"agent": names["agent_id"], "environment_id": names["environment_id"]}
    memory = {"type": "memory_store", "memory_store_id": names["memory_store_id"]}
    file = {"type": "file", "file_id": names["file_id"]}
    setup |= {"vault_ids": [names["vault_id"]], "resources": [memory, file]}
    skill = {"type": "custom", "skill_id": names["skill_id"]}
    roster = {"type": "coordinator", "agents": [names["agent_id"]]}
    webhook = {
        "url": f"http://127.0.0.1:{CLOSED.getsockname()[1]}/",
        "event_types": ["agent.created"],
    }
    return {
        "/v1/webhooks": webhook,
        "/v1/sessions": setup,
        "/v1/deployments": {**setup, "name": "d", "initial_events": [message("hi")]},
        "/v1/agents": {"name": "a", "model": "m", "multiagent": roster, "skills": [skill]},
    }.get(kind)


class TwoWorkspaces:
    """Two workspaces, and the ids of their resources."""

    def __init__(self, apis: list[Api], names: list[dict[str, str]]) -> None:
        self.apis = apis
        self.names = names

    async def request(self, step: Step) -> None:
        route = OTHERS[step.route]
        api, other = self.apis[step.asks], self.names[1 - step.asks]
        path = route.path.format(**{**self.names[step.path], "model_id": "demo"})
        options: dict[str, Any] = {}
        foreign = (
            step.path != step.asks and bool(route.path_names) and "model_id" not in route.path_names
        )
        if step.filtered:
            chosen = {name: self.names[step.query][kind] for name, kind in NAMING.items()}
            options["params"] = {name: chosen[name] for name in route.query if name in chosen}
        body = BODIES.get((route.method, route.path))
        if route.method == "POST" and (created := creation_body(self.names[step.body], route.path)):
            body = created
            foreign = foreign or (step.body != step.asks and route.path != "/v1/webhooks")
        if (route.method, route.path) in FORMS:
            options["files"] = FORMS[route.method, route.path]
        elif body is not None:
            options["json"] = body
        await api.hub.turns.engine.wait_idle()  # earlier turns still set titles
        before = await fingerprint(self.apis[1 - step.asks], other)
        if step.key:
            options["headers"] = {"idempotency-key": f"key-{step.key}"}
        response = await api.raw(route.method, path, **options)
        assert response.status_code < 500, (route, response.text)
        if foreign:
            assert response.status_code in (400, 404), (route, response.text)
        given_by_us = path + json.dumps(options.get("params", {})) + json.dumps(body)
        for name, id in other.items():
            # The numbers of deliveries are small, and those of a store.
            if id not in given_by_us and name != "delivery_id":
                assert id not in response.text, (route, name)
        assert f"of {self.apis[1 - step.asks].workspace}" not in response.text, route
        if response.status_code == 200:
            text = response.text if "content" not in route.path else ""
            foreign_ids = {**other, "delivery_id": other["webhook_id"]}.values()
            assert not any(id in text for id in foreign_ids), route
        assert await fingerprint(self.apis[1 - step.asks], other) == before, route


async def fingerprint(api: Api, names: dict[str, str]) -> Any:
    """Return everything that a workspace can read of its own resources."""
    results = []
    for path in (
        "/v1/sessions?include_archived=true",
        "/v1/agents?include_archived=true",
        "/v1/environments?include_archived=true",
        "/v1/files",
        "/v1/deployments?include_archived=true",
        "/v1/deployment_runs",
        "/v1/memory_stores?include_archived=true",
        "/v1/vaults?include_archived=true",
        "/v1/skills",
        "/v1/webhooks",
        f"/v1/webhooks/{names['webhook_id']}/deliveries",
        f"/v1/skills/{names['skill_id']}/versions",
        f"/v1/memory_stores/{names['memory_store_id']}/memories?view=full",
        f"/v1/vaults/{names['vault_id']}/credentials",
    ):
        response = (await api.raw("GET", path)).json()
        for item in response.get("data", ()):
            for moving in ("stats", "usage", "updated_at", "status"):
                item.pop(moving, None)
        response.pop("request_id", None)
        results.append(response)
    return results


async def run_steps(steps_taken: list[Step]) -> None:
    with tempfile.TemporaryDirectory(dir=memory_directory(free_bytes=1 << 28)) as directory:
        async with open_api(Path(directory)) as own_api:
            other_api = await own_api.other("theirs")
            workspaces = TwoWorkspaces(
                [own_api, other_api],
                [await create_resources(own_api), await create_resources(other_api)],
            )
            for step in steps_taken:
                await workspaces.request(step)


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, min_size=25, max_size=25))
def test_random_requests_do_not_cross_workspaces(steps_taken: list[Step]) -> None:
    asyncio.run(run_steps(steps_taken))


@pytest.mark.full
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, min_size=40, max_size=40))
def test_long_series_of_random_requests_do_not_cross_workspaces(steps_taken: list[Step]) -> None:
    asyncio.run(run_steps(steps_taken))


def test_random_requests_use_every_id_parameter() -> None:
    naming = {name for route in ROUTES for name in route.query if name.endswith(("_id", "ids[]"))}
    # Only versions of memories show keys and service accounts.
    assert naming - {"api_key_id", "service_account_id"} == NAMING.keys()


async def test_every_route_with_ids_of_another_workspace_is_refused(tmp_path: Path) -> None:
    """Send a request to every route with ids of the other workspace."""
    async with open_api(tmp_path) as own_api:
        other_api = await own_api.other("theirs")
        workspaces = TwoWorkspaces(
            [own_api, other_api],
            [await create_resources(own_api), await create_resources(other_api)],
        )
        before = await read_resources(other_api, workspaces.names[1])
        for number in range(len(OTHERS)):
            await workspaces.request(Step(number, asks=0, path=1, query=1, body=1, filtered=True))
        assert await read_resources(other_api, workspaces.names[1]) == before


async def test_sessions_with_one_id_in_two_workspaces_are_separate(tmp_path: Path) -> None:
    async with open_api(tmp_path) as own_api:
        other_api = await own_api.other("theirs")
        id = ids.new_id()
        session_id = ids.format_id("sesn", id)
        for api in (own_api, other_api):
            await api.hub.editor.create(api.principal, id=id, title=f"of {api.workspace}")
        heard: list[Any] = []

        async def listen() -> None:
            async for event in own_api.hub.history.follow(own_api.principal, id):
                heard.append(event)

        listening = asyncio.create_task(listen())
        before = await own_api.events(session_id)
        response = await other_api.say(session_id, "/say only theirs")
        assert any(item["type"] == "agent.message" for item in response)
        assert await own_api.events(session_id) == before
        await own_api.say(session_id, "/say only mine")
        listening.cancel()
        assert heard and "only theirs" not in str(heard) and "only mine" in str(heard)
        await other_api.ok("DELETE", f"/v1/sessions/{session_id}")
        assert (await own_api.ok("GET", f"/v1/sessions/{session_id}"))["title"] == "of local"
