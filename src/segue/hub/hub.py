"""The hub: the application core that every door calls.

Each method takes the Principal that asks. A session of another workspace does not exist here.
Reads never wait on anything but the store, so that with an embedded store a command line can use
them without an event loop.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ..model import clock, fold, ids, text
from ..model.closing import forked
from ..model.content import Block, as_content
from ..model.errors import Busy, InvalidInput, NoAgent, NotFound, ReadOnly
from ..model.event import (
    AgentRef,
    AnyBody,
    ConfigChanged,
    Created,
    Draft,
    Event,
    ForkPoint,
    InfoChanged,
    StatusChanged,
)
from ..model.lifecycle import StopReason
from ..model.principal import Principal
from ..model.query import Query
from ..model.session import Session
from ..sources.base import Ability, Source
from ..store.base import Delta, Hit, Record, Store
from . import places, transfer
from . import retention as retaining
from .keys import Keys
from .pages import Page, Pager
from .records import Records
from .runners import Runners

if TYPE_CHECKING:
    from ..agents.base import Agent, Tools
    from .live import Change, Live
    from .turns import Hold, Turns

CHUNK = 500
_SHADOWS: dict[str, Ability] = {"title": "title", "tag": "tag", "archived": "archive"}


class Found(NamedTuple):
    """A session that a search found: where, and a snippet with the words' places in it."""

    session: Session
    event: Event | None
    snippet: str
    marks: list[range]
    score: float = 0.0


class Results(NamedTuple):
    found: list[Found]
    next: str | None = None


