"""An index that is opened on first use, and built again if it is damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from segue.model.errors import StoreCorrupt, StoreReadOnly

from .database import Index, IndexDamaged

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

T = TypeVar("T")
_MAX_TRIES = 4  # to use an index that other processes may delete


class OpenIndex:
    """The index of a source. Another process may replace or delete its file at any time."""

    def __init__(self, path: Path, build: Callable[[Index], None]) -> None:
        """Create it; `build` fills an empty index."""
        self.path = path
        self._build = build
        self._index: Index | None = None
        self._temporary: TemporaryDirectory[str] | None = None  # with a copy of the index

    def close(self) -> None:
        self._close_index()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _close_index(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None

    @property
    def index(self) -> Index:
        """The open index; another process may have replaced its file."""
        if self._index is not None and not self._index.exists():
            self._close_index()
        if self._index is None:
            self._index = self.retry_damaged(
                lambda failures: Index.replace(self.path) if failures else Index(self.path)
            )
        return self._index

    def write(self, work: Callable[[Index], None]) -> None:
        """Do work that writes to the index: to a temporary copy if the index is read-only."""
        try:
            self.ask(work)
        except StoreReadOnly:
            if self._temporary is not None:
                raise
            self._use_copy()
            self.ask(work)

    def _use_copy(self) -> None:
        """Continue with a copy of the index, until it is closed."""
        import logging  # a list needs neither
        import tempfile

        logging.getLogger("segue.sources").info("%s is read-only; using a copy", self.path)
        index = self.index
        self._temporary = tempfile.TemporaryDirectory(prefix="segue-")
        copy = Path(self._temporary.name) / self.path.name
        index.copy_to(copy)
        is_compared = index.is_compared
        self._close_index()
        self.path = copy
        self.index.is_compared = is_compared

    def ask(self, question: Callable[[Index], T], index: Index | None = None) -> T:
        """Return the answer of a question; a damaged index is built again."""
        queried_index = index or self.index

        def ask(failures: int) -> T:
            if failures:
                self.rebuild(queried_index)
            with queried_index.translate_errors():
                return question(queried_index)

        return self.retry_damaged(ask)

    def retry_damaged(self, work: Callable[[int], T]) -> T:
        """Call `work` with the number of failures, as other processes may interfere."""
        for failures in range(_MAX_TRIES):
            try:
                return work(failures)
            except IndexDamaged as error:
                cause = error
        raise StoreCorrupt(f"the index {self.path} cannot be used: {cause}") from cause

    def rebuild(self, index: Index) -> None:
        """Delete the content of a damaged index and build it again."""
        import logging  # a list does not need it

        logging.getLogger("segue.sources").info("rebuilding the damaged index %s", self.path)
        index.reset()
        self._build(index)
        index.is_compared = True
