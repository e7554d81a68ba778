"""Versioned records of a workspace: agents, environments and the like, built-in ones included.

Every workspace has a built-in agent and environment, and one agent for each source that can
continue sessions. They are computed, so that reading them writes nothing. They are stored when a
session, a deployment or another agent refers to them, and when they are changed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from segue.model import clock, ids
from segue.model.errors import Conflict, InvalidInput, NotFound
from segue.model.event import AgentRef
from segue.model.query import Position
from segue.model.record import Record, RecordBody
from segue.sources.base import agent_id as source_agent_id
from segue.store.base import Store

from .record_ids import base_kind, format_record_id, parse_record_id

BATCH_SIZE = 200
MAX_METADATA_PAIRS = 16
MAX_ATTEMPTS = 20  # to change a record that others change too
# The field in which a version of the built-in agent has the model that was configured for it.
CONFIGURED = "configured"
# When the built-in records were created, for every workspace.
BUILT_IN_SINCE = clock.from_rfc3339("2026-01-01T00:00:00Z")


PACKAGE_MANAGERS = ("apt", "cargo", "gem", "go", "npm", "pip")
INSTALLED = ("pip", "npm")  # the managers whose packages segue installs
DEFAULT_CONFIG: dict[str, Any] = {
    "type": "cloud",
    "networking": {"type": "unrestricted"},
    "packages": {"type": "packages", **{name: [] for name in PACKAGE_MANAGERS}},
}

BodyType = TypeVar("BodyType", bound=RecordBody)


class EnvironmentBody(RecordBody, frozen=True):
    """The body of an environment's record. Without a `config` it has the default one."""

    name: str
    description: str | None = None
    config: dict[str, Any] | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    scope: str | None = None


