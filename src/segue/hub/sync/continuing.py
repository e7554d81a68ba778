"""Continue a session in another tool: write a native session of that tool, and link the two."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec import to_builtins
from msgspec.structs import replace

from segue.event_loop import run_in_thread
from segue.hub.history.reader import HistoryReader
from segue.hub.resources.records import Records
from segue.hub.sessions.editor import SessionEditor
from segue.hub.sessions.lookup import SessionLookup, SourceSet
from segue.model import ids
from segue.model.errors import InvalidInput, NotFound
from segue.model.event import ConfigChanged, Event, ForkPoint, InfoChanged
from segue.model.principal import Principal
from segue.model.session import Session
from segue.sources import registry
from segue.sources.base import ResumeCommand, Source, SourceDefinition
from segue.sources.writing.conversation import Converted, Holds, convert
from segue.sources.writing.port import SessionWriter
from segue.sources.writing.report import FATES, Report
from segue.sources.writing.tool_names import ToolNames
from segue.store.base import Store

from . import own_tools
from .importer import FORK, ForkLink, SourceSync, require_local

__all__ = ["FATES", "OWN", "Continuation", "Report", "SessionContinuer"]
OWN = "segue"  # the target that stands for segue's own model agent


class Continuation(NamedTuple):
    """The session that continues another one, and what was lost.

    `command` starts its tool; None if segue's own agent answers in it.
    """

    session: Session
    report: Report
    command: ResumeCommand | None


class _Target(NamedTuple):
    """A tool that a session can continue in; segue's own agent has no definition."""

    name: str
    holds: Holds
    names: ToolNames
    definition: SourceDefinition | None = None
    writer: SessionWriter | None = None


