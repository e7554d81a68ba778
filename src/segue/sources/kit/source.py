"""A source over a tool's reader: lists and searches use the index, events come from the reader."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any, TypeVar

from segue.event_loop import is_loop_running
from segue.model.cursor import ChangePoint
from segue.model.errors import Busy, NotFound, ReadOnly, StoreError
from segue.model.event import Event, InfoChanged
from segue.model.query import Position, Query, SearchHit
from segue.model.search_text import Term
from segue.model.session import Session, Thread
from segue.sources.base import Edit, Progress, SourceProblem, SourceReport, agent_id
from segue.sources.index import query as index_query
from segue.sources.index.database import Index, IndexDamaged
from segue.sources.index.open_index import OpenIndex
from segue.sources.index.query import SourceInfo, TextPosition

from . import indexing
from .indexing import Differences
from .reader import CREATED_SEQ, Reader, SessionRef
from .rows import ReadState, ThreadSeq, decode_state, session_id

if TYPE_CHECKING:
    import asyncio

    from .history import Histories
    from .transcripts import KitTranscripts

T = TypeVar("T")
_MAX_INLINE_BYTES = 4 << 20  # that are parsed in the event loop; more would delay other clients
_WATCH_TRUST_SECONDS = 1.0  # for which the system's notifications replace a full comparison
_OPEN_TURN_NS = 24 * 3600 * 10**9  # after its last write in which a turn may still run
_RECENT_NS = 60 * 10**9  # the same if the tool leaves no other sign than its writes


class KitSource:
    """The sessions of one tool, as its reader finds them.

    `progress` is called during a long update, with the bytes read and the bytes in total.
    """

    agent_record: Mapping[str, Any] | None

    def __init__(
        self,
        reader: Reader,
        index: Path,
        label: str,
        *,
        workspace: str = "local",
        progress: Progress | None = None,
    ) -> None:
        self.reader = reader
        self.name = reader.name
        self.label = label
        self.workspace = workspace
        self.agent_record = {
            "name": label,
            "description": f"The agent of the sessions that {label} keeps on this machine.",
            "model": "default",
            "spec": {"kind": "default"},
        }
        self.info = SourceInfo(self.name, agent_id(workspace, self.name), {})
        self._progress = progress
        self._open_index = OpenIndex(index, self._build)
        self._running_update: asyncio.Future[None] | None = None
        self._listeners: list[Callable[[str], None]] = []
        self._notified_running: Mapping[str, int] = {}  # the running sessions at the last notice
        self._watch_task: asyncio.Task[None] | None = None
        self._ending_tasks: set[asyncio.Task[None]] = set()  # watch tasks that were cancelled
        self._overlay: Mapping[str, Mapping[str, Any]] = {}
        self._histories: Histories | None = None
        self._reported: list[SourceProblem] = []  # by the last comparison of all sessions
        self._transient: list[SourceProblem] = []  # of the last update
        self.watched = False  # whether the system notifies of changes
        self._compared_at = 0.0
        self._closing = False

    async def close(self) -> None:
        self._stop_watching()
        if self._ending_tasks:
            import asyncio

            await asyncio.wait(self._ending_tasks)
        self._closing = True
        await self._wait_for_update()
        self._open_index.close()

    @property
    def edits(self) -> frozenset[Edit]:
        """The edits that the tool's own files can hold."""
        return self.reader.edits

    @property
    def transcripts(self) -> KitTranscripts:
        """How sessions are imported."""
        from .transcripts import KitTranscripts

        return KitTranscripts(self.reader, self.label)

    # The index.

    async def _ask_current(self, question: Callable[[Index], T]) -> T:
        """Return the answer of an index with all sessions, even if it was deleted a moment ago."""
        index = self._open_index.index
        if not index.is_compared:
            index = await self._compare_all()
        return self._open_index.ask(question, index)

    async def _ask_searchable(self, question: Callable[[Index], T]) -> T:
        """Return the answer of an index with all sessions in which every text can be searched."""
        if not self._open_index.index.is_compared:
            await self._compare_all()
        await self.make_searchable()
        return await self._ask_current(question)

    async def make_searchable(self) -> None:
        """Put the texts that the first update has deferred into the full-text index."""
        await self._wait_for_update()
        index = self._open_index.index
        size = self._open_index.ask(lambda index: index.unsearchable_bytes(), index)
        if not size:
            return
        from segue.sources.index import full_text  # lists do not need it

        def work() -> None:
            self._open_index.write(
                lambda index: full_text.make_searchable(
                    index, size, self._progress, self._is_closing
                )
            )

        await self._run_update(work, size)

    def unindexed_bytes(self, *, searchable: bool) -> int:
        """Return the size of the sessions that were never indexed, or cannot be searched."""
        if not self._open_index.ask(lambda index: index.is_complete()):
            return sum(ref.fingerprint.size for ref in self._discover())
        ask = self._open_index.ask
        return ask(lambda index: index.unsearchable_bytes()) if searchable else 0

    def opener(self) -> Callable[[], KitSource]:
        """Return a function that opens the same source in another process. It can be pickled."""
        reader, path, overlay = self.reader, self._open_index.path, self._overlay
        return partial(_open_again, reader, path, self.label, self.workspace, overlay)

    async def _run_update(self, work: Callable[[], None], size: int) -> None:
        """Run an update of the index: a large one in a thread, if there is an event loop."""
        if size <= _MAX_INLINE_BYTES or not is_loop_running():
            work()
            return
        import asyncio

        # Shielded: the update continues if its caller is cancelled.
        self._running_update = asyncio.ensure_future(asyncio.to_thread(work))
        await asyncio.shield(self._running_update)

    async def refresh(self, cwd: str | None = None) -> None:
        """Compare all sessions with the index, and update it.

        While the system notifies of changes, which takes it moments, that is done now and then.
        """
        is_recent = monotonic() - self._compared_at < _WATCH_TRUST_SECONDS
        if not (self.watched and self._open_index.index.is_compared and is_recent):
            await self._compare_all()

    async def _compare_all(self) -> Index:
        index = await self.update_index(None)
        index.is_compared = True
        self._compared_at = monotonic()
        return index

    async def update_index(self, keys: Sequence[str] | None) -> Index:
        """Compare some sessions with the index, or all, and update it."""
        await self._wait_for_update()
        index = self._open_index.index
        status = self.reader.status() if keys is None else None

        def compare(index: Index) -> Differences:
            if keys is not None:
                return indexing.find_differences_of(index, self._current_refs(keys))
            if indexing.is_unchanged(index, status):
                self._reported = []
                return Differences([], [])
            return indexing.find_differences(index, self._discover(), self._reported, status)

        differences = self._open_index.ask(compare, index)
        await self._run_update(lambda: self._update(index, differences), differences.size)
        if differences.changed and keys is None and not self._closing:
            self._open_index.ask(_check_complete, index)
        self._update_running()
        return index

    def _discover(self) -> list[SessionRef]:
        """Return all sessions, and remember what could not be read.

        If the reader fails, the sessions of all its places stay listed as they were.
        """
        self._reported = []
        refs: list[SessionRef] = []
        try:
            refs.extend(self.reader.discover(self._report))
        except MemoryError:
            raise
        except Exception as error:  # the tool's files may hold anything
            import logging  # a list does not need it

            logging.getLogger("segue.sources").exception("cannot find sessions of %s", self.label)
            for place in self.places():
                self._report(place, f"its sessions cannot be found: {error!r}")
        return refs

    def _current_refs(self, keys: Sequence[str]) -> dict[str, SessionRef | None]:
        """Return sessions as they are now, without those that cannot be looked up now."""
        refs: dict[str, SessionRef | None] = {}
        for key in keys:
            try:
                refs[key] = self.reader.ref(key)
            except MemoryError:
                raise
            except Exception as error:  # such as a locked database
                import logging

                logging.getLogger("segue.sources").info("cannot look up %s: %r", key, error)
        return refs

    def _report(self, path: str, reason: str) -> None:
        self._reported.append(SourceProblem(path, reason))

    async def _wait_for_update(self) -> None:
        """Wait for the end of a running update; its own caller receives its error."""
        if self._running_update is not None:
            import asyncio

            await asyncio.wait([self._running_update])

    def _update(self, index: Index, differences: Differences) -> None:
        try:
            self._write(index, differences)
        except IndexDamaged:
            self._open_index.retry_damaged(lambda _: self._open_index.rebuild(index))

    def _build(self, index: Index) -> None:
        """Fill an empty index. The question that found it damaged may be a search."""
        from segue.sources.index.full_text import make_searchable

        differences = indexing.find_differences(index, self._discover(), self._reported)
        self._write(index, differences)
        make_searchable(index, differences.size, self._progress, self._is_closing)

    def _write(self, index: Index, differences: Differences) -> None:
        indexing.save_digests(index, differences)
        if differences.changed or differences.removed:
            update = indexing.IndexUpdate(
                self.reader, self.workspace, self._overlay, self._progress, self._is_closing
            )
            update.apply(index, differences)
            self._transient = update.problems

    def _is_closing(self) -> bool:
        return self._closing

    def _update_running(self) -> None:
        """Update which sessions the tool works on: those with an open turn and a live process."""
        running = {}
        now = time_ns()
        oldest = now - _OPEN_TURN_NS
        for key, id, open_since in self._open_index.ask(lambda index: index.open_turns(oldest)):
            ref = self._current_refs([key]).get(key)
            is_running = False if ref is None else self.reader.is_running(ref)
            if ref is not None and is_running is None:
                is_running = now - ref.fingerprint.mtime_ns < _RECENT_NS
            if is_running:
                running[id] = open_since
        self.info = self.info._replace(running=running)

    def _read_state(self, key: str) -> ReadState:
        """Return what the index keeps of a session besides its row."""
        data = self._open_index.ask(lambda index: index.parser_state(key))
        return decode_state(data) if data else ReadState()

    async def examine(self) -> SourceReport:
        """Return where the tool's sessions are, how many are listed, and what cannot be read."""
        await self.refresh()
        indexed = await self._ask_current(indexing.problems_of)
        sessions = await self._ask_current(lambda index: index.shown_sessions())
        problems = [*self._reported, *self._transient, *indexed]
        return SourceReport(self.places(), sessions, problems)

    def places(self) -> Sequence[str]:
        """Return the directories and databases that the tool's sessions are in."""
        return self.reader.places()

    # Lists.

    async def get(self, id: str) -> Session | None:
        row = self._open_index.ask(lambda index: index.find(id))
        if row is not None:
            await self.update_index([row[0]])
            row = self._open_index.ask(lambda index: index.find(id))
        if row is None:
            await self._compare_all()
            row = self._open_index.ask(lambda index: index.find(id))
        return row and self.info.with_status(row[2])

    async def page(
        self, query: Query, after: Position | None = None, *, backward: bool = False
    ) -> list[Session]:
        ask = self._ask_current if query.text is None else self._ask_searchable
        return await ask(
            lambda index: index_query.page(index, self.info, query, after, backward=backward)
        )

    async def in_id_range(self, low: str, high: str, limit: int) -> list[Session]:
        await self.refresh()
        return await self._ask_current(
            lambda index: index_query.in_id_range(index, self.info, low, high, limit)
        )

    async def change_point(self) -> ChangePoint:
        return await self._ask_current(lambda index: index.change_point())

    def current_change_point(self) -> ChangePoint:
        """Return the change point of the index as it is, without comparing sessions."""
        return self._open_index.ask(lambda index: index.change_point())

    async def sweep(self, query: Query, since: ChangePoint, after: str) -> list[Session]:
        ask = self._ask_current if query.text is None else self._ask_searchable
        return await ask(lambda index: index_query.sweep(index, self.info, query, since, after))

    async def ranked(self, query: Query) -> list[SearchHit]:
        from segue.sources.index import ranking

        await self.refresh()
        matches = await self._ask_searchable(
            lambda index: ranking.rank_sessions(index, self.info, query)
        )
        return [
            SearchHit(
                match.session,
                match.position and self._event_at(match.session, match.position),
                match.score,
            )
            for match in matches
        ]

    async def known_words(self, words: Sequence[str]) -> set[str]:
        return await self._ask_searchable(lambda index: index_query.known_words(index, words))

    async def newest_matches(
        self, sessions: Sequence[Session], terms: Sequence[Term]
    ) -> list[Event | None]:
        session_ids = [session.id for session in sessions]
        positions = await self._ask_searchable(
            lambda index: index_query.newest_positions(index, session_ids, terms)
        )
        return [
            None if position is None else self._event_at(session, position)
            for session, position in zip(sessions, positions, strict=True)
        ]

    async def occurrences(
        self, id: str, terms: Sequence[Term], before: int | None, limit: int
    ) -> list[int]:
        return await self._ask_searchable(
            lambda index: index_query.occurrences(index, id, terms, before, limit)
        )

    async def apply_overlay(self, patches: Mapping[str, Mapping[str, Any]]) -> None:
        self._overlay = {id: dict(patch) for id, patch in patches.items() if patch}
        if self._open_index.ask(lambda index: index.overlay()) != self._overlay:
            from segue.sources.index.writer import write_index

            with write_index(self._open_index.index) as writer:
                writer.set_overlay(self._overlay)

    # Events.

    @property
    def _history(self) -> Histories:
        if self._histories is None:
            from .history import Histories  # lists do not need it

            self._histories = Histories(self.reader)
        return self._histories

    def _find(self, id: str) -> tuple[str, Session]:
        """Return the key and the row of a session; raises NotFound."""
        row = self._open_index.ask(lambda index: index.find(id))
        if row is None:
            raise NotFound(f"no session {id}", session=id)
        return row[0], row[2]

    def _event_at(self, session: Session, position: TextPosition) -> Event | None:
        """Return the event at a position of the index; None if it is gone."""
        from msgspec.structs import replace

        from .rows import creation_event

        if position.seq == CREATED_SEQ:  # its title, which no record of the tool has
            return replace(creation_event(session), body=InfoChanged(title=session.title))
        try:
            if position.seq > 0:
                events = self._history.load(session.id, position.path).events
                return next((event for event in events if event.seq == position.seq), None)
            number, seq = ThreadSeq.decode(position.seq)
            thread = self._read_state(position.path).threads[number - 1]
            events = self._history.thread_events(session.id, position.path, thread)
            started = self._history.thread_start(session.id, position.path, thread)
            match = next((event for event in events if event.seq == seq), None)
            return match and replace(match, seq=started)
        except (NotFound, IndexError):
            return None

    async def events(self, id: str, **options: Any) -> list[Event]:
        from .history import select

        key, session = self._find(id)
        return select(session, self._history.load(id, key).events, **options)

    async def conversation(self, id: str) -> AsyncIterator[Event]:
        from .rows import creation_event

        key, session = self._find(id)
        yield creation_event(session)
        for event in self._history.load(id, key).events:
            if not event.body.is_off_branch:
                yield event

    async def threads(self, id: str) -> list[Thread]:
        await self.get(id)
        return self._history.threads(id, self._find(id)[0])

    async def thread(self, id: str, thread: str) -> AsyncIterator[Event]:
        await self.get(id)
        for event in self._history.thread_events(id, self._find(id)[0], thread):
            yield event

    async def locate(self, id: str, event_id: str) -> int | None:
        from .rows import creation_event

        key, session = self._find(id)
        events = [creation_event(session), *self._history.load(id, key).events]
        return next((event.seq for event in events if event.id == event_id), None)

    # Changes.

    def _ref(self, id: str) -> SessionRef:
        key = self._find(id)[0]
        ref = self._current_refs([key]).get(key)
        if ref is None:
            raise NotFound(f"no session {id}", session=id)
        return ref

    async def _edit(self, id: str, edit: Callable[[SessionRef], T]) -> T:
        """Change the tool's files in a thread: an edit may run the tool's program."""
        import asyncio

        from .history import readable

        await self.get(id)
        with readable(id):
            result = await asyncio.to_thread(edit, self._ref(id))
        await self._compare_all()
        return result

    async def change(self, id: str, info: InfoChanged) -> str:
        """Write an edit; raises Busy for a session that is to be archived or deleted."""
        if info.archived is True or info.deleted is True:
            await self._require_idle(id)
        native_id = await self._edit(id, lambda ref: self.reader.change(ref, info))
        return id if native_id is None else (await self._by_native_id(native_id)).id

    async def _require_idle(self, id: str) -> None:
        await self.get(id)
        if id in self.info.running:
            raise Busy(
                f"{self.label} works on session {id}; try again when it has finished", session=id
            )

    async def _by_native_id(self, native_id: str) -> Session:
        """Return a session that was written a moment ago."""
        ref = self.reader.find(native_id)
        session = None if ref is None else await self.get(session_id(self.name, ref))
        if session is None:
            raise StoreError(f"{self.label} has written session {native_id}, but does not list it")
        return session

    async def delete(self, id: str) -> None:
        import asyncio

        await self._require_idle(id)
        await self._edit(id, self.reader.delete)
        await asyncio.to_thread(self._open_index.index.erase_removed_texts)

    async def fork(
        self, id: str, new_id: str, *, at: int | None, cwd: str | None, title: str | None
    ) -> Session:
        """Create a session in the tool's own files, with the history up to the event `at`."""
        if "fork" not in self.edits:
            raise ReadOnly(f"{self.label} sessions are forked into the store", session=id)
        native_id = await self._edit(
            id, lambda ref: self.reader.fork(ref, new_id, at=at, cwd=cwd, title=title)
        )
        return await self._by_native_id(native_id)

    # Watching.

    def watch(self, listener: Callable[[str], None]) -> Callable[[], None]:
        from .watch import watch_source

        self._listeners.append(listener)
        if self._watch_task is None:
            import asyncio

            self._watch_task = asyncio.get_running_loop().create_task(watch_source(self))

        def stop() -> None:
            self._listeners.remove(listener)
            if not self._listeners:
                self._stop_watching()

        return stop

    def _stop_watching(self) -> None:
        self.watched = False
        if self._watch_task is not None:
            self._watch_task.cancel()
            self._ending_tasks.add(self._watch_task)
            self._watch_task.add_done_callback(self._ending_tasks.discard)
            self._watch_task = None

    def notify_listeners(self, since: ChangePoint) -> ChangePoint:
        """Notify the listeners of sessions that changed since a point, and return the next one."""
        point = self.current_change_point()
        changed = set(self._open_index.ask(lambda index: index.changed_since(since)))
        changed |= {id for id, _ in self._notified_running.items() ^ self.info.running.items()}
        self._notified_running = self.info.running
        for id in changed:
            for listener in tuple(self._listeners):
                listener(id)
        return point

    def has_running(self) -> bool:
        """Return whether the tool works on a session, whose process may end without a write."""
        return bool(self.info.running)

    def key_of_path(self, path: str) -> str | None:
        """Return the key of the session whose main file has changed; None if it is another file."""
        if self._open_index.ask(lambda index: index.key(path)) is not None:
            return path
        return None


def _open_again(
    reader: Reader,
    index: Path,
    label: str,
    workspace: str,
    overlay: Mapping[str, Mapping[str, Any]],
) -> KitSource:
    source = KitSource(reader, index, label, workspace=workspace)
    source._overlay = overlay
    return source


def _check_complete(index: Index) -> None:
    """Raise IndexDamaged if written rows are missing, as after its log was deleted."""
    if not index.is_complete():
        raise IndexDamaged("it lacks what was written to it")


def index_path(index_dir: Path, reader: Reader) -> Path:
    """Return the path of a reader's index, and delete its indexes in older formats.

    Each home has an index of its own, and so does each format: an older segue that still runs
    would replace an index in a newer format.
    """
    from contextlib import suppress
    from hashlib import blake2b

    from segue.sources.index.database import FORMAT

    places = "\0".join(reader.places())
    digest = blake2b(os.fsencode(places), digest_size=4).hexdigest()
    path = index_dir / f"{reader.name}-{digest}-{FORMAT}.{reader.version}.index"
    if not path.exists():
        for old_index in path.parent.glob(f"{reader.name}-{digest}*"):
            if not old_index.name.startswith(path.name):
                with suppress(OSError):
                    old_index.unlink()
    return path