class Records:
    """Create, read, change and delete versioned records, scoped by workspace.

    `source_agents` has the agents of other tools by workspace and id.
    """

    def __init__(
        self, store: Store, source_agents: Mapping[tuple[str, str], Mapping[str, Any]] | None = None
    ) -> None:
        self._store = store
        self._source_agents = dict(source_agents or {})
        self._built_in: dict[str, dict[tuple[str, str], Record]] = {}
        self._stored_built_in: set[tuple[str, str, str, int]] = set()

    async def create(
        self, workspace: str, kind: str, body: dict[str, Any], id: str | None = None
    ) -> Record:
        """Store the first version of a record."""
        return await self._store.put_record(new(workspace, kind, body, id))

    async def put(self, *records: Record, drop: Sequence[Record] = ()) -> None:
        """Store new versions and delete records, all or none.

        Raises Conflict if one of them was changed since it was read.
        """
        await self._store.put_records(records, drop)

    async def get(self, workspace: str, kind: str, id: str, version: int | None = None) -> Record:
        """Return a version of a record, by default the newest. Raises NotFound without it."""
        record = await self.find(workspace, kind, id, version)
        if record is None:
            raise NotFound(
                f"no {kind} {id}" if version is None else f"no version {version} of {kind} {id}"
            )
        return record

    async def find(
        self, workspace: str, kind: str, id: str, version: int | None = None
    ) -> Record | None:
        """Return a version of a record, by default the newest, or None."""
        first = self._first_versions(workspace).get((kind, id))
        stored = await self._store.get_record(workspace, kind, id, version)
        if first is None or (stored is not None and version is not None):
            return stored
        newest = stored if version is None else await self._store.get_record(workspace, kind, id)
        current = await self._current(newest or first)
        matches = (record for record in (current, first) if version in (None, record.version))
        return next(matches, None)

    async def resolve(
        self, workspace: str, kind: str, name: str, version: int | None = None, *, field: str = ""
    ) -> Record:
        """Return the record that a prefixed id names, by default its newest version.

        Raises NotFound, with `field` as the request's field that has the id.
        """
        base = base_kind(kind)
        id = parse_record_id(name, kind)
        newest = None if id is None else await self.find(workspace, kind, id)
        if newest is None:
            where = f"{field}: " if field else ""
            raise NotFound(f"{where}{base} {name} not found", missing=base)
        if version is None or version == newest.version:
            return newest
        record = await self.find(workspace, kind, newest.id, version)
        if record is None:
            raise NotFound(f"{field}.version: {version} not found".removeprefix("."))
        return record

    async def change(
        self,
        record: Record,
        edit: Callable[[Record], dict[str, Any]],
        *,
        expected_version: int | None = None,
        drop_earlier: bool = False,
    ) -> Record:
        """Store the body that `edit` returns for the newest version, and return the result.

        `edit` is called again after a concurrent change. An edit that changes nothing creates no
        version. Raises InvalidInput if the record is archived, and Conflict if its version is not
        `expected_version`.
        """
        for _ in range(MAX_ATTEMPTS):
            if record.archived_at is not None:
                raise InvalidInput(
                    f"{base_kind(record.kind)} {format_record_id(record)} is archived"
                )
            if expected_version is not None and record.version != expected_version:
                raise Conflict(
                    f"version: {expected_version} is not the current version, which is"
                    f" {record.version}"
                )
            body = edit(record)
            if body == record.body:
                return record
            try:
                return await self.update(record, body, drop_earlier=drop_earlier)
            except Conflict:
                record = await self.get(record.workspace, record.kind, record.id)
        raise Conflict(
            f"other requests are changing {base_kind(record.kind)} {format_record_id(record)};"
            " try again"
        )

    async def update(
        self, record: Record, body: dict[str, Any], *, drop_earlier: bool = False
    ) -> Record:
        """Store the next version of a record.

        `drop_earlier` deletes the earlier versions. Raises Conflict if the record was changed
        since it was read.
        """
        await self._store_built_in(record.workspace, record.kind, record.id, record.version)
        changed = replace(record, body=body, version=record.version + 1, updated_at=clock.now())
        return await self._store.put_record(changed, drop_earlier=drop_earlier)

    async def amend(self, record: Record) -> Record:
        """Replace the newest version of a record by `record`, which has the same number."""
        return await self._store.put_record(record, amend=True)

    async def supersede(self, record: Record) -> Record:
        """Store a changed record as its next and only version. Raises Conflict as `update` does."""
        following = replace(record, version=record.version + 1)
        return await self._store.put_record(following, drop_earlier=True)

    async def archive(self, record: Record) -> Record:
        """Archive a record, even if it was changed since the caller read it."""
        while record.archived_at is None:
            now = clock.now()
            archived = replace(record, archived_at=now, updated_at=now)
            try:
                return await self.amend(archived)
            except Conflict:
                record = await self.get(record.workspace, record.kind, record.id)
        return record

    async def retire(self, record: Record, cleared: Mapping[str, Any] | None = None) -> Record:
        """Archive a record that has only one stored version.

        `cleared` replaces fields of its body. The archived record is the next version, so a
        concurrent change of the version before it fails and does not restore the record.
        """
        while record.archived_at is None:
            now = clock.now()
            body = {**record.body, **(cleared or {})}
            retired = replace(record, body=body, archived_at=now)
            try:
                return await self.supersede(replace(retired, updated_at=now))
            except Conflict:
                record = await self.get(record.workspace, record.kind, record.id)
        return record

    async def delete(self, record: Record) -> None:
        """Delete all versions of a record, even if it is changed at the same time.

        Ids of the record that are stored elsewhere stay, and refer to nothing.
        """
        newest: Record | None = record
        while newest is not None:
            try:
                await self._store.put_records([], drop=[newest])
                return
            except Conflict:
                newest = await self._store.get_record(record.workspace, record.kind, record.id)

    async def list(
        self,
        workspace: str,
        kind: str,
        *,
        after: Position | None = None,
        archived: bool = False,
        limit: int = 50,
    ) -> tuple[Record, ...]:
        """Return the newest version of each record, newest record first, after a position."""
        rows = await self._store.records(
            workspace, kind, after=after, archived=archived, limit=limit
        )
        built_in = [
            first for first in self._first_versions(workspace).values() if first.kind == kind
        ]
        if not built_in:
            return tuple(rows)
        by_id = {row.id: row for row in rows}
        for first in built_in:
            if first.id in by_id:
                by_id[first.id] = await self._current(by_id[first.id])
            elif after is None or _position(first) < after:
                stored = await self._store.get_record(workspace, kind, first.id)
                if stored is None:
                    by_id[first.id] = await self._current(first)
        return tuple(sorted(by_id.values(), key=_position, reverse=True)[:limit])

    async def all(self, workspace: str, kind: str) -> AsyncIterator[Record]:
        """Yield every record of a kind, archived ones included, newest first."""
        after: Position | None = None
        while rows := await self.list(
            workspace, kind, after=after, archived=True, limit=BATCH_SIZE
        ):
            for record in rows:
                yield record
            after = _position(rows[-1])

    async def versions(
        self, record: Record, *, below: int | None = None, limit: int = 50
    ) -> tuple[Record, ...]:
        """Return the versions of a record with numbers lower than `below`, newest first."""
        top = record.version if below is None else min(below - 1, record.version)
        return tuple(
            [
                await self.get(record.workspace, record.kind, record.id, version)
                for version in range(top, max(0, top - limit), -1)
            ]
        )

    # Built-in records.

    async def built_in_agent(self, workspace: str) -> AgentRef:
        """Return the default agent of new sessions: the configured model or the demo agent."""
        record = await self.get(workspace, "agent", agent_id(workspace))
        return AgentRef(id=record.id, version=record.version)

    def agent_of(self, workspace: str, source: str) -> AgentRef:
        """Return the agent whose sessions a source has."""
        return AgentRef(id=source_agent_id(workspace, source))

    def author(self, workspace: str, source: str) -> AgentRef | None:
        """Return the agent of a copy of a source's session, in which the configured agent answers.

        Returns None if the source has no agent.
        """
        id = source_agent_id(workspace, source)
        known = (workspace, id) in self._source_agents
        return AgentRef(id=id, overrides={"kind": "default"}) if known else None

    def agent_of_copies(self, workspace: str, source: str, label: str) -> AgentRef:
        """Return the agent of copies of a tool's sessions, also if the tool is not used here."""
        if (agent := self.author(workspace, source)) is None:
            body = {"name": label, "model": "default", "spec": {"kind": "default"}}
            self.add_source_agent(workspace, source, body)
            agent = self.author(workspace, source)
        assert agent is not None
        return agent

    def add_source_agent(self, workspace: str, source: str, body: Mapping[str, Any]) -> None:
        """Add the agent of a source that was opened later."""
        self._source_agents[workspace, source_agent_id(workspace, source)] = body
        self._built_in.pop(workspace, None)

    def is_default(self, workspace: str, ref: AgentRef) -> bool:
        """Return whether an agent is the default: that of sessions whose creator chose none."""
        return ref.id == agent_id(workspace)

    def is_built_in(self, record: Record) -> bool:
        """Return whether a record is built in."""
        return (record.kind, record.id) in self._first_versions(record.workspace)

    async def store_built_in(
        self, workspace: str, agent: AgentRef | None, environment_id: str | None = None
    ) -> None:
        """Store an agent and an environment that are about to be referred to, if built in."""
        if agent is not None:
            await self._store_built_in(workspace, "agent", agent.id, agent.version)
        if environment_id is not None:
            await self._store_built_in(workspace, "environment", environment_id, 1)

    def _first_versions(self, workspace: str) -> dict[tuple[str, str], Record]:
        """Return the first version of each built-in record of a workspace, by kind and id."""
        records = self._built_in.get(workspace)
        if records is None:
            bodies: dict[tuple[str, str], dict[str, Any]] = {
                ("agent", agent_id(workspace)): {"name": "segue", "spec": {"kind": "default"}},
                ("environment", built_in_environment(workspace)): {"name": "local"},
            }
            for (owner, id), body in self._source_agents.items():
                if owner == workspace:
                    bodies["agent", id] = dict(body)
            records = self._built_in[workspace] = {}
            for (kind, id), body in bodies.items():
                # Lists show the newest first: the agents of sources come after segue's own.
                created = BUILT_IN_SINCE - ((workspace, id) in self._source_agents)
                record = new(workspace, kind, body, id)
                records[kind, id] = replace(record, created_at=created, updated_at=created)
        return records

    async def _current(self, record: Record) -> Record:
        """Return the current version of a built-in record.

        A version of the built-in agent shows one model: a newly configured model is a new version.
        """
        if record.id != agent_id(record.workspace):
            return record
        model = (await self._store.settings(record.workspace)).get("model")
        if record.body.get(CONFIGURED) == model:
            return record
        return replace(record, body={**record.body, CONFIGURED: model}, version=record.version + 1)

    async def _store_built_in(self, workspace: str, kind: str, id: str, version: int) -> None:
        """Store a built-in record up to a version; do nothing for other records."""
        first = self._first_versions(workspace).get((kind, id))
        if first is None or (workspace, kind, id, version) in self._stored_built_in:
            return
        stored = await self._store.get_record(workspace, kind, id)
        while stored is None or stored.version < version:
            following = first if stored is None else await self._current(stored)
            if stored is not None and following.version == stored.version:
                return  # the version does not exist
            try:
                stored = await self._store.put_record(replace(following, updated_at=clock.now()))
            except Conflict:  # another process has stored it
                stored = await self._store.get_record(workspace, kind, id)
        self._stored_built_in.add((workspace, kind, id, version))

    # Agents by name.

    async def agent_named(self, workspace: str, name: str) -> str:
        """Return the id of the newest agent with a name, or the name if there is none."""
        folded_name = name.casefold()
        async for record in self.all(workspace, "agent"):
            if str(record.body.get("name", "")).casefold() == folded_name:
                return record.id
        return name

    async def agent_names(self, workspace: str, agents: Iterable[str]) -> dict[str, str]:
        """Return the names of agents by id, without agents that do not exist."""
        names: dict[str, str] = {}
        for id in sorted(set(agents)):
            body = self._source_agents.get((workspace, id))
            if body is None and (record := await self.find(workspace, "agent", id)):
                body = record.body
            if body is not None:
                names[id] = str(body.get("name") or id[:8])
        return names

    async def program(self, workspace: str, name: str, spec: dict[str, Any]) -> AgentRef:
        """Store an agent of a Python program; other processes may be unable to build it."""
        id = program_id(workspace, name)
        if await self._store.get_record(workspace, "agent", id) is None:
            with suppress(Conflict):  # another process has stored it
                await self.create(workspace, "agent", {"name": name, "spec": spec}, id)
        return AgentRef(id=id)


