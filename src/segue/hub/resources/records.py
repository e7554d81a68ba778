"""Records that sessions refer to, and those that a workspace has from the start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from segue.model import clock, ids
from segue.model.errors import Conflict, NotFound
from segue.model.event import AgentRef
from segue.model.query import Position
from segue.model.record import Record
from segue.sources.base import agent_id as source_agent_id
from segue.store.base import Store

_BATCH = 200
# Where the built-in agent's record has the model that was configured when its version was made.
CONFIGURED = "configured"


class Records:
    """Agents, environments and the like: versioned, scoped by workspace.

    `agents` are those of other tools, by workspace and id.
    """

    def __init__(
        self, store: Store, agents: Mapping[tuple[str, str], Mapping[str, Any]] | None = None
    ) -> None:
        self._store = store
        self._agents = agents or {}
        self._ready: set[str] = set()

    async def create(
        self, workspace: str, kind: str, body: dict[str, Any], id: str | None = None
    ) -> Record:
        return await self._store.put_record(new(workspace, kind, body, id))

    async def put(self, *records: Record, drop: Sequence[Record] = ()) -> None:
        """Several changes, all or none; Conflict if somebody else changed one of them first."""
        await self._store.put_records(records, drop)

    async def get(self, workspace: str, kind: str, id: str, version: int | None = None) -> Record:
        found = await self._store.get_record(workspace, kind, id, version)
        if found is None:
            which = f"no {kind} {id}" if version is None else f"no version {version} of {kind} {id}"
            raise NotFound(which)
        return found

    async def find(self, workspace: str, kind: str, id: str) -> Record | None:
        """The newest version, if there is one."""
        return await self._store.get_record(workspace, kind, id)

    async def update(self, record: Record, body: dict[str, Any], *, only: bool = False) -> Record:
        """The next version; Conflict if somebody else made one since `record` was read.

        With `only`, the earlier ones are forgotten.
        """
        changed = replace(record, body=body, version=record.version + 1, updated_at=clock.now())
        return await self._store.put_record(changed, drop_earlier=only)

    async def amend(self, record: Record) -> Record:
        """The record in the place of its newest version, of which nothing is kept."""
        return await self._store.put_record(record, amend=True)

    async def supersede(self, record: Record) -> Record:
        """The record, changed, as the next and only version; Conflict as with `update`."""
        following = replace(record, version=record.version + 1)
        return await self._store.put_record(following, drop_earlier=True)

    async def archive(self, record: Record) -> Record:
        """The newest version as an archived one, whichever that is by then."""
        while record.archived_at is None:
            now = clock.now()
            archived = replace(record, archived_at=now, updated_at=now)
            try:
                return await self.amend(archived)
            except Conflict:
                record = await self.get(record.workspace, record.kind, record.id)
        return record

    async def retire(self, record: Record, emptied: Mapping[str, Any] | None = None) -> Record:
        """Archive a record of which one version is kept, with what is `emptied` in its body.

        It is the next one, so nobody who read the record before brings it back by a change.
        """
        while record.archived_at is None:
            now = clock.now()
            body = {**record.body, **(emptied or {})}
            retired = replace(record, body=body, archived_at=now)
            try:
                return await self.supersede(replace(retired, updated_at=now))
            except Conflict:
                record = await self.get(record.workspace, record.kind, record.id)
        return record

    async def delete(self, record: Record) -> None:
        """Forget a record, all versions of it; what referred to it keeps an id that names nothing.

        Whoever changes it meanwhile loses.
        """
        found: Record | None = record
        while found is not None:
            try:
                await self._store.put_records([], drop=[found])
                return
            except Conflict:
                found = await self._store.get_record(record.workspace, record.kind, record.id)

    async def list(
        self,
        workspace: str,
        kind: str,
        *,
        after: Position | None = None,
        archived: bool = False,
        limit: int = 50,
    ) -> tuple[Record, ...]:
        """The newest versions, newest record first, from after a position."""
        rows = await self._store.records(
            workspace, kind, after=after, archived=archived, limit=limit
        )
        return tuple(rows)

    async def all(self, workspace: str, kind: str) -> AsyncIterator[Record]:
        """Every record of a kind, archived ones too, newest first."""
        after: Position | None = None
        while rows := await self.list(workspace, kind, after=after, archived=True, limit=_BATCH):
            for record in rows:
                yield record
            after = Position(rows[-1].created_at, rows[-1].id)

    async def versions(
        self, record: Record, *, below: int | None = None, limit: int = 50
    ) -> tuple[Record, ...]:
        """A record's versions, newest first, from below a number."""
        top = record.version if below is None else min(below - 1, record.version)
        return tuple(
            [
                await self.get(record.workspace, record.kind, record.id, version)
                for version in range(top, max(0, top - limit), -1)
            ]
        )

    async def built_in_agent(self, workspace: str) -> AgentRef:
        """The agent of sessions that name none: the configured model, or the demo agent."""
        record = await self.built_in(workspace)
        return AgentRef(id=record.id, version=record.version)

    async def built_in(self, workspace: str) -> Record:
        """The built-in agent's record, which shows the model that is configured."""
        await self.prepare(workspace)
        record = await self.get(workspace, "agent", agent_id(workspace))
        model = (await self._store.settings(workspace)).get("model")
        while record.body.get(CONFIGURED) != model:
            # A version shows one model, whatever is configured later.
            try:
                record = await self.update(record, {**record.body, CONFIGURED: model})
            except Conflict:  # another process was quicker
                record = await self.get(workspace, "agent", record.id)
        return record

    async def agent_of(self, workspace: str, source: str) -> AgentRef:
        """The agent whose sessions a source has."""
        await self.prepare(workspace)
        return AgentRef(id=source_agent_id(workspace, source))

    def author(self, workspace: str, source: str) -> AgentRef | None:
        """The same for a copy of such a session, in which the configured agent answers."""
        id = source_agent_id(workspace, source)
        known = (workspace, id) in self._agents
        return AgentRef(id=id, overrides={"kind": "default"}) if known else None

    def is_usual(self, workspace: str, ref: AgentRef) -> bool:
        """Whether an agent is that of sessions that name none."""
        return ref.id == agent_id(workspace)

    def is_built_in(self, record: Record) -> bool:
        """Whether an agent was there from the start."""
        own = record.id == agent_id(record.workspace)
        return own or (record.workspace, record.id) in self._agents

    async def agent_named(self, workspace: str, name: str) -> str:
        """The id of the agent of that name, the newest if there are several; else the name."""
        wanted = name.casefold()
        await self.prepare(workspace)
        async for record in self.all(workspace, "agent"):
            if str(record.body.get("name", "")).casefold() == wanted:
                return record.id
        return name

    async def agent_names(self, workspace: str, agents: Iterable[str]) -> dict[str, str]:
        """What the agents of these ids are called, of those that are known."""
        names: dict[str, str] = {}
        for id in sorted(set(agents)):
            body = self._agents.get((workspace, id))
            if body is None and (record := await self._store.get_record(workspace, "agent", id)):
                body = record.body
            if body is not None:
                names[id] = str(body.get("name") or id[:8])
        return names

    async def program(self, workspace: str, name: str, spec: dict[str, Any]) -> AgentRef:
        """The agent that a program brings along; its kind may be known only where that runs."""
        id = program_id(workspace, name)
        await self._ensure(workspace, "agent", id, {"name": name, "spec": spec})
        return AgentRef(id=id)

    async def built_in_environment(self, workspace: str) -> str:
        """The environment of sessions that name none: this machine."""
        await self.prepare(workspace)
        return environment_id(workspace)

    async def prepare(self, workspace: str) -> None:
        """See to it that the records are there that every workspace has."""
        if workspace in self._ready:
            return
        built_in: list[tuple[str, str, dict[str, Any]]] = [
            ("agent", agent_id(workspace), {"name": "segue", "spec": {"kind": "default"}}),
            ("environment", environment_id(workspace), {"name": "local"}),
            *(
                ("agent", id, dict(body))
                for (where, id), body in self._agents.items()
                if where == workspace
            ),
        ]
        for kind, id, body in built_in:
            await self._ensure(workspace, kind, id, body)
        self._ready.add(workspace)

    async def _ensure(self, workspace: str, kind: str, id: str, body: dict[str, Any]) -> None:
        if await self._store.get_record(workspace, kind, id) is None:
            try:
                await self.create(workspace, kind, body, id)
            except Conflict:
                return  # another process was quicker


def new(workspace: str, kind: str, body: dict[str, Any], id: str | None = None) -> Record:
    """The first version of a record."""
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


@lru_cache(1024)
def program_id(workspace: str, name: str) -> str:
    return ids.derived_id("segue", "program", workspace, name)


def agent_id(workspace: str) -> str:
    return ids.derived_id("segue", "agent", workspace)


@lru_cache(1024)
def environment_id(workspace: str) -> str:
    return ids.derived_id("segue", "environment", workspace)
