"""The source of Claude Code's sessions, which are read and edited in place.

Lists and searches use the index. Before each answer the files are compared with it, and what was
appended is parsed. Events are read from the transcripts themselves.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from segue.model.errors import NotFound
from segue.model.event import Event, InfoChanged
from segue.model.query import WindowOptions
from segue.model.session import Session, Thread
from segue.sources import safe_io
from segue.sources.base import Edit, SourceProblem, SourceReport, agent_id
from segue.sources.index.current_index import CurrentIndex
from segue.sources.index.database import Index
from segue.sources.index.lists import SourceLists
from segue.sources.index.query import SourceInfo, TextPosition

from .format import processes
from .format.paths import SOURCE, ClaudeHome, ProjectDirectory, list_projects
from .index import discovery
from .index.discovery import IndexDifferences

if TYPE_CHECKING:
    from segue.sources.base import Transcripts
    from segue.sources.index.watch import SourceWatch

    from .events.session_reader import SessionReader
    from .format.paths import TranscriptFile

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
        self.current_index = CurrentIndex(
            index,
            SourceInfo(self.name, agent_id(workspace, self.name), {}),
            compare=self._compare,
            write=self._write,
            find_running=lambda: processes.busy_sessions(self.home),
            progress=progress,
        )
        self._watch: SourceWatch | None = None
        self._transient: list[SourceProblem] = []  # of sessions that are not in the index
        # The index answers what the port asks of lists and searches.
        lists = SourceLists(self.current_index, self._event_at)
        self.page = lists.page
        self.in_id_range = lists.in_id_range
        self.change_point = lists.change_point
        self.sweep = lists.sweep
        self.ranked = lists.ranked
        self.known_words = lists.known_words
        self.newest_matches = lists.newest_matches
        self.occurrences = lists.occurrences
        self.apply_overlay = self.current_index.apply_overlay

    async def close(self) -> None:
        if self._watch is not None:
            await self._watch.close()
        await self.current_index.close()

    @property
    def transcripts(self) -> Transcripts:
        """The transcripts of this home."""
        from .exchange.transcripts import ClaudeTranscripts

        return ClaudeTranscripts(self.home)

    # The index.

    async def refresh(self, cwd: str | None = None) -> None:
        await self.current_index.refresh()

    def _compare(self, index: Index, paths: Sequence[str] | None) -> IndexDifferences:
        if paths is None:
            return discovery.find_differences(index, self.home)
        return discovery.find_differences_of(index, paths)

    def _write(self, index: Index, differences: IndexDifferences) -> None:
        if differences.unchanged:
            index.save_digests(differences.unchanged, differences.change)
        if differences.changed or differences.removed:
            from .index.index_update import IndexUpdate

            current = self.current_index
            update = IndexUpdate(
                self.workspace, current.overlay, current.progress, current.is_closing
            )
            update.apply(index, differences)
            self._transient = update.problems

    # Lists.

    async def get(self, id: str) -> Session | None:
        self.current_index.update_running()
        row = self.current_index.ask(lambda index: index.find(id))
        if row is None or discovery.file_key(row[0]) != row[1]:
            await self.current_index.update([*([row[0]] if row else []), *self._project_paths(id)])
            row = self.current_index.ask(lambda index: index.find(id))
        return row and self.current_index.info.with_status(row[2])

    def _project_paths(self, id: str) -> Iterator[str]:
        """Return the paths of a session's transcripts in all projects."""
        for project in list_projects(self.home):
            for name in {id, id.upper()}:
                if os.path.lexists(path := os.path.join(project.path, f"{name}.jsonl")):
                    yield path

    async def examine(self) -> SourceReport:
        """Return where the transcripts are, how many are listed, and what cannot be read."""
        await self.refresh()
        sessions = await self.current_index.ask_current(lambda index: index.shown_sessions())
        indexed = await self.current_index.ask_current(lambda index: index.problems())
        problems = [*self._transient, *(SourceProblem(*problem) for problem in indexed)]
        return SourceReport([self.home.projects], sessions, problems)

    def unreadable_sessions(self) -> int:
        indexed = self.current_index.ask(lambda index: index.problems())
        return len(self._transient) + len(indexed)

    # Events.

    @cached_property
    def _session_reader(self) -> SessionReader:
        from .events.session_reader import SessionReader  # lists do not need it

        return SessionReader(self.current_index.ask)

    def _event_at(self, session: Session, position: TextPosition) -> Event | None:
        return self._session_reader.read_event(session, position)

    async def threads(self, id: str) -> list[Thread]:
        await self.get(id)
        return self._session_reader.threads(id)

    async def thread(self, id: str, thread: str) -> AsyncIterator[Event]:
        await self.get(id)
        for event in self._session_reader.thread_events(id, thread):
            yield event

    async def events(self, id: str, **window: Unpack[WindowOptions]) -> list[Event]:
        with self._session_reader.open_transcript(id) as reader:
            return reader.page(**window)

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
        await self.current_index.update([transcript.path, *self._current_paths(id)])
        return id

    async def delete(self, id: str) -> None:
        import asyncio

        from .edit import edit

        await self.get(id)
        transcript = self._find_transcript(id)
        edit.delete_session(self.home, transcript)
        index = await self.current_index.update([transcript.path])
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
        await self.current_index.update([path])
        session = await self.get(new_id)
        assert session is not None  # it was written a moment ago
        return session

    def _find_transcript(self, id: str) -> TranscriptFile:
        row = self.current_index.ask(lambda index: index.find(id))
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
        if self._watch is None:
            from segue.sources.index.watch import SourceWatch

            from .index.watch import ClaudeFiles

            self._watch = SourceWatch(self.current_index, ClaudeFiles(self.home))
        return self._watch.add(listener)