class Hub:
    """Every operation on sessions, for every door."""

    def __init__(
        self,
        store: Store,
        data_dir: Path,
        *,
        sources: Sequence[Source] = (),
        runners: Runners | None = None,
        lease: int | None = None,
    ) -> None:
        self.store = store
        self.data_dir = data_dir
        self.sources = tuple(sources)
        self.runners = runners or Runners()
        self.keys = Keys(store)
        self.records = Records(store)
        self._lease = lease
        self._live: Live | None = None
        self._turns: Turns | None = None
        self._overlaid: set[str] = set()

    async def close(self) -> None:
        """Cancel this process's turns, let its sessions go, and close the store."""
        if self._turns is not None:
            await self._turns.close()
        if self._live is not None:
            self._live.close()
        for source in self.sources:
            await source.close()
        await self.store.close()

    async def __aenter__(self) -> Hub:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # The two parts that need an event loop are made when first used.

    @property
    def live(self) -> Live:
        if self._live is None:
            from .live import Live

            self._live = Live(self.store, self.sources)
        return self._live

    @property
    def turns(self) -> Turns:
        if self._turns is None:
            from .turns import LEASE, Turns

            self._turns = Turns(self.store, self.live, self._build, self._lease or LEASE)
        return self._turns

    # Sessions.

    async def create(
        self,
        principal: Principal,
        *,
        cwd: str | None = None,
        title: str | None = None,
        tag: str | None = None,
        id: str | None = None,
        agent: AgentRef | None = None,
        environment_id: str | None = None,
        **made_with: Any,
    ) -> Session:
        """A new session. Without `cwd` it gets a directory of its own under the data directory.

        `made_with` are further fields of the Created event: roots, metadata, origin …
        """
        session_id = id or ids.new_id()
        if cwd is None:
            cwd = str(self.data_dir / "work" / session_id)
            os.makedirs(cwd, mode=0o700, exist_ok=True)
        workspace = principal.workspace
        created = Created(
            cwd=places.absolute(cwd),
            real_cwd=_unless_same(places.real(cwd), cwd),
            agent=agent or await self.records.built_in_agent(workspace),
            environment_id=environment_id or await self.records.built_in_environment(workspace),
            **made_with,
        )
        drafts: list[AnyBody] = [created]
        if title is not None or tag is not None:
            drafts.append(
                InfoChanged(
                    title=UNSET if title is None else _checked(title, "title"),
                    tag=UNSET if tag is None else _checked(tag, "tag"),
                )
            )
        return await self.store.create(workspace, session_id, drafts)

    async def get(self, principal: Principal, id: str) -> Session:
        """The session; NotFound if there is none of that id in the principal's workspace."""
        session, _ = await self._find(principal, id)
        return session

    async def list(
        self,
        principal: Principal,
        query: Query | None = None,
        cursor: str | None = None,
        *,
        bind_filters: bool = True,
    ) -> Page:
        """A page of sessions, by last activity unless the query says otherwise."""
        wanted = await self._resolved(query or Query())
        pager = Pager(self.store, await self._sources(principal), principal.workspace)
        page = await pager.page(wanted, cursor, bind_filters)
        if wanted.cwd is None:
            return page
        # The reply spells the directory as the client did.
        own = wanted.directories[0]
        spelt = [
            replace(session, cwd=wanted.cwd) if session.directory == own else session
            for session in page.sessions
        ]
        return page._replace(sessions=spelt)

    async def search(
        self,
        principal: Principal,
        query: Query,
        cursor: str | None = None,
        *,
        ranked: bool = False,
    ) -> Results:
        """Sessions in which every word of `query.text` occurs, each with a snippet that shows it.

        Newest first by pages; `ranked` gives the best matches instead, one page of them.
        """
        wanted = text.terms(query.text or "")
        if not wanted:
            raise InvalidInput("a search needs at least one word")
        following = None
        if ranked:
            hits = await self._ranked(principal, await self._resolved(query))
        else:
            page = await self.list(principal, query, cursor)
            following = page.next
            hits = await self._witnessed(principal, page.sessions, wanted)
        return Results([_found(hit, wanted) for hit in hits], following)

    async def events(
        self,
        principal: Principal,
        id: str,
        *,
        after: int = 0,
        before: int | None = None,
        types: Sequence[str] = (),
        since: int | None = None,
        until: int | None = None,
        limit: int = 1000,
        backward: bool = False,
    ) -> Sequence[Event]:
        """Part of a session's history: `after < seq < before`, in order."""
        _, source = await self._find(principal, id)
        options: dict[str, Any] = {
            "after": after,
            "before": before,
            "types": types,
            "since": since,
            "until": until,
            "limit": limit,
            "backward": backward,
        }
        if source is not None:
            return await source.events(id, **options)
        return await self.store.events(principal.workspace, id, **options)

    async def history(self, principal: Principal, id: str, after: int = 0) -> AsyncIterator[Event]:
        """The whole history, read in pieces as it is consumed."""
        _, source = await self._find(principal, id)
        async for event in self._read(principal.workspace, id, source, after):
            yield event

    async def locate(self, principal: Principal, id: str, event_id: str) -> int:
        """The seq of an event."""
        _, source = await self._find(principal, id)
        if source is not None:
            found = await source.locate(id, event_id)
        else:
            found = await self.store.locate(principal.workspace, id, event_id)
        if found is None:
            raise NotFound(f"no event {event_id} in session {id}", session=id)
        return found

    async def follow(
        self, principal: Principal, id: str, after: int = 0, *, deltas: bool = False
    ) -> AsyncIterator[Event | Delta]:
        """Events after a seq: those stored, then new ones as they come, from any process.

        With `deltas` also the pieces of messages that are being written. Ends when the session
        is purged.
        """
        _, source = await self._find(principal, id)
        name = (principal.workspace, id)

        def read(seq: int) -> AsyncIterator[Event]:
            return self._read(principal.workspace, id, source, seq)

        async for item in self.live.follow(read, name, after, deltas, source is None):
            yield item

    def changes(self, principal: Principal) -> AsyncIterator[Change]:
        """The ids of this workspace's sessions that change, as they do."""
        return self.live.changes(principal.workspace)

    async def append(
        self, principal: Principal, id: str, *bodies: AnyBody | Draft
    ) -> Sequence[Event]:
        """Add events from outside a turn."""
        await self._native(principal, id)
        _, events = await self.store.change(principal.workspace, id, lambda _: bodies)
        return events

    # What a person says about a session.

    async def set_title(self, principal: Principal, id: str, title: str | None) -> Session:
        """Name a session, or clear its name. Titles a person set are never replaced."""
        title = None if title is None else _checked(title, "title")
        return await self._info(principal, id, InfoChanged(title=title))

    async def set_tag(self, principal: Principal, id: str, tag: str | None) -> Session:
        tag = None if tag is None else _checked(tag, "tag")
        return await self._info(principal, id, InfoChanged(tag=tag))

    async def set_metadata(
        self, principal: Principal, id: str, patch: dict[str, str | None]
    ) -> Session:
        """Set keys, and remove those whose value is None."""
        return await self._info(principal, id, InfoChanged(metadata=patch))

    async def configure(self, principal: Principal, id: str, change: ConfigChanged) -> Session:
        """Change how a session is run: mode, options, roots, agent."""
        await self._native(principal, id)
        session, _ = await self.store.change(principal.workspace, id, lambda _: [change])
        return session

    async def archive(self, principal: Principal, id: str) -> Session:
        """Hide a session from ordinary lists. Busy while it is running."""
        return await self._info(principal, id, InfoChanged(archived=True), at_rest=True)

    async def unarchive(self, principal: Principal, id: str) -> Session:
        return await self._info(principal, id, InfoChanged(archived=False))

    async def trash(self, principal: Principal, id: str) -> Session:
        """Delete a session so that it can be restored. Busy while it is running."""
        return await self._info(principal, id, InfoChanged(deleted=True), at_rest=True)

    async def restore(self, principal: Principal, id: str) -> Session:
        """Take a session out of the trash."""
        return await self._info(principal, id, InfoChanged(deleted=False))

    async def purge(self, principal: Principal, id: str) -> None:
        """Delete a session for good. Busy while it is running."""
        _, source = await self._find(principal, id)
        if source is not None:
            if "delete" not in source.can:
                raise ReadOnly(f"{source.name} sessions cannot be deleted from here", session=id)
            await source.delete(id)
            return
        await self.store.purge(principal.workspace, id, _at_rest)

    async def fork(
        self,
        principal: Principal,
        id: str,
        *,
        at: int | None = None,
        cwd: str | None = None,
        title: str | None = None,
        new_id: str | None = None,
        origin: str = "python",
    ) -> Session:
        """A new session with the history of another, up to the event `at` or all of it.

        What was open at that point (a tool call, a turn) is closed in the fork.
        """
        parent, source = await self._find(principal, id)
        upto = parent.last_seq if at is None else at
        if not 1 <= upto <= parent.last_seq:
            raise InvalidInput(f"session {id} has events 1 to {parent.last_seq}, no {upto}")
        cwd = places.absolute(cwd or parent.cwd)
        workspace = principal.workspace
        created = Created(
            cwd=cwd,
            real_cwd=_unless_same(places.real(cwd), cwd),
            roots=parent.roots,
            origin=origin,
            agent=parent.agent or await self.records.built_in_agent(workspace),
            environment_id=parent.environment_id
            or await self.records.built_in_environment(workspace),
            memory_store_ids=parent.memory_store_ids,
            vault_ids=parent.vault_ids,
            resources=parent.resources,
            metadata=parent.metadata,
            git_branch=parent.git_branch,
            fork=ForkPoint(session=id, seq=upto),
        )
        name = None if title is None else _checked(title, "title")

        def tail(session: Session) -> list[AnyBody]:
            bodies = forked(session)
            if name is not None:
                bodies.append(InfoChanged(title=name))
            elif session.title is not None:
                bodies.append(InfoChanged(title=f"{session.title} (fork)", by="auto"))
            return bodies

        new_id = new_id or ids.new_id()
        draft = Draft(body=created)
        if source is None:
            return await self.store.fork(workspace, id, new_id, upto, draft, tail)
        taken = [event async for event in self._read(workspace, id, source, 1)]
        events = [
            Event(seq=1, id=ids.new_id(), at=clock.now(), body=created),
            *(event for event in taken if event.seq <= upto),
        ]
        session = fold.fold(workspace, new_id, events)
        last, now = session.last_seq, clock.now()
        events += [
            Event(seq=last + count, id=ids.new_id(), at=now, body=body)
            for count, body in enumerate(tail(session), 1)
        ]
        return await self.store.load(workspace, new_id, events)

    # Files.

    async def export(self, principal: Principal, id: str) -> AsyncIterator[bytes]:
        """A session as the lines of one JSONL file."""
        session, source = await self._find(principal, id)
        agent = None
        if session.agent is not None:
            agent = await self.store.get_record(
                principal.workspace, "agent", session.agent.id, session.agent.version
            )
        events = self._read(principal.workspace, id, source, 0)
        async for line in transfer.write(session, agent, events):
            yield line

    async def import_session(
        self, principal: Principal, lines: Iterable[bytes], *, new_id: bool = False
    ) -> Session:
        """A session from an exported file, all or nothing, under its own id unless `new_id`."""
        header, events = transfer.read(lines)
        id = ids.new_id() if new_id else header.session.id
        workspace = principal.workspace
        agent = header.agent
        if agent is not None:
            known = await self.store.get_record(workspace, "agent", agent.id, agent.version)
            if known is None and agent.version == 1:
                await self.store.put_record(replace(agent, workspace=workspace))
        return await self.store.load(workspace, id, events)

    # Turns.

    async def prompt(
        self,
        principal: Principal,
        id: str,
        content: str | Block | Iterable[Block],
        *,
        extra: dict[str, Any] | None = None,
    ) -> str:
        """Ask a session's agent something; the id of the turn, which is the message's id too.

        The prompt is durable when this returns. It runs in the process that holds the session
        open, else here; NoAgent if that is impossible.
        """
        from .turns import prompt_body

        session = await self._native(principal, id)
        name = (principal.workspace, id)
        if session.shelf == "trash":
            raise InvalidInput(f"session {id} is in the trash; restore it first", session=id)
        if session.status == "terminated":
            raise InvalidInput(f"session {id} has terminated; fork it to go on", session=id)
        blocks = as_content(content)
        if not blocks:
            raise InvalidInput("a prompt needs some content")
        if not self.turns.held(name) and not await self._held_elsewhere(name):
            spec = await self._spec(session)
            if not self.runners.can_build(spec):
                self.runners.build(spec)  # says why not
        turn_id = ids.new_id()
        body = prompt_body(blocks, extra or {})
        await self.store.put_inbox(*name, "prompt", turn_id, body)
        await self.turns.kick(name)
        return turn_id

    async def run(
        self, principal: Principal, id: str, content: str | Block | Iterable[Block]
    ) -> StopReason:
        """Ask, and wait for the turn to end."""
        return await self.wait(principal, id, await self.prompt(principal, id, content))

    async def wait(self, principal: Principal, id: str, turn_id: str) -> StopReason:
        """How a turn ended, once it has. A prompt that was withdrawn counts as cancelled."""
        import asyncio

        name = (principal.workspace, id)
        with self.live.sleeper(name) as awake:
            while True:
                awake.clear()
                seq = await self.store.locate(*name, turn_id)
                if seq is not None:
                    break
                if all(item.id != turn_id for item in await self.store.inbox(*name)):
                    if await self.store.locate(*name, turn_id) is None:
                        return "cancelled"
                    continue
                try:
                    # A prompt withdrawn in another process makes no event to be woken by.
                    await asyncio.wait_for(awake.wait(), 1.0)
                except TimeoutError:
                    continue
        async for event in self.follow(principal, id, seq):
            if isinstance(event, Event) and isinstance(event.body, StatusChanged):
                reason = event.body.stop_reason
                if reason is not None and reason != "requires_action":
                    return reason
        raise NotFound(f"no session {id}", session=id)

    async def cancel(self, principal: Principal, id: str) -> None:
        """Cancel the turn that runs now and the prompts that wait, wherever they are."""
        session = await self._native(principal, id)
        name = (principal.workspace, id)
        waiting = [item for item in await self.store.inbox(*name) if item.kind == "prompt"]
        if session.turn is not None or waiting:
            await self.store.put_inbox(*name, "cancel", ids.new_id(), {})
            await self.turns.kick(name)

    async def withdraw(self, principal: Principal, id: str, turn_id: str) -> bool:
        """Take back a prompt that has not begun; whether there was still time."""
        name = (principal.workspace, id)
        numbers = [item.number for item in await self.store.inbox(*name) if item.id == turn_id]
        return bool(await self.store.drop_inbox(*name, numbers))

    async def answer(
        self,
        principal: Principal,
        id: str,
        ask_id: str,
        option: str | None,
        note: str | None = None,
    ) -> None:
        """Answer a permission question of a running turn; no option withdraws it."""
        session = await self._native(principal, id)
        if ask_id not in session.open_asks:
            raise NotFound(f"session {id} has no open question {ask_id}", session=id)
        body = {"ask_id": ask_id, "option": option, "note": note}
        await self.store.put_inbox(principal.workspace, id, "answer", ids.new_id(), body)

    async def hold(
        self,
        principal: Principal,
        id: str,
        *,
        agent: Agent | None = None,
        tools: Tools | None = None,
    ) -> Hold:
        """Hold a session open in this process: its prompts run here, with this agent and tools."""
        await self._native(principal, id)
        return await self.turns.hold((principal.workspace, id), agent, tools)

    # Retention.

    async def retention(self, principal: Principal) -> retaining.Policy:
        return await retaining.get_policy(self.store, principal.workspace)

    async def set_retention(self, principal: Principal, policy: retaining.Policy) -> None:
        await retaining.set_policy(self.store, principal.workspace, policy)

    async def prune(
        self, principal: Principal, *, dry_run: bool = False, now: int | None = None
    ) -> Sequence[retaining.Step]:
        """Do what the workspace's retention policy says, or only tell what it would."""
        at = clock.now() if now is None else now
        return await retaining.prune(self.store, principal.workspace, at, dry_run=dry_run)

    # Within.

    async def _sources(self, principal: Principal) -> Sequence[Source]:
        mine = [source for source in self.sources if source.workspace == principal.workspace]
        for source in mine:
            if source.name not in self._overlaid:
                source.overlay(await self.store.overlays(source.workspace, source.name))
                self._overlaid.add(source.name)
        return mine

    async def _find(self, principal: Principal, id: str) -> tuple[Session, Source | None]:
        """The session, and its source when the store has no copy."""
        session = await self.store.get(principal.workspace, id)
        if session is not None:
            return session, None
        for source in await self._sources(principal):
            session = await source.get(id)
            if session is not None:
                return session, source
        raise NotFound(f"no session {id}", session=id)

    async def _native(self, principal: Principal, id: str) -> Session:
        session, source = await self._find(principal, id)
        if source is not None:
            raise ReadOnly(
                f"session {id} is kept by {source.name}; fork or import it to go on here",
                session=id,
            )
        return session

    async def _resolved(self, query: Query) -> Query:
        if query.cwd is None:
            return query
        cwd = places.absolute(query.cwd)
        if not query.worktrees:
            return replace(query, directories=places.directories(cwd, False))
        found = await _in_thread(lambda: places.directories(cwd, True))
        return replace(query, directories=found)

    async def _read(
        self, workspace: str, id: str, source: Source | None, after: int
    ) -> AsyncIterator[Event]:
        while True:
            if source is not None:
                batch = await source.events(id, after=after, limit=CHUNK)
            else:
                batch = await self.store.events(workspace, id, after=after, limit=CHUNK)
            for event in batch:
                after = event.seq
                yield event
            if len(batch) < CHUNK:
                return

    async def _info(
        self, principal: Principal, id: str, info: InfoChanged, *, at_rest: bool = False
    ) -> Session:
        _, source = await self._find(principal, id)
        if source is not None:
            return await self._source_info(principal, source, id, info)

        def decide(session: Session) -> list[AnyBody]:
            if at_rest:
                _at_rest(session)
            return [info] if _changes(session, info) else []

        session, _ = await self.store.change(principal.workspace, id, decide)
        return session

    async def _source_info(
        self, principal: Principal, source: Source, id: str, info: InfoChanged
    ) -> Session:
        """Into the tool's own files where they can hold it, else into the overlay."""
        patch = dict((await self.store.overlays(source.workspace, source.name)).get(id, {}))
        own: dict[str, Any] = {}
        for field in ("title", "tag", "archived", "deleted"):
            value = getattr(info, field)
            if isinstance(value, UnsetType):
                continue
            if _SHADOWS.get(field) in source.can:
                own[field] = value
            elif field in ("archived", "deleted"):
                patch[f"{field}_at"] = clock.now() if value else None
            else:
                patch[field] = value
        if own:
            await source.change(id, InfoChanged(**own))
        await self.store.set_overlay(source.workspace, source.name, id, patch)
        source.overlay(await self.store.overlays(source.workspace, source.name))
        return await self.get(principal, id)

    async def _ranked(self, principal: Principal, query: Query) -> Sequence[Hit]:
        hits = await self.store.ranked(principal.workspace, query)
        for source in await self._sources(principal):
            found = await source.ranked(query)
            copied = await self.store.held(principal.workspace, [hit[0].id for hit in found])
            hits += [Hit(*hit) for hit in found if hit[0].id not in copied]
        return sorted(hits, key=lambda hit: -hit.score)[: query.limit]

    async def _witnessed(
        self, principal: Principal, sessions: Sequence[Session], wanted: Sequence[text.Term]
    ) -> Sequence[Hit]:
        stored = await self.store.held(principal.workspace, [session.id for session in sessions])
        events: dict[str, Event | None] = {}
        mine = [session for session in sessions if session.id in stored]
        found = await self.store.witness(principal.workspace, mine, wanted)
        events.update(zip((session.id for session in mine), found, strict=True))
        for source in await self._sources(principal):
            theirs = [
                session
                for session in sessions
                if session.source == source.name and session.id not in stored
            ]
            found = await source.witness(theirs, wanted)
            events.update(zip((session.id for session in theirs), found, strict=True))
        return [Hit(session, events.get(session.id)) for session in sessions]

    async def _spec(self, session: Session) -> dict[str, Any]:
        if session.agent is None:
            return {"kind": "default"}
        record: Record | None = await self.store.get_record(
            session.workspace, "agent", session.agent.id, session.agent.version
        )
        if record is None:
            raise NoAgent(f"the agent of session {session.id} is not known here")
        spec: dict[str, Any] = record.body.get("spec", {"kind": "default"})
        return spec

    async def _build(self, session: Session) -> Agent:
        return self.runners.build(await self._spec(session))

    async def _held_elsewhere(self, name: tuple[str, str]) -> bool:
        lease = await self.store.lease_of(*name)
        return lease is not None and lease.expires_at > clock.now()


def _at_rest(session: Session) -> None:
    if session.status in ("running", "rescheduling"):
        raise Busy(
            f"session {session.id} is {session.status}; cancel its turn or wait for it to end",
            session=session.id,
            status=session.status,
        )


def _changes(session: Session, info: InfoChanged) -> bool:
    """Whether a change would change anything; a no-op leaves no event."""
    event = Event(seq=session.last_seq + 1, id="", at=session.updated_at, body=info)
    after = replace(fold.apply(session, event), last_seq=session.last_seq)
    return after != session


def _checked(value: str, what: str) -> str:
    value = value.strip()
    if not value:
        raise InvalidInput(f"the {what} must not be empty; give none to clear it")
    return value


def _unless_same(real: str, given: str) -> str | None:
    return None if real == given else real


def _found(hit: Hit, wanted: Sequence[text.Term]) -> Found:
    shown = "" if hit.event is None else text.searchable(hit.event.body)
    snippet, marks = text.snippet(shown, wanted)
    return Found(hit.session, hit.event, snippet, marks, hit.score)


async def _in_thread(work: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    import asyncio

    return await asyncio.to_thread(work)
