"""Continue a session in another tool: write a native session of that tool, and link the two."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from segue.event_loop import run_in_thread
from segue.hub.history.reader import HistoryReader
from segue.hub.session_deps import SessionDeps
from segue.hub.sessions.editor import SessionEditor
from segue.model import clock, ids
from segue.model.content import as_content
from segue.model.errors import InvalidInput, NotFound, SegueError
from segue.model.event import Compacted, ConfigChanged, Event, ForkPoint, InfoChanged
from segue.model.lifecycle import RUNNING_STATUSES
from segue.model.principal import Principal
from segue.model.session import Session
from segue.sources import registry
from segue.sources.base import ResumeCommand, Source, SourceDefinition
from segue.sources.kit.rows import native_session_id
from segue.sources.writing import handoff as handoffs
from segue.sources.writing.conversation import Converted, Holds, convert
from segue.sources.writing.port import ImportingWriter, PreparedSession, SessionWriter
from segue.sources.writing.report import FATES, Loss, Report
from segue.sources.writing.tool_names import ToolNames
from segue.sources.writing.unfinished import UnfinishedWork

from . import own_tools
from .importer import FORK, ForkLink, SourceSync, require_local

if TYPE_CHECKING:
    from segue.agents.base import SupportsSummary

log = logging.getLogger("segue.sync")

__all__ = ["FATES", "OWN", "Continuation", "Handoff", "Report", "SessionContinuer"]
OWN = "segue"  # the target that stands for segue's own model agent
_UNFINISHED = "continuing"  # the directory with records of sessions that are being written


class Continuation(NamedTuple):
    """The session that continues another one, and what was lost.

    `command` starts its tool; None if segue's own agent answers in it.
    """

    session: Session
    report: Report
    command: ResumeCommand | None


class Models(Protocol):
    """What continuing needs of the agents of this process."""

    async def require_model(self, principal: Principal, model: str | None) -> None: ...
    async def summarizer(self, principal: Principal, model: str | None) -> SupportsSummary: ...


class Handoff(NamedTuple):
    """A summary of the conversation instead of all of it, besides the last turns.

    `model` writes the summary, as provider:name; None stands for the configured one.
    """

    turns: int = 3
    model: str | None = None


class _UnfinishedWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A session that is being written for a tool, until it is linked to its original."""

    workspace: str
    source: str
    original: str
    native_id: str
    first_record: str
    at: int  # when it was written: the tool's own messages are later


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
        deps: SessionDeps,
        history: HistoryReader,
        sync: SourceSync,
        editor: SessionEditor,
        agents: Models,
        open_source: Callable[[SourceDefinition], Source | None],
    ) -> None:
        self._store = deps.store
        self._sources = deps.sources
        self._lookup = deps.lookup
        self._records = deps.records
        self._history = history
        self._sync = sync
        self._editor = editor
        self._unfinished = UnfinishedWork(str(deps.data_dir / _UNFINISHED))
        self._models = agents
        self._open_source = open_source

    def targets(self) -> list[str]:
        """Return the names of the tools that a session can continue in."""
        tools = [tool.name for tool in registry.definitions() if tool.writer() is not None]
        return [*tools, OWN]

    async def report(
        self, principal: Principal, id: str, target: str, *, handoff: Handoff | None = None
    ) -> Report:
        """Return what a target would lose; nothing is written, and no model is asked.

        Raises InvalidInput for an unknown target, NoAgent if a handoff has no model.
        """
        _, source = await self._lookup.find(principal, id)
        chosen = _target(target)
        if handoff is not None:
            await self._summarizer(principal, chosen, handoff)
            return (await self._convert(principal, id, chosen, handoff.turns)).report
        converted = await self._convert(principal, id, chosen)
        return _without_losses(converted.report) if _forks(source, target) else converted.report

    async def continue_in(
        self,
        principal: Principal,
        id: str,
        target: str,
        *,
        model: str | None = None,
        handoff: Handoff | None = None,
        mask: bool = False,
        cwd: str | None = None,
        origin: str = "python",
    ) -> Continuation:
        """Create a session of a tool with the conversation of another session.

        `model` is for segue's own agent, as provider:name. With `handoff`, a summary replaces the
        beginning. With `mask`, another tool gets masks instead of secrets. `cwd` is the new
        session's directory instead of the original's. Each call creates a new session. Raises
        InvalidInput for an unknown target, NoAgent if segue has no model.
        """
        chosen = _target(target)
        summarizer = None
        if handoff is not None:
            summarizer = await self._summarizer(principal, chosen, handoff)
        await self._sync.ensure_current(principal, id)
        if chosen.definition is None:
            if mask:
                raise InvalidInput(f"secrets are masked for other tools only; redact {id} first")
            return await self._continue_here(principal, id, chosen, model, cwd, origin)
        if model is not None:
            raise InvalidInput(f"a model can be chosen for {OWN} only; {target} has its own")
        require_local(principal)
        await self.recover(principal)
        session, source = await self._lookup.find(principal, id)
        if handoff is None and not mask and _forks(source, target):
            converted = await self._convert(principal, id, chosen)
            fork = await self._editor.fork(principal, id, cwd=cwd, origin=origin)
            return _continuation(fork, _without_losses(converted.report), chosen.definition)
        writer = chosen.writer
        assert writer is not None
        if source is not None and writer.deletes_resumed:
            await self.keep_copy(principal, session)
        turns = None if handoff is None else handoff.turns
        conversation, report = await self._convert(
            principal, id, chosen, turns, summarizer, mask=mask, cwd=cwd
        )
        prepared = writer.prepare(conversation)
        new = await self._write(principal, chosen.definition, writer, prepared, session)
        return _continuation(new, report, chosen.definition)

    async def recover(self, principal: Principal) -> None:
        """Link the sessions that killed processes wrote to their originals.

        Parts of sessions are deleted. What cannot be done now is logged, and tried again later.
        """
        if self._store.read_only:
            return
        for record in self._unfinished.abandoned():
            try:
                write = msgspec.json.decode(record.data, type=_UnfinishedWrite)
                if write.workspace == principal.workspace:
                    await self._recover(principal, write)
                    record.remove()
            except (SegueError, msgspec.MsgspecError) as error:
                log.warning("%s: a killed write was not completed: %s", record.path, error)

    async def _recover(self, principal: Principal, write: _UnfinishedWrite) -> None:
        definition = registry.get(write.source)
        writer = definition.writer()
        native_id: str | None = write.native_id
        if isinstance(writer, ImportingWriter):
            native_id = await run_in_thread(
                lambda: writer.settle(write.native_id, write.first_record)
            )
        try:
            if native_id is not None:
                await self._link(principal, definition, native_id, write.original, write.at)
        except NotFound:
            native_id = None
        if native_id is None and not write.first_record:
            id = native_session_id(write.source, write.native_id)
            await self._store.set_overlay(principal.workspace, write.source, id, {})

    async def keep_copy(self, principal: Principal, session: Session) -> bool:
        """Import a session of a tool, before a program runs that may delete the original.

        Returns False on a read-only store.
        """
        if self._store.read_only:
            return False
        await self._sync.import_from_source(principal, session)
        return True

    async def _summarizer(
        self, principal: Principal, target: _Target, handoff: Handoff
    ) -> SupportsSummary:
        """Return the model that writes the summary of a handoff."""
        if target.definition is None:
            raise InvalidInput(f"{OWN}'s own agent compacts a session itself when it has to")
        if handoff.turns < 0:
            raise InvalidInput(f"a handoff keeps 0 turns or more, not {handoff.turns}")
        return await self._models.summarizer(principal, handoff.model)

    async def _convert(
        self,
        principal: Principal,
        id: str,
        target: _Target,
        turns: int | None = None,
        summarizer: SupportsSummary | None = None,
        *,
        mask: bool = False,
        cwd: str | None = None,
    ) -> Converted:
        """Return a session as a target gets it.

        With `turns`, a summary replaces what comes before the last turns; without a summarizer, it
        is empty.
        """
        session, events = await self._read(principal, id, mask=mask)
        if cwd is not None:
            session = replace(session, cwd=cwd)
        convert_events = partial(
            convert,
            session,
            ids.new_id(),
            target=target.name,
            names=target.names,
            holds=target.holds,
            known_names=_known_names(session),
            subagents=len(await self._history.threads(principal, id)),
        )
        if turns is None:
            converted = convert_events(events)
        else:
            converted = await _convert_handoff(convert_events, events, turns, summarizer)
        if target.definition is not None and not converted.conversation.items:
            label = target.definition.label
            raise InvalidInput(f"session {id} has no messages yet; start {label} itself")
        if session.status in RUNNING_STATUSES:
            why = "the session is still running; only what it has so far is taken over"
            loss = Loss(what="the end of the running turn", count=1, becomes="left_out", why=why)
            converted = _with_loss(converted, loss)
        return converted

    async def _read(
        self, principal: Principal, id: str, *, mask: bool
    ) -> tuple[Session, Sequence[Event]]:
        """Return a session and its conversation, with `mask` without their secrets."""
        session, _ = await self._lookup.find(principal, id)
        events = [event async for event in self._history.conversation(principal, id)]
        if not mask:
            return session, events
        from segue.secrets.events import mask_events, mask_session

        return mask_session(session), mask_events(events)

    async def _continue_here(
        self,
        principal: Principal,
        id: str,
        target: _Target,
        model: str | None,
        cwd: str | None,
        origin: str,
    ) -> Continuation:
        """Fork a session into the store, for the model agent."""
        await self._models.require_model(principal, model)
        report = (await self._convert(principal, id, target)).report
        fork = await self._editor.fork(principal, id, cwd=cwd, origin=origin, in_store=True)
        agent = await self._records.built_in_agent(principal.workspace)
        overrides = {} if model is None else {"model": model}
        change = ConfigChanged(agent=replace(agent, overrides=overrides))
        fork = await self._editor.configure(principal, fork.id, change)
        return Continuation(fork, report, None)

    async def _write(
        self,
        principal: Principal,
        definition: SourceDefinition,
        writer: SessionWriter,
        prepared: PreparedSession,
        original: Session,
    ) -> Session:
        """Write a session for a tool, and return it as a fork of its original.

        A record of it comes first, so that a killed process leaves no session without its link.
        """
        if self._store.read_only:
            native_id = await run_in_thread(lambda: writer.write(prepared))
            return await self._link(principal, definition, native_id, original.id)
        write = _UnfinishedWrite(
            workspace=principal.workspace,
            source=definition.name,
            original=original.id,
            native_id=prepared.native_id,
            first_record=prepared.first_record,
            at=clock.now(),
        )
        with self._unfinished.recorded(ids.new_id(), msgspec.json.encode(write)):
            if not prepared.first_record:  # the id is known: the link is there before the session
                id = native_session_id(definition.name, prepared.native_id)
                link = ForkLink(session=original.id, seq=1, imported_seq=1, made_at=write.at)
                await self._set_link(principal, definition.name, id, link)
            native_id = await run_in_thread(lambda: writer.write(prepared))
            return await self._link(principal, definition, native_id, original.id)

    async def _link(
        self,
        principal: Principal,
        definition: SourceDefinition,
        native_id: str,
        original: str,
        written_at: int | None = None,
    ) -> Session:
        """Make a session that was written for a tool a fork of its original, and return it.

        Its events up to `written_at` are the original's, or all of them.
        """
        copy = await run_in_thread(lambda: definition.transcripts().read(native_id))
        source = await self._source(principal, definition)
        if source is None:
            raise NotFound(f"{definition.label} was not opened; its new session is {native_id}")
        row = await source.get(copy.id)
        if row is None:
            raise NotFound(f"{definition.label} does not list its new session {native_id}")
        last_imported = await run_in_thread(lambda: _last_seq(copy.events(None), written_at))
        seq = row.last_seq
        if written_at is not None:
            events = self._lookup.read(principal.workspace, row.id, source)
            seq = max([event.seq async for event in events if event.at <= written_at], default=1)
        made_at = clock.now() if written_at is None else written_at
        link = ForkLink(session=original, seq=seq, imported_seq=last_imported, made_at=made_at)
        if not self._store.read_only:
            await self._set_link(principal, source.name, row.id, link)
            await self._sources.apply_overlay(source)
        return row.as_copy(ForkPoint(session=original, seq=seq), made_at)

    async def _set_link(self, principal: Principal, source: str, id: str, link: ForkLink) -> None:
        overlays = await self._store.overlays(principal.workspace, source)
        patch = {**overlays.get(id, {}), FORK: to_builtins(link)}
        await self._store.set_overlay(principal.workspace, source, id, patch)

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


