"""Agents: records with versions, and the snapshot of one that a session carries."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UnsetType

from segue.hub import Hub
from segue.hub.resources.records import CONFIGURED
from segue.interfaces.rest import paging, records
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas import agent_settings, requests
from segue.interfaces.rest.schemas.agent import AgentOut
from segue.interfaces.rest.schemas.requests import Page
from segue.model import codec, ids
from segue.model.errors import InvalidInput, NotFound
from segue.model.event import AgentRef
from segue.model.record import Record

from . import skills

_KEPT = 2000
_SHOWN = (
    "name",
    "description",
    "system",
    "model",
    "tools",
    "mcp_servers",
    "skills",
    "multiagent",
    "execution_identity",
)


def show(record: Record) -> AgentOut:
    """An agent as its own address shows it."""
    shown = {
        "type": "agent",
        "id": records.spell(record),
        "version": record.version,
        **_settings(record),
        "metadata": record.body.get("metadata", {}),
        **records.times(record),
    }
    return msgspec.convert(shown, AgentOut)


def _settings(record: Record) -> dict[str, Any]:
    body = record.body
    if "model" not in body and (configured := body.get(CONFIGURED)):
        body = {**body, "model": agent_settings.model(configured)}
    elif isinstance(body.get("model"), str):  # as tools with sessions of their own tell it
        body = {**body, "model": agent_settings.model(body["model"])}
    return {name: body.get(name, agent_settings.DEFAULTS.get(name)) for name in _SHOWN}


def _overridden(overrides: dict[str, Any]) -> dict[str, Any]:
    """What a session has of its own, as far as agents have it here; other doors have more."""
    shown = {name: value for name, value in overrides.items() if name in _SHOWN}
    if isinstance(shown.get("model"), str):
        shown["model"] = agent_settings.model(shown["model"])
    return shown


class Agents:
    """Resolved agents, as sessions show them.

    A version never changes, so what has been resolved once is kept, encoded.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._kept: dict[tuple[str, str, int, bytes], msgspec.Raw] = {}

    def kept(self, workspace: str, ref: AgentRef | None) -> msgspec.Raw | None:
        """The agent of a session, if it has been resolved before."""
        return None if ref is None else self._kept.get(_key(workspace, ref))

    async def resolve(self, workspace: str, ref: AgentRef | None) -> msgspec.Raw:
        """The agent of a session; the built-in one for sessions that have none."""
        if ref is None:
            # Not cached: the version is not stored yet, so a newly configured model changes it.
            return msgspec.Raw(codec.encode(await self.snapshot(workspace, None)))
        found = self.kept(workspace, ref)
        if found is None:
            found = msgspec.Raw(codec.encode(await self.snapshot(workspace, ref)))
            if len(self._kept) >= _KEPT:
                self._kept.clear()  # rarer than keeping count of which was used last would pay for
            self._kept[_key(workspace, ref)] = found
        return found

    async def snapshot(
        self, workspace: str, ref: AgentRef | None, *, roster: bool = True
    ) -> dict[str, Any]:
        """The same as a dict; without `roster`, as a member of one."""
        ref = ref or await self._hub.records.built_in_agent(workspace)
        try:
            record = await self._hub.records.get(workspace, "agent", ref.id, ref.version)
            found = _settings(record)
        except NotFound:  # a session from elsewhere, whose agent did not come along
            found = {**agent_settings.DEFAULTS, "name": "unknown"}
            del found["metadata"]
        topology = found.pop("multiagent")
        shown = {
            "type": "agent",
            "id": ids.format_id("agent", ref.id),
            "version": ref.version,
            **found,
            **_overridden(ref.overrides),
        }
        if not roster:
            return shown
        if topology is not None:
            members = [
                await self.snapshot(workspace, _reference(member), roster=False)
                for member in topology["agents"]
            ]
            topology = {"type": topology["type"], "agents": members}
        return {**shown, "multiagent": topology}


def _key(workspace: str, ref: AgentRef) -> tuple[str, str, int, bytes]:
    return workspace, ref.id, ref.version, codec.encode(ref.overrides) if ref.overrides else b""


def _reference(member: dict[str, Any]) -> AgentRef:
    return AgentRef(id=ids.parse(member["id"], "agent") or "", version=member["version"])


async def chosen(
    request: RestRequest, given: str | requests.AgentById | requests.AgentWithOverrides
) -> AgentRef:
    """The version of an agent that a new session is pinned to, with what it overrides."""
    if isinstance(given, str):
        given = requests.AgentById(id=given)
    record = await records.find(request, "agent", given.id, given.version, field="agent")
    newest = await records.find(request, "agent", given.id, field="agent")
    records.usable(newest, "agent")
    if not request.hub.agent_registry.can_build(record.body.get("spec", {"kind": "default"})):
        raise InvalidInput(
            f"agent: {record.body['name']} is part of a program and answers only there;"
            " this server cannot run it"
        )
    overrides: dict[str, Any] = {}
    if isinstance(given, requests.AgentWithOverrides):
        overrides = await _resolved(request, given)
        agent_settings.check({**record.body, **overrides})
    await skills.check(request, {**record.body, **overrides}.get("skills", []))
    return AgentRef(id=record.id, version=record.version, overrides=overrides)


