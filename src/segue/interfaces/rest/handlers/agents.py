"""Agents: create, update, list, archive, and show the agent of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UnsetType

from segue.hub.resources.agent_settings import shown_settings
from segue.hub.resources.agents import AgentChoice
from segue.interfaces.rest import paging, records
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas import agent_settings, requests
from segue.interfaces.rest.schemas.requests import Page
from segue.model import ids
from segue.model.anthropic.agents import AgentOut
from segue.model.errors import InvalidInput
from segue.model.event import AgentRef
from segue.model.record import Record

from . import skills, topologies


def show(record: Record) -> AgentOut:
    """Return an agent as the API shows it."""
    return msgspec.convert({**shown_settings(record), **records.times(record)}, AgentOut)


async def choice(
    request: RestRequest, agent: str | requests.AgentById | requests.AgentWithOverrides
) -> AgentChoice:
    """Return the agent that a request names."""
    if isinstance(agent, str):
        return AgentChoice(agent)
    if isinstance(agent, requests.AgentWithOverrides):
        return AgentChoice(agent.id, agent.version, await _settings(request, agent))
    return AgentChoice(agent.id, agent.version)


async def _settings(request: RestRequest, settings: requests.Settings) -> dict[str, Any]:
    """Return the settings of a request with its skills pinned to versions."""
    resolved = agent_settings.resolve(settings)
    pinned = await skills.pin(request, settings.skills)
    return resolved if isinstance(pinned, UnsetType) else {**resolved, "skills": pinned}


async def create(request: RestRequest) -> AgentOut:
    sent = await request.stored_body(requests.AgentCreate)
    id = ids.new_id()
    body: dict[str, Any] = {"name": sent.name, **await _settings(request, sent)}
    body |= await _description_and_roster(request, sent, AgentRef(id=id))
    if not isinstance(sent.metadata, UnsetType):
        body["metadata"] = sent.metadata
    return show(await request.hub.agent_resolver.create(request.principal, body, id))


async def update(request: RestRequest) -> AgentOut:
    sent = await request.stored_body(requests.AgentUpdate)
    record = await records.find(request, "agent", request.path_params["agent_id"])
    changes = await _settings(request, sent)
    next_version = AgentRef(id=record.id, version=record.version + 1)
    stored = record.body.get("multiagent")
    changes |= await _description_and_roster(request, sent, next_version, stored)
    if not isinstance(sent.name, UnsetType):
        changes["name"] = sent.name
    expected = None if isinstance(sent.version, UnsetType) else sent.version
    return show(
        await request.hub.agent_resolver.update(
            request.principal, record, changes, sent.metadata, expected_version=expected
        )
    )


async def _description_and_roster(
    request: RestRequest,
    agent: requests.AgentCreate | requests.AgentUpdate,
    coordinator: AgentRef,
    stored: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the description and the topology of a request; `stored` is the agent's topology."""
    body: dict[str, Any] = {}
    if not isinstance(agent.description, UnsetType):
        body["description"] = agent.description or None
    if not isinstance(agent.multiagent, UnsetType):
        body["multiagent"] = await topologies.resolve(
            request, agent.multiagent, coordinator, stored
        )
    return body


async def retrieve(request: RestRequest) -> AgentOut:
    version = request.params.number("version", 1, 1 << 31)
    return show(await records.find(request, "agent", request.path_params["agent_id"], version))


async def list_(request: RestRequest) -> Page[AgentOut]:
    return await records.page(request, "agent", show)


async def versions(request: RestRequest) -> Page[AgentOut]:
    record = await records.find(request, "agent", request.path_params["agent_id"])
    limit = request.params.limit(20, 100)
    token = request.params.text("page")
    list_name = f"versions:{record.id}"
    below = None if token is None else (await paging.decode_page(request, token, list_name))[0]
    rows = await request.hub.records.versions(record, below=below, limit=limit + 1)
    next_page = None
    if len(rows) > limit:
        next_page = await paging.encode_page(request, list_name, rows[limit - 1].version)
    return Page(data=[show(row) for row in rows[:limit]], next_page=next_page)


async def archive(request: RestRequest) -> AgentOut:
    record = await records.find(request, "agent", request.path_params["agent_id"])
    if request.hub.records.is_built_in(record):
        raise InvalidInput("a built-in agent cannot be archived")
    return show(await request.hub.records.archive(record))
