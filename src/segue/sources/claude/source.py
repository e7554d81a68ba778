"""Claude Code's sessions as a source: read in place, and changed as Claude Code expects.

What a list needs comes from the index; before each answer the files are looked at, and those that
changed are read, from where they ended. Histories are read from the transcripts themselves.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from segue.model.cursor import ChangePoint
from segue.model.errors import NotFound, StoreCorrupt
from segue.model.event import Event, InfoChanged
from segue.model.query import Position, Query
from segue.model.search_text import Term
from segue.model.session import Session, Thread
from segue.sources.base import Ability, agent_id
from segue.sources.index import query as finding
from segue.sources.index import ranking
from segue.sources.index.database import Damaged, Index
from segue.sources.index.query import Origin

from .format import processes, safe_io
from .format.paths import SOURCE, ClaudeHome, ProjectDirectory, list_projects
from .index import discovery
from .index.discovery import Differences

if TYPE_CHECKING:
    import asyncio

    from .events.session_reader import Histories
    from .format.paths import TranscriptFile

T = TypeVar("T")
_INLINE = 4 << 20  # bytes that are read at once; for more a server's other clients should not wait
_TRIES = 4  # to use an index that others may throw away
_TRUSTED = 1.0  # seconds for which what the system tells of the files is taken for all of it
_EVERYTHING: frozenset[Ability] = frozenset({"title", "tag", "archive", "trash", "delete", "fork"})


class ClaudeSource:
    """The sessions of one home. `progress` hears how far a long reading is."""

    name = SOURCE
    agent: Mapping[str, Any] | None = {
        "name": "Claude Code",
        "description": "The agent of the sessions that Claude Code keeps on this machine.",
        "model": "default",  # the one that Claude Code chooses
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
        self.can: frozenset[Ability] = _EVERYTHING if writable else frozenset()
        self.origin = Origin(self.name, agent_id(workspace, self.name), {})
        self._path = index
        self._opened: Index | None = None
        self._progress = progress
        self._reading: asyncio.Future[None] | None = None
        self._listeners: list[Callable[[str], None]] = []
        self._told: Mapping[str, int] = {}  # what those have heard of which run
        self._watching: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()  # the watching that is no more wanted
        self._overlay: Mapping[str, Mapping[str, Any]] = {}
        self.watched = False  # whether the system tells of what happens to the files
        self._looked_at = 0.0
        self._closing = False

    async def close(self) -> None:
        self._stop_watching()
        if self._ending:
            import asyncio

            await asyncio.wait(self._ending)
        self._closing = True
        await self._read_out()
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # The index, and keeping it true.

    @property
    def index(self) -> Index:
        if self._opened is not None and not self._opened.is_there():
            self._opened.close()
            self._opened = None
        if self._opened is None:
            self._opened = self._unless_damaged(
                lambda tries: Index.anew(self._path) if tries else Index(self._path)
            )
        return self._opened

    def _ask(self, question: Callable[[Index], T], index: Index | None = None) -> T:
        """An answer of the index, which is made anew if it turns out to be damaged."""
        asked = index or self.index

        def ask(tries: int) -> T:
            if tries:
                self._renew(asked)
            with asked.damage():
                return question(asked)

        return self._unless_damaged(ask)

    def _unless_damaged(self, work: Callable[[int], T]) -> T:
        """What work comes to, which is told how often it failed: somebody may be in the way."""
        for tries in range(_TRIES):
            try:
                return work(tries)
            except Damaged as error:
                wrong = error
        raise StoreCorrupt(f"the index {self._path} cannot be used: {wrong}") from wrong

    async def _answer(self, question: Callable[[Index], T]) -> T:
        """The same of one that has all files, even if somebody threw it away a moment ago."""
        index = self.index
        if not index.looked:
            index = await self._look_at_all()
        return self._ask(question, index)

    def _renew(self, index: Index) -> None:
        import logging

        log = logging.getLogger("segue.claude")
        log.info("the index of Claude Code's sessions is damaged and made anew: %s", self._path)
        index.renew()
        self._write(index, self._differences(index, None))
        index.looked = True

    async def refresh(self, cwd: str | None = None) -> None:
        """Look at all files, and read what changed.

        While the system tells of changes, which it does within moments, that is done now and then.
        """
        if self.watched and self.index.looked and monotonic() - self._looked_at < _TRUSTED:
            return
        await self._look_at_all()

    async def _look_at_all(self) -> Index:
        index = await self.look(None)
        index.looked = True
        self._looked_at = monotonic()
        return index

    async def look(self, paths: Sequence[str] | None) -> Index:
        """Look at some files, or at all; read what changed, and forget what is gone.

        Gives the index that knows them now: another one may have taken its place meanwhile.
        """
        self._look_around()
        await self._read_out()
        index = self.index
        differences = self._ask(lambda index: self._differences(index, paths), index)
        changed = differences.changed
        if sum(key.size for _, key in changed) <= _INLINE or not _in_loop():
            self._update(index, differences)
        else:
            import asyncio

            work = asyncio.to_thread(self._update, index, differences)
            # Shielded: one that asks may go away, and what is being read is wanted all the same.
            self._reading = asyncio.ensure_future(work)
            await asyncio.shield(self._reading)
        if changed and paths is None and not self._closing:
            self._ask(_see_whole, index)
        return index

    def _look_around(self) -> None:
        """See which sessions Claude Code works on."""
        self.origin = self.origin._replace(running=processes.busy_sessions(self.home))

    async def _read_out(self) -> None:
        """Wait for the end of a long reading; how it ended is told to whoever began it."""
        if self._reading is not None:
            import asyncio

            await asyncio.wait([self._reading])

    def _differences(self, index: Index, paths: Sequence[str] | None) -> Differences:
        if paths is None:
            return discovery.differences(index, self.home)
        return discovery.differences_of(index, paths)

    def _update(self, index: Index, differences: Differences) -> None:
        try:
            self._write(index, differences)
        except Damaged:
            self._unless_damaged(lambda _: self._renew(index))

    def _write(self, index: Index, differences: Differences) -> None:
        if differences.agreed:
            index.agree(differences.agreed, differences.change)
        if differences.changed or differences.gone:
            from .index.index_update import Updating

            updating = Updating(self.workspace, self._overlay, self._progress, self._is_closing)
            updating.update(index, differences)

    def _is_closing(self) -> bool:
        return self._closing

    # Lists.

    async def get(self, id: str) -> Session | None:
        self._look_around()
        found = self._ask(lambda index: index.find(id))
        if found is None or discovery.key_of(found[0]) != found[1]:
            await self.look([*([found[0]] if found else []), *self._places(id)])
            found = self._ask(lambda index: index.find(id))
        return found and self.origin.now(found[2])

    def _places(self, id: str) -> Iterator[str]:
        for project in list_projects(self.home):
            for name in {id, id.upper()}:
                if os.path.lexists(path := os.path.join(project.path, f"{name}.jsonl")):
                    yield path

    async def page(
        self, query: Query, after: Position | None = None, backward: bool = False
    ) -> list[Session]:
        return await self._answer(
            lambda index: finding.page(index, self.origin, query, after, backward)
        )

    async def in_id_range(self, low: str, high: str, limit: int) -> list[Session]:
        await self.refresh()
        return await self._answer(
            lambda index: finding.in_id_range(index, self.origin, low, high, limit)
        )

    async def change_point(self) -> ChangePoint:
        return await self._answer(lambda index: index.change_point())

    def noted(self) -> ChangePoint:
        """The same of what the index has by now: whatever is found later is news."""
        return self._ask(lambda index: index.change_point())

    async def sweep(self, query: Query, mark: ChangePoint, after: str) -> list[Session]:
        return await self._answer(
            lambda index: finding.sweep(index, self.origin, query, mark, after)
        )

    async def ranked(self, query: Query) -> list[tuple[Session, Event | None, float]]:
        await self.refresh()
        best = await self._answer(lambda index: ranking.ranked(index, self.origin, query))
        return [
            (hit.session, self._histories.event(hit.session, hit.spot), hit.score) for hit in best
        ]

    async def newest_matches(
        self, sessions: Sequence[Session], terms: Sequence[Term]
    ) -> list[Event | None]:
        ids = [session.id for session in sessions]
        spots = await self._answer(lambda index: finding.newest(index, ids, terms))
        return [
            None if spot is None else self._histories.event(session, spot)
            for session, spot in zip(sessions, spots, strict=True)
        ]

    async def occurrences(
        self, id: str, terms: Sequence[Term], before: int | None, limit: int
    ) -> list[int]:
        return await self._answer(
            lambda index: finding.occurrences(index, id, terms, before, limit)
        )

    async def overlay(self, patches: Mapping[str, Mapping[str, Any]]) -> None:
        self._overlay = {id: dict(patch) for id, patch in patches.items() if patch}
        if self._ask(lambda index: index.overlaid()) != self._overlay:
            with self.index.writing() as writing:
                writing.overlay(self._overlay)

    # Histories.

    @cached_property
    def _histories(self) -> Histories:
        from .events.session_reader import Histories  # which a list does without

        return Histories(self._ask)

    async def threads(self, id: str) -> list[Thread]:
        await self.get(id)
        return self._histories.threads(id)

    async def thread(self, id: str, thread: str) -> AsyncIterator[Event]:
        await self.get(id)
        for event in self._histories.thread(id, thread):
            yield event

    async def events(self, id: str, **options: Any) -> list[Event]:
        with self._histories.reader(id) as reader:
            return reader.page(**options)

    async def conversation(self, id: str) -> AsyncIterator[Event]:
        with self._histories.reader(id) as reader:
            for event in reader.conversation():
                yield event

    async def locate(self, id: str, event_id: str) -> int | None:
        with self._histories.reader(id) as reader:
            return reader.find(event_id)

    # Changes.

    async def change(self, id: str, info: InfoChanged) -> None:
        from .edit import edit

        await self.get(id)
        before = self._place(id)
        edit.apply_change(self.home, before, info)
        await self.look([before.path, *self._now(id)])

    async def delete(self, id: str) -> None:
        from .edit import edit

        await self.get(id)
        before = self._place(id)
        edit.delete_session(self.home, before)
        await self.look([before.path])

    async def fork(
        self, id: str, new_id: str, *, at: int | None, cwd: str | None, title: str | None
    ) -> Session:
        """A new transcript beside that of a session, with its history up to the event `at`."""
        from .edit import edit

        await self.get(id)
        with self._histories.reader(id) as reader:
            up_to = None if at is None else edit.message_id_at(reader, at)
        made = edit.fork_session(self.home, self._place(id), new_id, up_to, cwd, title)
        await self.look([made])
        session = await self.get(new_id)
        assert session is not None  # it was written a moment ago
        return session

    def _place(self, id: str) -> TranscriptFile:
        found = self._ask(lambda index: index.find(id))
        if found is None:
            raise NotFound(f"no session {id}", session=id)
        from .format.paths import TranscriptFile

        return TranscriptFile(
            discovery.named(found[0])[0], found[0], ProjectDirectory(os.path.dirname(found[0]))
        )

    def _now(self, id: str) -> list[str]:
        """Where a session's transcript may be now, in the trash or out of it."""
        rooms = [discovery.kept(room.path) for room in safe_io.list_directory(self.home.trash)]
        return [
            *self._places(id),
            *(room for room in rooms if discovery.named(room)[0].lower() == id),
        ]

    def watch(self, listener: Callable[[str], None]) -> Callable[[], None]:
        from .index.watch import watching

        self._listeners.append(listener)
        if self._watching is None:
            import asyncio

            self._watching = asyncio.get_running_loop().create_task(watching(self))

        def stop() -> None:
            self._listeners.remove(listener)
            if not self._listeners:
                self._stop_watching()

        return stop

    def _stop_watching(self) -> None:
        self.watched = False
        if self._watching is not None:
            self._watching.cancel()
            self._ending.add(self._watching)
            self._watching.add_done_callback(self._ending.discard)
            self._watching = None

    def tell(self, since: ChangePoint) -> ChangePoint:
        """Tell those who watch what changed since a moment; gives the next one."""
        now = self.noted()
        changed = set(self._ask(lambda index: index.changed(since)))
        changed |= {id for id, _ in self._told.items() ^ self.origin.running.items()}
        self._told = self.origin.running
        for id in changed:
            for listener in tuple(self._listeners):
                listener(id)
        return now


def _see_whole(index: Index) -> None:
    """Raise Damaged if what was written is not what is read: its log may have been thrown away."""
    if not index.is_whole():
        raise Damaged("it lacks what was written to it")


def _in_loop() -> bool:
    if "asyncio" not in sys.modules:  # to import it would cost more than most answers
        return False
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
