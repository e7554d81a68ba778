"""Helper processes that index whole sources, when several are indexed for the first time.

Each source has an index of its own, so several processes write at the same time. Each helper takes
one source after the other from the beginning of a queue, and this process from its end. A source
that a helper did not finish is indexed by this process.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from segue.event_loop import run_in_thread, run_without_loop

if TYPE_CHECKING:
    import subprocess
    import threading

MIN_BYTES = 16 << 20  # of all new sessions; starting a helper for less costs more than it saves
MAX_HELPERS = 3
_DONE = b"."


class HelperSource(Protocol):
    """A source that a helper has opened."""

    async def refresh(self) -> None: ...
    async def make_searchable(self) -> None: ...
    async def close(self) -> None: ...


@runtime_checkable
class SupportsHelpers(Protocol):
    """A source that another process can index."""

    def unindexed_bytes(self, *, searchable: bool) -> int:
        """Return the size of the sessions that were never indexed, or cannot be searched."""
        ...

    def opener(self) -> Callable[[], HelperSource]:
        """Return a function that opens the same source in another process. It can be pickled."""
        ...

    async def refresh(self, cwd: str | None = None) -> None: ...
    async def make_searchable(self) -> None: ...


class _Job(NamedTuple):
    """What a helper gets: how to open a source, and what to do."""

    opener: Callable[[], HelperSource]
    searchable: bool


async def index_new_sources(sources: Sequence[object], *, searchable: bool) -> None:
    """Index all sources that never were, with helpers if that is much work.

    Sources that cannot be indexed elsewhere are left to their own `refresh`.
    """
    max_helpers = min(MAX_HELPERS, (os.cpu_count() or 1) - 1)
    if max_helpers < 1 or not sys.executable:
        return
    sizes: list[tuple[int, SupportsHelpers]] = []
    for source in sources:
        if isinstance(source, SupportsHelpers):
            size = source.unindexed_bytes(searchable=searchable)
            if size:
                sizes.append((size, source))
    helper_count = min(max_helpers, len(sizes) - 1)
    if helper_count < 1 or sum(size for size, _ in sizes) < MIN_BYTES:
        return
    # The largest at the beginning: the last one to be finished is then a small one.
    sizes.sort(key=lambda item: -item[0])
    queue = deque(source for _, source in sizes)
    helpers = [_Helper(queue, searchable=searchable) for _ in range(helper_count)]
    try:
        while queue:
            source = queue.pop()
            await source.refresh()
            if searchable:
                await source.make_searchable()
        for helper in helpers:
            await run_in_thread(helper.wait)
    finally:
        for helper in helpers:
            helper.close()


class _Helper:
    """A process, and the thread that gives it sources."""

    def __init__(self, queue: deque[SupportsHelpers], *, searchable: bool) -> None:
        import threading  # a list does not need it

        self._queue = queue
        self._first = queue.popleft()  # the process that is free first takes the next
        self._searchable = searchable
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def _feed(self) -> None:
        import pickle
        import subprocess

        with suppress(OSError):  # no process can be started, or it ended early
            self._process = subprocess.Popen(
                # Without -P, a package of this name in the current directory would run instead.
                [sys.executable, "-P", "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            requests, answers = self._process.stdin, self._process.stdout
            assert requests is not None and answers is not None
            source = self._first
            while True:
                data = pickle.dumps(_Job(source.opener(), self._searchable))
                requests.write(len(data).to_bytes(4) + data)
                requests.flush()
                if answers.read(1) != _DONE:
                    break
                try:
                    source = self._queue.popleft()
                except IndexError:  # this process has taken the last one
                    break

    def wait(self) -> None:
        """Wait until the process has finished its last source."""
        self._thread.join()

    def close(self) -> None:
        """Kill the process, which ends the thread too."""
        self._queue.clear()
        if self._process is not None:
            self._process.kill()
        self._thread.join()
        if self._process is not None:
            self._process.communicate()


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Run a helper: index the sources that arrive, one after the other."""
    import pickle

    while size := int.from_bytes(requests.read(4)):
        job: _Job = pickle.loads(requests.read(size))
        source = job.opener()
        run_without_loop(source.refresh())
        if job.searchable:
            run_without_loop(source.make_searchable())
        run_without_loop(source.close())
        answers.write(_DONE)
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
