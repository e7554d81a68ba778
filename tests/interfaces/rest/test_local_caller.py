"""What API keys have set does not become the local user's, who calls the same API."""

from pathlib import Path
from typing import Any

import httpx2
import pytest

from segue.agents.base import Turn
from segue.interfaces.rest.app import RestApp
from segue.model import ids
from segue.model.lifecycle import StopReason
from segue.model.principal import LOCAL
from tests.interfaces.rest.api import HEADERS, Api, open_api
from tests.interfaces.rest.directory_agent import registry_with
from tests.interfaces.rest.test_scheduled import create_deployment


class RecordingAgent:
    """Remembers whether its turns were the local user's."""

    def __init__(self) -> None:
        self.local: list[bool] = []

    async def run(self, turn: Turn) -> StopReason:
        self.local.append(turn.local)
        return "end_turn"


async def run_as_local_user(api: Api, path: str, body: Any = None) -> Any:
    """Send a request as `segue api` does."""
    transport = httpx2.ASGITransport(RestApp(api.hub, principal=LOCAL))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.post(path, headers=HEADERS, json=body or {})
        assert response.status_code == 200, response.text
        return response.json()


@pytest.mark.parametrize("by_key", [False, True])
async def test_deployment_of_a_key_runs_as_a_key_for_the_local_user(
    tmp_path: Path, by_key: bool
) -> None:
    agent = RecordingAgent()
    async with open_api(tmp_path, agent_registry=registry_with(agent)) as api:
        record = await create_deployment(api)
        path = f"/v1/deployments/{record['id']}"
        if not by_key:
            body = {name: record[name] for name in ("name", "environment_id", "initial_events")}
            body["agent"] = record["agent"]["id"]
            record = await run_as_local_user(api, "/v1/deployments", body)
            path = f"/v1/deployments/{record['id']}"
        run = await run_as_local_user(api, f"{path}/run")
        session = await api.hub.sessions.get(LOCAL, ids.parse(run["session_id"]) or "")
        await api.hub.turns.engine.wait_idle()
        assert agent.local == [not by_key]
        assert session.agent_by_key is by_key


async def test_local_users_change_of_an_agent_does_not_adopt_what_a_key_has_set(
    tmp_path: Path,
) -> None:
    async with open_api(tmp_path) as api:
        session = await api.hub.editor.create(LOCAL)
        path = f"/v1/sessions/{ids.format_id('sesn', session.id)}"
        server = {"type": "url", "name": "m", "url": "http://127.0.0.1:1"}
        toolset = {"type": "mcp_toolset", "mcp_server_name": "m"}
        await api.ok("POST", path, {"agent": {"tools": [toolset], "mcp_servers": [server]}})
        tools = [{"type": "agent_toolset_20260401"}]
        await run_as_local_user(api, path, {"agent": {"tools": tools}})
        agent = (await api.hub.sessions.get(LOCAL, session.id)).for_local_turn().agent
        assert agent is not None and agent.overrides.keys() == {"tools"}