def with_sent(body: BodyType, **fields: Any) -> BodyType:
    """Return a record's body with the fields that a request sent; UNSET leaves a field as it is."""
    sent = {name: value for name, value in fields.items() if value is not UNSET}
    return replace(body, **sent)


def patch_config(config: dict[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of an environment with the fields of a request.

    Raises InvalidInput if the request changes the type.
    """
    if patch["type"] != config["type"]:
        raise InvalidInput(
            "config.type: the type of an environment cannot be changed; create another one"
        )
    if patch["type"] == "self_hosted":
        return config
    config = dict(config)
    networking, packages = patch["networking"], patch["packages"]
    if networking is not None:
        before, config["networking"] = config["networking"], networking
        if networking["type"] == "limited":
            sent = {name: value for name, value in networking.items() if value is not None}
            defaults = {
                "allow_mcp_servers": False,
                "allow_package_managers": False,
                "allowed_hosts": [],
            }
            kept = before if before["type"] == "limited" else {}
            config["networking"] = {**defaults, **kept, **sent}
    if packages is not None:
        config["packages"] = {
            "type": "packages",
            **{name: packages[name] or [] for name in PACKAGE_MANAGERS},
        }
    return config


def patch_metadata(
    metadata: Mapping[str, str], patch: Mapping[str, str | None] | UnsetType | None
) -> dict[str, str]:
    """Return metadata after a patch, in which None deletes a key.

    Raises InvalidInput if it has more than MAX_METADATA_PAIRS pairs then.
    """
    merged = {**metadata, **(patch or {})}
    patched = {key: value for key, value in merged.items() if value is not None}
    if len(patched) > MAX_METADATA_PAIRS:
        raise InvalidInput(f"metadata: at most {MAX_METADATA_PAIRS} pairs")
    return patched


def new(workspace: str, kind: str, body: dict[str, Any], id: str | None = None) -> Record:
    """Return the first version of a record, not yet stored."""
    now = clock.now()
    return Record(
        workspace=workspace,
        kind=kind,
        id=id or ids.new_id(),
        version=1,
        created_at=now,
        updated_at=now,
        body=body,
    )


def _position(record: Record) -> Position:
    return Position(record.created_at, record.id)


@lru_cache(1024)
def program_id(workspace: str, name: str) -> str:
    """Return the id of a program's agent."""
    return ids.derived_id("segue", "program", workspace, name)


@lru_cache(1024)
def agent_id(workspace: str) -> str:
    """Return the id of a workspace's built-in agent."""
    return ids.derived_id("segue", "agent", workspace)


@lru_cache(1024)
def built_in_environment(workspace: str) -> str:
    """Return the id of the environment of sessions that name none: this machine."""
    return ids.derived_id("segue", "environment", workspace)
