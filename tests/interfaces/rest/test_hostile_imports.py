"""A session that was imported from a stranger's file cannot break the REST API."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from segue.model import ids
from segue.model.event import AgentRef, ConfigChanged, Usage
from segue.model.principal import Principal
from tests.interfaces.rest.api import Api, open_api

ROSTER = {"type": "coordinator", "agents": [{"type": "agent", "id": "x", "version": 1}]}


async def exported(api: Api, body: dict[str, Any], overrides: dict[str, Any]) -> list[bytes]:
    """Return the lines of a session whose agent has a body and overrides."""
    hub = api.hub
    agent = await hub.records.create("elsewhere", "agent", body)
    author = Principal(workspace="elsewhere", local=True)
    session = await hub.editor.create(author, agent=AgentRef(id=agent.id))
    ref = AgentRef(id=agent.id, overrides=overrides)
    await hub.editor.configure(author, session.id, ConfigChanged(agent=ref))
    return [line async for line in hub.exchange.export(author, session.id)]


@pytest.mark.parametrize(
    ("body", "overrides"),
    [
        ({"name": 5}, {}),
        ({"name": "a", "metadata": [1]}, {}),
        ({"name": "a", "model": ""}, {}),
        ({"name": "a", "multiagent": {"agents": 1}}, {}),
        ({"name": "a", "multiagent": ROSTER}, {}),
        ({"name": "a"}, {"name": 5}),
        ({"name": "a"}, {"model": ""}),
        ({"name": "a"}, {"multiagent": ROSTER}),
    ],
)
async def test_malformed_agent_of_a_file_breaks_no_list_and_is_exported_again(
    tmp_path: Path, body: dict[str, Any], overrides: dict[str, Any]
) -> None:
    async with open_api(tmp_path) as api:
        lines = await exported(api, body, overrides)
        session = await api.hub.exchange.import_session(api.principal, lines)
        id = ids.format_id("sesn", session.id)
        await api.ok("GET", "/v1/agents")
        assert len((await api.ok("GET", "/v1/sessions"))["data"]) == 1
        await api.ok("GET", f"/v1/sessions/{id}")
        await api.events(id)
        again = [line async for line in api.hub.exchange.export(api.principal, session.id)]
        assert again[1 : len(lines)] == lines[1:]
        agents = [json.loads(first)["agents"] for first in (lines[0], again[0])]
        assert agents[1][0]["body"] == agents[0][0]["body"]


async def test_odd_ids_of_imported_events_are_shown(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        header, *events = map(json.loads, await exported(api, {"name": "a"}, {}))
        usage = msgspec.to_builtins(Usage())
        bodies: list[dict[str, Any]] = [
            {"type": "user_message", "content": [{"type": "text", "text": "hello"}]},
            {"type": "model_called", "model": "m", "usage": usage, "asked": "odd"},
            {"type": "permission_asked", "ask_id": "?", "title": "t", "options": []},
            {"type": "permission_answered", "ask_id": "?", "option": None},
            {"type": "config_changed", "agent": {"id": "not an id", "version": 1 << 70}},
        ]
        for number, body in enumerate(bodies):
            event = {**events[0], "seq": len(events) + 1, "id": f"odd {number}", "body": body}
            events.append(event)
        header["session"]["last_seq"] = len(events)
        lines = [json.dumps(line).encode() for line in (header, *events)]
        session = await api.hub.exchange.import_session(api.principal, lines)
        shown = await api.events(ids.format_id("sesn", session.id))
        assert "user.message" in [event["type"] for event in shown]
        await api.ok("GET", "/v1/sessions")
