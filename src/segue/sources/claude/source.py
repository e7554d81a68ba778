"""The source of Claude Code's sessions, which are read and edited in place.

Lists and searches use the index. Before each answer the files are compared with it, and what was
appended is parsed. Events are read from the transcripts themselves.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from segue.event_loop import is_loop_running
from segue.model.cursor import ChangePoint
from segue.model.errors import NotFound
from segue.model.event import Event, InfoChanged
from segue.model.query import Position, Query, SearchHit
from segue.model.search_text import Term
from segue.model.session import Session, Thread
from segue.sources import safe_io
from segue.sources.base import Edit, SourceReport, agent_id
from segue.sources.index import query as index_query
from segue.sources.index import ranking
from segue.sources.index.database import Index, IndexDamaged
from segue.sources.index.open_index import OpenIndex
from segue.sources.index.query import SourceInfo

from .format import processes
from .format.paths import SOURCE, ClaudeHome, ProjectDirectory, list_projects
from .index import discovery
from .index.discovery import IndexDifferences

if TYPE_CHECKING:
    import asyncio

    from segue.sources.base import Transcripts

    from .events.session_reader import SessionReader
    from .format.paths import TranscriptFile

T = TypeVar("T")
_MAX_INLINE_BYTES = 4 << 20  # that are parsed in the event loop; more would delay other clients
_WATCH_TRUST_SECONDS = 1.0  # for which the system's notifications replace a full comparison
_ALL_EDITS: frozenset[Edit] = frozenset({"title", "tag", "archive", "trash", "delete", "fork"})


class ClaudeSource:
    """The sessions of one Claude Code home.

    `progress` is called during a long update, with the bytes read and the bytes in total.
    """

    name = SOURCE
    label = "Claude Code"
    agent_record: Mapping[str, Any] | None = {
        "name": "Claude Code",
        "description": "The agent of the sessions that Claude Code keeps on this machine.",
        "model": "default",  # Claude Code chooses the model
        "spec": {"kind": "claude_code"},
    }

    def __init__(
        self,
        index: Path,
        home: ClaudeHome | None = None,
        *,
        workspace: str = "local",
        writable: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.home = home or ClaudeHome.current()
        self.workspace = workspace
        self.edits: frozenset[Edit] = _ALL_EDITS if writable else frozenset()
        self.info = SourceInfo(self.name, agent_id(workspace, self.name), {})
        self._open_index = OpenIndex(index, self._build)
        self._progress = progress
        self._running_update: asyncio.Future[None] | None = None
        self._listeners: list[Callable[[str], None]] = []
        self._notified_running: Mapping[str, int] = {}  # the running sessions at the last notice
        self._watch_task: asyncio.Task[None] | None = None
        self._ending_tasks: set[asyncio.Task[None]] = set()  # watch tasks that were cancelled
        self._overlay: Mapping[str, Mapping[str, Any]] = {}
        self.watched = False  # whether the system notifies of changes of the files
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
    def transcripts(self) -> Transcripts:
        """The transcripts of this home."""
        from .exchange.transcripts import ClaudeTranscripts

        return ClaudeTranscripts(self.home)

    # The index.

    @property
    def index(self) -> Index:
        """The open index; another process may have replaced its file."""
        return self._open_index.index

    def _ask(self, question: Callable[[Index], T], index: Index | None = None) -> T:
        """Return the answer of a question; a damaged index is built again."""
        return self._open_index.ask(question, index)

    async def _ask_current(self, question: Callable[[Index], T]) -> T:
        """Return the answer of an index with all files, even if it was deleted a moment ago."""
        index = self.index
        if not index.is_compared:
            index = await self._compare_all()
        return self._ask(question, index)

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

    async def _run_update(self, work: Callable[[], None], size: int) -> None:
        """Run an update of the index: a large one in a thread, if there is an event loop."""
        if size <= _MAX_INLINE_BYTES or not is_loop_running():
            work()
            return
        import asyncio

        # Shielded: the update continues if its caller is cancelled.
        self._running_update = asyncio.ensure_future(asyncio.to_thread(work))
        await asyncio.shield(self._running_update)

    def _build(self, index: Index) -> None:
        """Fill an empty index. The question that found it damaged may be a search."""
        from segue.sources.index.full_text import make_searchable

        differences = self._differences(index, None)
        self._write(index, differences)
        make_searchable(index, differences.size, self._progress, self._is_closing)

    async def refresh(self, cwd: str | None = None) -> None:
        """Compare all files with the index, and update it.

        While the system notifies of changes, which takes it moments, that is done now and then.
        """
        is_recent = monotonic() - self._compared_at < _WATCH_TRUST_SECONDS
        if not (self.watched and self.index.is_compared and is_recent):
            await self._compare_all()

    async def _compare_all(self) -> Index:
        index = await self.update_index(None)
        index.is_compared = True
        self._compared_at = monotonic()
        return index

    async def update_index(self, paths: Sequence[str] | None) -> Index:
        """Compare some files with the index, or all, and update it.

        Return the index that is current: another one may have replaced it meanwhile.
        """
        self._update_running()
        await self._wait_for_update()
        index = self.index
        differences = self._ask(lambda index: self._differences(index, paths), index)
        await self._run_update(lambda: self._update(index, differences), differences.size)
        if differences.changed and paths is None and not self._closing:
            self._ask(_check_complete, index)
        return index

    def _update_running(self) -> None:
        """Update which sessions Claude Code works on."""
        self.info = self.info._replace(running=processes.busy_sessions(self.home))

    async def _wait_for_update(self) -> None:
        """Wait for the end of a running update; its own caller receives its error."""
        if self._running_update is not None:
            import asyncio

            await asyncio.wait([self._running_update])

    def _differences(self, index: Index, paths: Sequence[str] | None) -> IndexDifferences:
        if paths is None:
            return discovery.find_differences(index, self.home)
        return discovery.find_differences_of(index, paths)

    def _update(self, index: Index, differences: IndexDifferences) -> None:
        try:
            self._write(index, differences)
        except IndexDamaged:
            self._open_index.retry_damaged(lambda _: self._open_index.rebuild(index))

    def _write(self, index: Index, differences: IndexDifferences) -> None:
        if differences.unchanged:
            index.save_digests(differences.unchanged, differences.change)
        if differences.changed or differences.removed:
            from .index.index_update import IndexUpdate

            update = IndexUpdate(self.workspace, self._overlay, self._progress, self._is_closing)
            update.apply(index, differences)

    def _is_closing(self) -> bool:
        return self._closing

    # Lists.

    async def get(self, id: str) -> Session | None:
        self._update_running()
        row = self._ask(lambda index: index.find(id))
        if row is None or discovery.file_key(row[0]) != row[1]:
            await self.update_index([*([row[0]] if row else []), *self._project_paths(id)])
            row = self._ask(lambda index: index.find(id))
        return row and self.info.with_status(row[2])

    def _project_paths(self, id: str) -> Iterator[str]:
        """Return the paths of a session's transcripts in all projects."""
        for project in list_projects(self.home):
            for name in {id, id.upper()}:
                if os.path.lexists(path := os.path.join(project.path, f"{name}.jsonl")):
                    yield path

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
        """Return the change point of the index as it is, without comparing files."""
        return self._ask(lambda index: index.change_point())

    async def sweep(self, query: Query, since: ChangePoint, after: str) -> list[Session]:
        ask = self._ask_current if query.text is None else self._ask_searchable
        return await ask(lambda index: index_query.sweep(index, self.info, query, since, after))

    async def ranked(self, query: Query) -> list[SearchHit]:
        await self.refresh()
        matches = await self._ask_searchable(
            lambda index: ranking.rank_sessions(index, self.info, query)
        )
        return [
            SearchHit(
                match.session,
                match.position and self._session_reader.read_event(match.session, match.position),
                match.score,
            )
            for match in matches
        ]

    async def known_words(self, words: Sequence[str]) -> set[str]:
        return await self._ask_searchable(lambda index: index_query.known_words(index, words))

    async def newest_matches(
        self, sessions: Sequence[Session], terms: Sequence[Term]
    ) -> list[Event | None]:
        ids = [session.id for session in sessions]
        positions = await self._ask_searchable(
            lambda index: index_query.newest_positions(index, ids, terms)
        )
        return [
            None if position is None else self._session_reader.read_event(session, position)
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
        if self._ask(lambda index: index.overlay()) != self._overlay:
            from segue.sources.index.writer import write_index

            with write_index(self.index) as writer:
                writer.set_overlay(self._overlay)

    async def examine(self) -> SourceReport:
        """Return where the transcripts are and how many sessions are listed."""
        await self.refresh()
        sessions = await self._ask_current(lambda index: index.shown_sessions())
        return SourceReport([self.home.projects], sessions)

    # Events.

    @cached_property
    def _session_reader(self) -> SessionReader:
        from .events.session_reader import SessionReader  # lists do not need it

        return SessionReader(self._ask)

    async def threads(self, id: str) -> list[Thread]:
        await self.get(id)
        return self._session_reader.threads(id)

    async def thread(self, id: str, thread: str) -> AsyncIterator[Event]:
        await self.get(id)
        for event in self._session_reader.thread_events(id, thread):
            yield event

    async def events(self, id: str, **options: Any) -> list[Event]:
        with self._session_reader.open_transcript(id) as reader:
            return reader.page(**options)

    async def conversation(self, id: str) -> AsyncIterator[Event]:
        with self._session_reader.open_transcript(id) as reader:
            for event in reader.conversation():
                yield event

    async def locate(self, id: str, event_id: str) -> int | None:
        with self._session_reader.open_transcript(id) as reader:
            return reader.find_seq(event_id)

    # Changes.

    async def change(self, id: str, info: InfoChanged) -> str:
        from .edit import edit

        await self.get(id)
        transcript = self._find_transcript(id)
        edit.apply_change(self.home, transcript, info)
        await self.update_index([transcript.path, *self._current_paths(id)])
        return id

    async def delete(self, id: str) -> None:
        import asyncio

        from .edit import edit

        await self.get(id)
        transcript = self._find_transcript(id)
        edit.delete_session(self.home, transcript)
        index = await self.update_index([transcript.path])
        await asyncio.to_thread(index.erase_removed_texts)

    async def fork(
        self, id: str, new_id: str, *, at: int | None, cwd: str | None, title: str | None
    ) -> Session:
        """Write a new transcript with the history of a session up to the event `at`."""
        from .edit import edit

        await self.get(id)
        with self._session_reader.open_transcript(id) as reader:
            up_to = None if at is None else edit.message_id_at(reader, at)
        path = edit.fork_session(self.home, self._find_transcript(id), new_id, up_to, cwd, title)
        await self.update_index([path])
        session = await self.get(new_id)
        assert session is not None  # it was written a moment ago
        return session

    def _find_transcript(self, id: str) -> TranscriptFile:
        row = self._ask(lambda index: index.find(id))
        if row is None:
            raise NotFound(f"no session {id}", session=id)
        from .format.paths import TranscriptFile

        path = row[0]
        native_id = discovery.session_of_path(path)[0]
        return TranscriptFile(native_id, path, ProjectDirectory(os.path.dirname(path)))

    def _current_paths(self, id: str) -> list[str]:
        """Return the paths where a session's transcript may be, including the trash."""
        trashed = [
            discovery.trashed_transcript(entry.path)
            for entry in safe_io.list_directory(self.home.trash)
        ]
        return [
            *self._project_paths(id),
            *(path for path in trashed if discovery.session_of_path(path)[0].lower() == id),
        ]

    def watch(self, listener: Callable[[str], None]) -> Callable[[], None]:
        from .index.watch import watch_source

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
        changed = set(self._ask(lambda index: index.changed_since(since)))
        changed |= {id for id, _ in self._notified_running.items() ^ self.info.running.items()}
        self._notified_running = self.info.running
        for id in changed:
            for listener in tuple(self._listeners):
                listener(id)
        return point


def _check_complete(index: Index) -> None:
    """Raise IndexDamaged if written rows are missing, as after its log was deleted."""
    if not index.is_complete():
        raise IndexDamaged("it lacks what was written to it")
