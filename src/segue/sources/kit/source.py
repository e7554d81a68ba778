"""A source over a tool's reader: lists and searches use the index, events come from the reader."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from segue.model.errors import Busy, NotFound, ReadOnly, StoreError
from segue.model.event import Event, InfoChanged
from segue.model.query import EventWindow, WindowOptions
from segue.model.session import Session, Thread
from segue.sources.base import Edit, Progress, SourceProblem, SourceReport, agent_id
from segue.sources.index.current_index import CurrentIndex
from segue.sources.index.database import Index
from segue.sources.index.lists import SourceLists
from segue.sources.index.query import SourceInfo, TextPosition

from . import indexing
from .indexing import Differences
from .reader import CREATED_SEQ, Reader, SessionRef
from .rows import ReadState, ThreadSeq, decode_state, session_id

if TYPE_CHECKING:
    from segue.sources.index.watch import SourceWatch

    from .history import Histories
    from .transcripts import KitTranscripts

T = TypeVar("T")
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
        self.current_index = CurrentIndex(
            index,
            SourceInfo(self.name, agent_id(workspace, self.name), {}),
            compare=self._compare,
            write=self._write,
            find_running=self._find_running,
            progress=progress,
        )
        self._watch: SourceWatch | None = None
        self._histories: Histories | None = None
        self._reported: list[SourceProblem] = []  # by the last comparison of all sessions
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
        self.make_searchable = self.current_index.make_searchable

    async def close(self) -> None:
        if self._watch is not None:
            await self._watch.close()
        await self.current_index.close()

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

    async def refresh(self, cwd: str | None = None) -> None:
        await self.current_index.refresh()

    def _compare(self, index: Index, keys: Sequence[str] | None) -> Differences:
        if keys is not None:
            return indexing.find_differences_of(index, self._current_refs(keys))
        status = self.reader.status()
        if indexing.is_unchanged(index, status):
            self._reported = []
            return Differences([], [])
        return indexing.find_differences(index, self._discover(), self._reported, status)

    def unindexed_bytes(self, *, searchable: bool) -> int:
        """Return the size of the sessions that were never indexed, or cannot be searched."""
        ask = self.current_index.ask
        if not ask(lambda index: index.is_complete()):
            return sum(ref.fingerprint.size for ref in self._discover())
        return ask(lambda index: index.unsearchable_bytes()) if searchable else 0

    def opener(self) -> Callable[[], KitSource]:
        """Return a function that opens the same source in another process. It can be pickled."""
        reader, current = self.reader, self.current_index
        return partial(
            _open_again, reader, current.path, self.label, self.workspace, current.overlay
        )

    def _discover(self) -> list[SessionRef]:
        """Return all sessions, and remember what could not be read.

        If the reader fails, the sessions at all its paths stay listed as they were.
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
            for path in self.session_paths():
                self._report(path, f"its sessions cannot be found: {error!r}")
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

    def _write(self, index: Index, differences: Differences) -> None:
        indexing.save_digests(index, differences)
        if differences.changed or differences.removed:
            current = self.current_index
            update = indexing.IndexUpdate(
                self.reader, self.workspace, current.overlay, current.progress, current.is_closing
            )
            update.apply(index, differences)
            self._transient = update.problems

    def _find_running(self) -> Mapping[str, int]:
        """Return since when the tool works on which sessions.

        They have an open turn and a live process.
        """
        running = {}
        now = time_ns()
        oldest = now - _OPEN_TURN_NS
        for key, id, open_since in self.current_index.ask(lambda index: index.open_turns(oldest)):
            ref = self._current_refs([key]).get(key)
            is_running = False if ref is None else self.reader.is_running(ref)
            if ref is not None and is_running is None:
                is_running = now - ref.fingerprint.mtime_ns < _RECENT_NS
            if is_running:
                running[id] = open_since
        return running

    def _read_state(self, key: str) -> ReadState:
        """Return what the index keeps of a session besides its row."""
        data = self.current_index.ask(lambda index: index.parser_state(key))
        return decode_state(data) if data else ReadState()

    def unreadable_sessions(self) -> int:
        indexed = self.current_index.ask(lambda index: index.problems())
        return len(self._reported) + len(self._transient) + len(indexed)

    async def examine(self) -> SourceReport:
        """Return where the tool's sessions are, how many are listed, and what cannot be read."""
        await self.refresh()
        indexed = await self.current_index.ask_current(indexing.problems_of)
        sessions = await self.current_index.ask_current(lambda index: index.shown_sessions())
        problems = [*self._reported, *self._transient, *indexed]
        return SourceReport(self.session_paths(), sessions, problems)

    def session_paths(self) -> Sequence[str]:
        """Return the directories and databases that the tool's sessions are in."""
        return self.reader.session_paths()

    # Lists.

    async def get(self, id: str) -> Session | None:
        row = self.current_index.ask(lambda index: index.find(id))
        if row is not None:
            await self.current_index.update([row[0]])
            row = self.current_index.ask(lambda index: index.find(id))
        if row is None:
            await self.current_index.compare_all()
            row = self.current_index.ask(lambda index: index.find(id))
        return row and self.current_index.info.with_status(row[2])

    # Events.

    @property
    def _history(self) -> Histories:
        if self._histories is None:
            from .history import Histories  # lists do not need it

            self._histories = Histories(self.reader)
        return self._histories

    def _find(self, id: str) -> tuple[str, Session]:
        """Return the key and the row of a session; raises NotFound."""
        row = self.current_index.ask(lambda index: index.find(id))
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

    async def events(self, id: str, **window: Unpack[WindowOptions]) -> list[Event]:
        from .history import select

        key, session = self._find(id)
        return select(session, self._history.load(id, key).events, EventWindow(**window))

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
        with readable(id, "changed"):
            result = await asyncio.to_thread(edit, self._ref(id))
        await self.current_index.compare_all()
        return result

    async def change(self, id: str, info: InfoChanged) -> str:
        """Write an edit; raises Busy for a session that is to be archived or deleted."""
        if info.archived is True or info.deleted is True:
            await self._require_idle(id)
        native_id = await self._edit(id, lambda ref: self.reader.change(ref, info))
        return id if native_id is None else (await self._by_native_id(native_id)).id

    async def _require_idle(self, id: str) -> None:
        await self.get(id)
        if id in self.current_index.info.running:
            raise Busy(
                f"{self.label} works on session {id}; try again when it has finished", session=id
            )

    async def with_native_id(self, native_id: str) -> Session | None:
        from .history import readable

        with readable(native_id):
            ref = self.reader.find(native_id)
        return None if ref is None else await self.get(session_id(self.name, ref))

    async def _by_native_id(self, native_id: str) -> Session:
        """Return a session that was written a moment ago."""
        session = await self.with_native_id(native_id)
        if session is None:
            raise StoreError(f"{self.label} has written session {native_id}, but does not list it")
        return session

    async def delete(self, id: str) -> None:
        import asyncio

        await self._require_idle(id)
        await self._edit(id, self.reader.delete)
        await asyncio.to_thread(self.current_index.index.erase_removed_texts)

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
        if self._watch is None:
            from segue.sources.index.watch import SourceWatch

            from .watch import ToolFiles

            files = ToolFiles(self.reader, self.label, self._is_session)
            self._watch = SourceWatch(self.current_index, files)
        return self._watch.add(listener)

    def _is_session(self, path: str) -> bool:
        """Return whether a path is the main file of an indexed session, and thus its key."""
        return self.current_index.ask(lambda index: index.key(path)) is not None


def _open_again(
    reader: Reader,
    index: Path,
    label: str,
    workspace: str,
    overlay: Mapping[str, Mapping[str, Any]],
) -> KitSource:
    source = KitSource(reader, index, label, workspace=workspace)
    source.current_index.overlay = overlay
    return source


def index_path(index_dir: Path, reader: Reader) -> Path:
    """Return the path of a reader's index, and delete its indexes in older formats.

    Each home has an index of its own, and so does each format: an older segue that still runs
    would replace an index in a newer format.
    """
    from contextlib import suppress
    from hashlib import blake2b

    from segue.sources.index.database import FORMAT

    paths = "\0".join(reader.session_paths())
    digest = blake2b(os.fsencode(paths), digest_size=4).hexdigest()
    path = index_dir / f"{reader.name}-{digest}-{FORMAT}.{reader.version}.index"
    if not path.exists():
        for old_index in path.parent.glob(f"{reader.name}-{digest}*"):
            if not old_index.name.startswith(path.name):
                with suppress(OSError):
                    old_index.unlink()
    return path