async def roster(request: RestRequest, ref: AgentRef) -> list[AgentRef]:
    """The agents that one may call, other than itself."""
    record = await request.hub.records.get(request.workspace, "agent", ref.id, ref.version)
    topology = {**record.body, **ref.overrides}.get("multiagent") or {"agents": ()}
    members = [_reference(member) for member in topology["agents"]]
    return [each for each in members if each.id != ref.id]


async def _resolved(request: RestRequest, given: requests.Settings) -> dict[str, Any]:
    """The settings that a request gives, with the skills that it names."""
    found = agent_settings.resolve(given)
    pinned = await skills.pinned(request, given.skills)
    return found if isinstance(pinned, UnsetType) else {**found, "skills": pinned}


async def create(request: RestRequest) -> AgentOut:
    given = await request.body(requests.AgentCreate)
    id = ids.new_id()
    body: dict[str, Any] = {"name": given.name, **await _resolved(request, given)}
    body |= await _rest(request, given, id, 1)
    if not isinstance(given.metadata, UnsetType):
        body["metadata"] = given.metadata
    agent_settings.check(body)
    return show(await request.hub.records.create(request.workspace, "agent", body, id))


async def update(request: RestRequest) -> AgentOut:
    given = await request.body(requests.AgentUpdate)
    record = await records.find(request, "agent", request.path_params["agent_id"])
    changes = await _resolved(request, given)
    changes |= await _rest(request, given, record.id, record.version + 1)
    if not isinstance(given.name, UnsetType):
        changes["name"] = given.name

    def edit(current: Record) -> dict[str, Any]:
        body = {**current.body, **changes}
        if not isinstance(given.metadata, UnsetType):
            body["metadata"] = agent_settings.metadata(
                current.body.get("metadata", {}), given.metadata
            )
        agent_settings.check(body)
        return body

    expected = None if isinstance(given.version, UnsetType) else given.version
    return show(await records.change(request, record, edit, expected=expected))


async def _rest(
    request: RestRequest, given: requests.AgentCreate | requests.AgentUpdate, id: str, version: int
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if not isinstance(given.description, UnsetType):
        found["description"] = given.description or None
    if not isinstance(given.multiagent, UnsetType):
        topology = given.multiagent
        found["multiagent"] = topology and await _coordinator(request, topology, id, version)
    return found


async def _coordinator(
    request: RestRequest, topology: requests.Coordinator, id: str, version: int
) -> dict[str, Any]:
    """A roster, each member pinned to the version that it has now."""
    members: dict[str, dict[str, Any]] = {}
    for entry in topology.agents:
        if isinstance(entry, requests.Itself):
            pinned, number = id, version
        else:
            by_id = requests.AgentById(id=entry) if isinstance(entry, str) else entry
            record = await records.find(
                request, "agent", by_id.id, by_id.version, field="multiagent.agents"
            )
            records.usable(record, "multiagent.agents")
            if record.body.get("multiagent"):
                raise InvalidInput("multiagent.agents: a member cannot itself have multiagent set")
            pinned, number = record.id, record.version
            ref = AgentRef(id=pinned, version=number)
            await request.hub.records.store_built_in(request.workspace, ref)
        if pinned in members:
            raise InvalidInput("multiagent.agents: members must be distinct")
        members[pinned] = {"type": "agent", "id": ids.format_id("agent", pinned), "version": number}
    return {"type": "coordinator", "agents": list(members.values())}


async def retrieve(request: RestRequest) -> AgentOut:
    version = request.params.number("version", 1, 1 << 31)
    return show(await records.find(request, "agent", request.path_params["agent_id"], version))


async def list_(request: RestRequest) -> Page[AgentOut]:
    return await records.page(request, "agent", show)


async def versions(request: RestRequest) -> Page[AgentOut]:
    record = await records.find(request, "agent", request.path_params["agent_id"])
    limit = request.params.limit(20, 100)
    token = request.params.text("page")
    of = f"versions:{record.id}"
    below = None if token is None else (await paging.decode_page(request, token, of))[0]
    rows = await request.hub.records.versions(record, below=below, limit=limit + 1)
    more = len(rows) > limit
    following = await paging.encode_page(request, of, rows[limit - 1].version) if more else None
    return Page(data=[show(row) for row in rows[:limit]], next_page=following)


async def archive(request: RestRequest) -> AgentOut:
    record = await records.find(request, "agent", request.path_params["agent_id"])
    if request.hub.records.is_built_in(record):
        raise InvalidInput("a built-in agent cannot be archived")
    return show(await request.hub.records.archive(record))