async def _convert_handoff(
    convert_events: Callable[[Sequence[Event]], Converted],
    events: Sequence[Event],
    turns: int,
    summarizer: SupportsSummary | None,
) -> Converted:
    """Convert a session's last turns, with a summary of the earlier messages before them."""
    earlier, last_turns = handoffs.divide(events, turns)
    replaced = convert_events(earlier)
    if not replaced.conversation.items:
        return convert_events(last_turns)
    summary = "…"
    if summarizer is not None:
        summary = await summarizer.summarize(handoffs.as_text(replaced.conversation.items))
    body = Compacted(summary=as_content(summary))
    compacted = replace(earlier[-1], id=ids.new_id(), body=body)
    loss = Loss(
        what="earlier messages",
        count=replaced.report.prompts + replaced.report.answers,
        becomes="summary",
        why="a summary was asked for",
    )
    return _with_loss(convert_events([compacted, *last_turns]), loss)


def _with_loss(converted: Converted, loss: Loss) -> Converted:
    report = replace(converted.report, losses=(loss, *converted.report.losses))
    return converted._replace(report=report)


def _without_losses(report: Report) -> Report:
    return replace(report, losses=())


def _continuation(session: Session, report: Report, definition: SourceDefinition) -> Continuation:
    return Continuation(session, report, definition.resume_command(session, local=True))


def _last_seq(events: Iterable[Event], written_at: int | None) -> int:
    """Return the seq of the last event of the conversation, up to a time if there is one."""
    seqs = (
        event.seq
        for event in events
        if not isinstance(event.body, InfoChanged)
        and (written_at is None or event.at <= written_at)
    )
    return max(seqs, default=1)
