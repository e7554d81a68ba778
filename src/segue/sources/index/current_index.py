"""The index of a source's sessions, kept current: compared with the tool's files, and updated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from segue.event_loop import is_loop_running
from segue.model.cursor import ChangePoint

from .database import Index, IndexDamaged
from .open_index import OpenIndex
from .query import SourceInfo

if TYPE_CHECKING:
    import asyncio

    from segue.sources.base import Progress

T = TypeVar("T")
_MAX_INLINE_BYTES = 4 << 20  # parsed in the event loop; more would delay other clients
_WATCH_TRUST_SECONDS = 1.0  # for which the system's notifications replace a full comparison


class Differences(Protocol):
    """The sessions that differ from the index."""

    @property
    def changed(self) -> Sequence[object]: ...
    @property
    def size(self) -> int:
        """The bytes or rows to read."""


D = TypeVar("D", bound=Differences)


class CurrentIndex(Generic[D]):
    """An index that is compared with a tool's sessions before it answers.

    `compare` finds the differences of some sessions, given by key, or of all; `write` writes them
    to the index; `find_running` returns since when which sessions run. `progress` is called during
    a long update, with the bytes read and the bytes in total.
    """

    def __init__(
        self,
        path: Path,
        info: SourceInfo,
        *,
        compare: Callable[[Index, Sequence[str] | None], D],
        write: Callable[[Index, D], None],
        find_running: Callable[[], Mapping[str, int]],
        progress: Progress | None = None,
    ) -> None:
        self.info = info
        self.progress = progress
        self.overlay: Mapping[str, Mapping[str, Any]] = {}
        self.watched = False  # whether the system notifies of changes
        self._compare = compare
        self._write = write
        self._find_running = find_running
        self._open_index = OpenIndex(path, self._build)
        self._running_update: asyncio.Future[None] | None = None
        self._compared_at = 0.0
        self._closing = False

    async def close(self) -> None:
        self._closing = True
        await self._wait_for_update()
        self._open_index.close()

    def is_closing(self) -> bool:
        return self._closing

    # Questions.

    @property
    def path(self) -> Path:
        """The file of the index, or of a temporary copy of a read-only one."""
        return self._open_index.path

    @property
    def index(self) -> Index:
        """The open index; another process may have replaced its file."""
        return self._open_index.index

    def ask(self, question: Callable[[Index], T], index: Index | None = None) -> T:
        """Return the answer of the index as it is; a damaged index is built again."""
        return self._open_index.ask(question, index)

    async def ask_current(self, question: Callable[[Index], T]) -> T:
        """Return the answer of an index with all sessions, even if it was deleted a moment ago."""
        index = self.index
        if not index.is_compared:
            index = await self.compare_all()
        return self.ask(question, index)

    async def ask_searchable(self, question: Callable[[Index], T]) -> T:
        """Return the answer of an index with all sessions in which every text can be searched."""
        if not self.index.is_compared:
            await self.compare_all()
        await self.make_searchable()
        return await self.ask_current(question)

    def current_change_point(self) -> ChangePoint:
        """Return the change point of the index as it is, without comparing sessions."""
        return self.ask(lambda index: index.change_point())

    # Updates.

    async def refresh(self) -> None:
        """Compare all sessions with the index, and update it.

        While the system notifies of changes, which takes it moments, that is done now and then.
        """
        is_recent = monotonic() - self._compared_at < _WATCH_TRUST_SECONDS
        if not (self.watched and self.index.is_compared and is_recent):
            await self.compare_all()

    async def compare_all(self) -> Index:
        """Compare all sessions with the index, update it and return it."""
        index = await self.update(None)
        index.is_compared = True
        self._compared_at = monotonic()
        return index

    async def update(self, keys: Sequence[str] | None) -> Index:
        """Compare some sessions with the index, or all, and update it.

        Return the index that is current: another one may have replaced it meanwhile.
        """
        await self._wait_for_update()
        index = self.index
        differences = self.ask(lambda index: self._compare(index, keys), index)
        await self._run_update(lambda: self.apply(index, differences), differences.size)
        if differences.changed and keys is None and not self._closing:
            self.ask(_check_complete, index)
        self.update_running()
        return index

    def update_running(self) -> None:
        """Update which sessions the tool works on."""
        self.info = self.info._replace(running=self._find_running())

    def apply(self, index: Index, differences: D) -> None:
        """Write differences to the index; a damaged index is built again."""
        try:
            self._write(index, differences)
        except IndexDamaged:
            self._open_index.retry_damaged(lambda _: self._open_index.rebuild(index))

    def _build(self, index: Index) -> None:
        """Fill an empty index. The question that found it damaged may be a search."""
        from .full_text import make_searchable

        differences = self._compare(index, None)
        self._write(index, differences)
        make_searchable(index, differences.size, self.progress, self.is_closing)

    async def make_searchable(self) -> None:
        """Put the texts that the first update has deferred into the full-text index."""
        await self._wait_for_update()
        index = self.index
        size = self.ask(lambda index: index.unsearchable_bytes(), index)
        if not size:
            return
        from . import full_text  # lists do not need it

        def work() -> None:
            self._open_index.write(
                lambda index: full_text.make_searchable(index, size, self.progress, self.is_closing)
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

    async def _wait_for_update(self) -> None:
        """Wait for the end of a running update; its own caller receives its error."""
        if self._running_update is not None:
            import asyncio

            await asyncio.wait([self._running_update])

    async def apply_overlay(self, patches: Mapping[str, Mapping[str, Any]]) -> None:
        """Show sessions with the user's changes that the tool's files cannot hold."""
        self.overlay = {id: dict(patch) for id, patch in patches.items() if patch}
        if self.ask(lambda index: index.overlay()) != self.overlay:
            from .writer import write_index

            with write_index(self.index) as writer:
                writer.set_overlay(self.overlay)


def _check_complete(index: Index) -> None:
    """Raise IndexDamaged if written rows are missing, as after its log was deleted."""
    if not index.is_complete():
        raise IndexDamaged("it lacks what was written to it")