class SessionContinuer:
    """Continue sessions in other tools. The original session is never changed."""

    def __init__(
        self,
        store: Store,
        sources: SourceSet,
        lookup: SessionLookup,
        history: HistoryReader,
        sync: SourceSync,
        editor: SessionEditor,
        records: Records,
        require_model: Callable[[Principal, str | None], Awaitable[None]],
        open_source: Callable[[SourceDefinition], Source | None],
    ) -> None:
        self._store = store
        self._sources = sources
        self._lookup = lookup
        self._history = history
        self._sync = sync
        self._editor = editor
        self._records = records
        self._require_model = require_model
        self._open_source = open_source

    def targets(self) -> list[str]:
        """Return the names of the tools that a session can continue in."""
        tools = [tool.name for tool in registry.definitions() if tool.writer() is not None]
        return [*tools, OWN]

    async def report(self, principal: Principal, id: str, target: str) -> Report:
        """Return what a target would lose; nothing is written.

        Raises InvalidInput for an unknown target.
        """
        _, source = await self._lookup.find(principal, id)
        converted = await self._convert(principal, id, _target(target))
        return _without_losses(converted.report) if _forks(source, target) else converted.report

    async def continue_in(
        self,
        principal: Principal,
        id: str,
        target: str,
        *,
        model: str | None = None,
        origin: str = "python",
    ) -> Continuation:
        """Create a session of a tool with the conversation of another session.

        `model` is for segue's own agent, as provider:name. Each call creates a new session. Raises
        InvalidInput for an unknown target, NoAgent if segue has no model.
        """
        chosen = _target(target)
        if chosen.definition is None:
            return await self._continue_here(principal, id, chosen, model, origin)
        if model is not None:
            raise InvalidInput(f"a model can be chosen for {OWN} only; {target} has its own")
        require_local(principal)
        session, source = await self._lookup.find(principal, id)
        if _forks(source, target):
            converted = await self._convert(principal, id, chosen)
            fork = await self._editor.fork(principal, id, origin=origin)
            return _continuation(fork, _without_losses(converted.report), chosen.definition)
        writer = chosen.writer
        assert writer is not None
        if source is not None and writer.deletes_resumed:
            await self.keep_copy(principal, session)
        conversation, report = await self._convert(principal, id, chosen)
        prepared = writer.prepare(conversation)
        native_id = await run_in_thread(lambda: writer.write(prepared))
        new = await self._link(principal, chosen.definition, native_id, session)
        return _continuation(new, report, chosen.definition)

    async def keep_copy(self, principal: Principal, session: Session) -> bool:
        """Import a session of a tool, before a program runs that may delete the original.

        Returns False on a read-only store.
        """
        if self._store.read_only:
            return False
        await self._sync.import_from_source(principal, session)
        return True

    async def _convert(self, principal: Principal, id: str, target: _Target) -> Converted:
        session, _ = await self._lookup.find(principal, id)
        events = [event async for event in self._history.conversation(principal, id)]
        threads = await self._history.threads(principal, id)
        new_id = ids.new_id()
        return convert(
            session,
            new_id,
            events,
            target=target.name,
            names=target.names,
            holds=target.holds,
            known_names=_known_names(session),
            subagents=len(threads),
        )

    async def _continue_here(
        self, principal: Principal, id: str, target: _Target, model: str | None, origin: str
    ) -> Continuation:
        """Fork a session into the store, for the model agent."""
        await self._require_model(principal, model)
        report = (await self._convert(principal, id, target)).report
        fork = await self._editor.fork(principal, id, origin=origin, in_store=True)
        agent = await self._records.built_in_agent(principal.workspace)
        overrides = {} if model is None else {"model": model}
        change = ConfigChanged(agent=replace(agent, overrides=overrides))
        fork = await self._editor.configure(principal, fork.id, change)
        return Continuation(fork, report, None)

    async def _link(
        self, principal: Principal, definition: SourceDefinition, native_id: str, parent: Session
    ) -> Session:
        """Make a session that was written for a tool a fork of its original, and return it."""
        copy = await run_in_thread(lambda: definition.transcripts().read(native_id))
        source = await self._source(principal, definition)
        if source is None:
            raise NotFound(f"{definition.label} was not opened; its new session is {native_id}")
        row = await source.get(copy.id)
        if row is None:
            raise NotFound(f"{definition.label} does not list its new session {native_id}")
        last_imported = await run_in_thread(lambda: _last_seq(copy.events(None)))
        link = ForkLink(session=parent.id, seq=row.last_seq, imported_seq=last_imported)
        if not self._store.read_only:
            overlays = await self._store.overlays(principal.workspace, source.name)
            patch = {**overlays.get(row.id, {}), FORK: to_builtins(link)}
            await self._store.set_overlay(principal.workspace, source.name, row.id, patch)
            await self._sources.apply_overlay(source)
        return replace(row, fork=ForkPoint(session=parent.id, seq=row.last_seq))

    async def _source(self, principal: Principal, definition: SourceDefinition) -> Source | None:
        """Return the source of a tool; open it if the tool had no sessions before."""
        for source in await self._sources.in_workspace(principal.workspace):
            if source.name == definition.name:
                return source
        opened = self._open_source(definition)
        if opened is not None:
            self._sources.add(opened)
            if opened.agent_record is not None:
                self._records.add_source_agent(opened.workspace, opened.name, opened.agent_record)
        return opened


def _target(name: str) -> _Target:
    if name == OWN:
        return _Target(OWN, own_tools.HOLDS, own_tools.NAMES)
    if name not in registry.names():
        tools = ", ".join([*registry.names(), OWN])
        raise InvalidInput(f"a session cannot continue in {name!r}; the tools are {tools}")
    definition = registry.get(name)
    writer = definition.writer()
    if writer is None:
        raise InvalidInput(f"segue cannot write sessions of {definition.label} yet")
    return _Target(name, writer.holds, writer.names, definition, writer)


def _forks(source: Source | None, target: str) -> bool:
    """Return whether the tool that has a session can fork it itself, which loses nothing."""
    return source is not None and source.name == target and "fork" in source.edits


def _known_names(session: Session) -> Sequence[ToolNames]:
    """Return the tables of the agents that may have answered in a session."""
    tool = registry.find(session.source)
    table = None if tool is None else tool.tool_names()
    return [own_tools.NAMES] if table is None else [table, own_tools.NAMES]


def _without_losses(report: Report) -> Report:
    return replace(report, losses=())


def _continuation(session: Session, report: Report, definition: SourceDefinition) -> Continuation:
    return Continuation(session, report, definition.resume_command(session, local=True))


def _last_seq(events: Iterable[Event]) -> int:
    """Return the seq of the last event that is part of the conversation."""
    seqs = (event.seq for event in events if not isinstance(event.body, InfoChanged))
    return max(seqs, default=1)
