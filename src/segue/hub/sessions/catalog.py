"""Reading: get, list, search, history, follow, export."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from segue.event_loop import run_in_thread
from segue.hub.sync import exchange
from segue.model import clock, search_text
from segue.model import cursor as cursors
from segue.model.cursor import ListPosition
from segue.model.errors import InvalidInput, NotFound
from segue.model.event import Created, Delta, Event
from segue.model.principal import Principal
from segue.model.query import Query, SearchHit
from segue.model.record import Record
from segue.model.session import Session, Thread

from . import directories, resolve
from .lookup import Base
from .pagination import MAX_LIMIT, Page, Pager

if TYPE_CHECKING:
    from segue.hub.history.follow import Change

    from .stats import Tally


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


class Reading(Base):
    """What can be asked of sessions. None of it changes, opens or touches one."""

    async def get(self, principal: Principal, id: str) -> Session:
        """The session; NotFound if there is none of that id in the principal's workspace."""
        session, _ = await self._find(principal, id)
        return session

    async def named(
        self, principal: Principal, name: str, *, trash: bool = False, titles: bool = True
    ) -> Session:
        """The session that a person means by an id, the beginning of one, or (`titles`) a title.

        NotFound if there is none, `naming.Ambiguous` if there are several. `trash` looks there.
        """
        return await resolve.named(self, principal, name, trash=trash, titles=titles)

    async def mark(self, principal: Principal, place: ListPosition) -> str:
        """A place in a list of anything but sessions, as a cursor."""
        return cursors.encode(place, await self.store.cursor_key(), principal.workspace)

    async def marked(self, principal: Principal, token: str) -> ListPosition:
        """The place that a cursor of `mark` names; InvalidCursor for anything else."""
        return cursors.decode_list_position(
            token, await self.store.cursor_key(), principal.workspace
        )

    async def in_id_range(
        self, principal: Principal, low: str, high: str, *, limit: int = 50
    ) -> Sequence[Session]:
        """Sessions with ids from `low` to `high`, by id, on any shelf."""
        found = await self.store.in_id_range(principal.workspace, low, high, limit)
        for source in await self._sources(principal):
            theirs = await source.in_id_range(low, high, limit)
            copied = await self.store.existing_ids(
                principal.workspace, [each.id for each in theirs]
            )
            found += [each for each in theirs if each.id not in copied]
        return sorted(found, key=lambda session: session.id)[:limit]

    async def keeper(self, principal: Principal, id: str) -> str | None:
        """The source in whose files a session is; None for the store's own, and its copies."""
        _, source = await self._find(principal, id)
        return None if source is None else source.name

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
        wanted = search_text.terms(query.text or "")
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

    async def find(
        self,
        principal: Principal,
        id: str,
        words: str,
        *,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Found]:
        """Where in a session all of these words occur in one event, the newest first."""
        wanted = search_text.terms(words)
        if not wanted:
            raise InvalidInput("a search needs at least one word")
        session, source = await self._find(principal, id)
        if source is not None:
            seqs = await source.occurrences(id, wanted, before, limit)
        else:
            seqs = await self.store.occurrences(principal.workspace, id, wanted, before, limit)
        found = []
        for seq in seqs:
            for event in await self.events(principal, id, after=seq - 1, before=seq + 1, limit=1):
                found.append(_found(SearchHit(session, event), wanted))
        return found

    async def find_in_threads(
        self, principal: Principal, id: str, words: str, *, limit: int = 100
    ) -> list[tuple[Thread, Found]]:
        """Where the agents that a session started have all of these words in one event."""
        wanted = search_text.terms(words)
        if not wanted:
            raise InvalidInput("a search needs at least one word")
        session, _ = await self._find(principal, id)
        found: list[tuple[Thread, Found]] = []
        for thread in await self.threads(principal, id):
            async for event in self.thread(principal, id, thread.id):
                said = search_text.searchable_text(event.body)
                if said and all(search_text.text_has_term(term, said) for term in wanted):
                    found.append((thread, _found(SearchHit(session, event), wanted)))
                    if len(found) == limit:
                        return found
        return found

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

    async def conversation(self, principal: Principal, id: str) -> AsyncIterator[Event]:
        """The part of the history that led to where the session is now: what a reader is shown.

        That is all of it, except where another tool keeps branches that were left, or kept them
        in a session that was imported.
        """
        _, source = await self._find(principal, id)
        if source is None:
            async for event in self._read(principal.workspace, id, None, 0):
                if not event.body.is_off_branch:
                    yield event
        else:
            async for event in source.conversation(id):
                yield event

    async def threads(self, principal: Principal, id: str) -> Sequence[Thread]:
        """The agents that a session started, whose doings are not in its own history."""
        session, source = await self._find(principal, id)
        if source is not None:
            return await source.threads(id)
        return list((await self._mirrored(session)).values())

    async def thread(self, principal: Principal, id: str, thread: str) -> AsyncIterator[Event]:
        """What one of them did; its events have places of their own."""
        session, source = await self._find(principal, id)
        if source is not None:
            async for event in source.thread(id, thread):
                yield event
            return
        threads = await self._mirrored(session)
        path = next((path for path, each in threads.items() if each.id == thread), None)
        if path is None:
            raise NotFound(f"session {id} has no thread {thread}", session=id)
        from segue.hub.sync.mirror import Mirror

        async for event in Mirror(self.store, session.workspace).thread(session, path):
            yield event

    async def _mirrored(self, session: Session) -> Mapping[str, Thread]:
        """The threads of a session of the store's: those that came from Claude Code have some."""
        if "claude" not in session.extra:
            return {}
        from segue.hub.sync.mirror import Mirror

        return await Mirror(self.store, session.workspace).threads(session)

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

    async def tell(self, principal: Principal, id: str, seq: int) -> None:
        """Note, for all processes, that somebody was told of a session's events up to this one."""
        _, source = await self._find(principal, id)
        if source is None:
            await self.store.ack(principal.workspace, id, seq)

    async def told(self, principal: Principal, id: str) -> int:
        """How far somebody has been told; 0 for sessions that a source keeps."""
        _, source = await self._find(principal, id)
        return 0 if source is not None else await self.store.acked_seq(principal.workspace, id)

    async def follow(
        self, principal: Principal, id: str, after: int = 0, *, deltas: bool = False
    ) -> AsyncGenerator[Event | Delta, None]:
        """Events after a seq: those stored, then new ones as they come, from any process.

        With `deltas` also the pieces of messages that are being written. Ends when the session
        is purged. One that a source keeps is followed there and, once the store has taken it in,
        here, from the first turn on that it has here.
        """
        session, source = await self._find(principal, id)
        name = (principal.workspace, id)
        copied = session.origin in {each.name for each in self.sources}

        async def read(seq: int) -> AsyncIterator[Event]:
            if copied:
                await self.get(principal, id)  # with what was said in the original since
            async for event in self._read(*name, None, seq):
                yield event

        async def read_source(seq: int) -> AsyncIterator[Event]:
            taken = await self.store.get(*name) is not None
            async for event in self._read(*name, source, seq):
                yield event
            if taken:
                raise NotFound(f"session {id} is in the store now", session=id)

        if source is not None:
            async for item in self.live.follow(read_source, name, after, False, False):
                yield item
            taken_in = await self.store.get(*name)
            if taken_in is None:
                return
            turns = await self.store.events(*name, types=("status_changed",), limit=1)
            after = turns[0].seq - 1 if turns else taken_in.last_seq
        async for item in self.live.follow(read, name, after, deltas, True):
            yield item

    def changes(self, principal: Principal) -> AsyncIterator[Change]:
        """The ids of this workspace's sessions that change, as they do."""
        return self.live.changes(principal.workspace)

    async def tally(self, principal: Principal, days: int, *, now: int | None = None) -> Tally:
        """What the sessions that were active in the last days come to."""
        from .stats import tally

        until = (clock.now() if now is None else now) // clock.DAY
        since = until - days + 1
        query = Query(archived="include", active_after=since * clock.DAY - 1, limit=MAX_LIMIT)

        async def pages() -> AsyncIterator[Sequence[Session]]:
            cursor: str | None = None
            while True:
                page = await self.list(principal, query, cursor)
                yield page.sessions
                cursor = page.next
                if cursor is None:
                    return

        return await tally(pages(), since, until)

    async def export(self, principal: Principal, id: str) -> AsyncIterator[bytes]:
        """A session as the lines of one JSONL file."""
        session, source = await self._find(principal, id)
        agents: list[Record] = []
        if session.agent is not None and source is None:
            for version in range(1, session.agent.version + 1):
                if record := await self._agent(principal, session.agent.id, version):
                    agents.append(record)
        events = self._read(principal.workspace, id, source, 0)
        if source is not None:  # whose places in a file are no numbers without gaps
            last = inherited = 0
            async for event in self._read(principal.workspace, id, source, 0):
                last += 1
                inherited += session.fork is not None and event.seq <= session.fork.seq
            fork = session.fork and replace(session.fork, seq=inherited)
            session = replace(session, last_seq=last, fork=fork, agent=None)
        async for line in exchange.write(session, agents, _counted(events, session)):
            yield line

    async def _resolved(self, query: Query) -> Query:
        if query.cwd is None:
            return query
        cwd = directories.absolute(query.cwd)
        if not query.worktrees:
            return replace(query, directories=directories.directories(cwd, False))
        found = await run_in_thread(lambda: directories.directories(cwd, True))
        return replace(query, directories=found)

    async def _ranked(self, principal: Principal, query: Query) -> Sequence[SearchHit]:
        hits = await self.store.ranked(principal.workspace, query)
        for source in await self._sources(principal):
            found = await source.ranked(query)
            copied = await self.store.existing_ids(
                principal.workspace, [hit[0].id for hit in found]
            )
            hits += [SearchHit(*hit) for hit in found if hit[0].id not in copied]
        return sorted(hits, key=lambda hit: -hit.score)[: query.limit]

    async def _witnessed(
        self, principal: Principal, sessions: Sequence[Session], wanted: Sequence[search_text.Term]
    ) -> Sequence[SearchHit]:
        sources = await self._sources(principal)
        stored = {session.id for session in sessions}
        if sources:
            stored = await self.store.existing_ids(principal.workspace, list(stored))
        events: dict[str, Event | None] = {}
        mine = [session for session in sessions if session.id in stored]
        found = await self.store.newest_matches(principal.workspace, mine, wanted)
        events.update(zip((session.id for session in mine), found, strict=True))
        for source in sources:
            theirs = [
                session
                for session in sessions
                if session.source == source.name and session.id not in stored
            ]
            found = await source.newest_matches(theirs, wanted)
            events.update(zip((session.id for session in theirs), found, strict=True))
        return [SearchHit(session, events.get(session.id)) for session in sessions]

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


async def _counted(events: AsyncIterator[Event], session: Session) -> AsyncIterator[Event]:
    seq = 0
    async for event in events:
        seq += 1
        if isinstance(event.body, Created) and event.body.fork != session.fork:
            event = replace(event, body=replace(event.body, fork=session.fork))
        yield event if event.seq == seq else replace(event, seq=seq)


def _found(hit: SearchHit, wanted: Sequence[search_text.Term]) -> Found:
    shown = "" if hit.event is None else search_text.searchable_text(hit.event.body)
    snippet, marks = search_text.snippet(shown, wanted)
    return Found(hit.session, hit.event, snippet, marks, hit.score)
