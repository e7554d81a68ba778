"""Update the index: parse changed transcripts and remove those that are gone."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from segue.model.errors import SegueError
from segue.sources import safe_io
from segue.sources.base import SourceProblem
from segue.sources.index.database import FileKey, Index, IndexedFile
from segue.sources.index.parse_workers import WorkerLost
from segue.sources.index.writer import MIN_DEFERRED_BYTES, IndexWriter, write_index

from . import discovery, index_entry
from .discovery import IndexDifferences

if TYPE_CHECKING:
    from segue.sources.index.parse_workers import ParsedFile, ParseWorkers

log = logging.getLogger("segue.claude")

Progress = Callable[[int, int], None]  # bytes read, and bytes in total

_MAX_HELD_BYTES = 16 << 20  # of a file whose texts are all held before they are written
_MIN_WORKER_BYTES = 64 << 20  # to read; starting workers for less costs more than they save
_BATCH_BYTES = 32 << 20  # of files that are committed together


class IndexUpdate:
    """Apply differences to the index of one workspace."""

    def __init__(
        self,
        workspace: str,
        overlay: Mapping[str, Mapping[str, Any]],
        progress: Progress | None,
        is_closing: Callable[[], bool],
    ) -> None:
        self._workspace = workspace
        self._overlay = overlay
        self._progress = progress
        self._is_closing = is_closing
        self.problems: list[SourceProblem] = []  # of sessions that the next update tries again
        self._workers: ParseWorkers | None = None

    def apply(self, index: Index, differences: IndexDifferences) -> None:
        """Apply all differences. Finished batches stay if the source is closed meanwhile."""
        remaining = differences.changed[::-1]
        done_bytes, total_bytes = 0, differences.size
        if total_bytes > _MIN_WORKER_BYTES and differences.all_new:
            self._start_workers(differences.changed)
        defer_search = total_bytes > MIN_DEFERRED_BYTES
        try:
            while True:
                with write_index(index, defer_search=defer_search) as writer:
                    batch_end = done_bytes + _BATCH_BYTES
                    while remaining and done_bytes < batch_end:
                        if self._is_closing():
                            return
                        path, key = remaining.pop()
                        self._update_file(writer, path, key)
                        done_bytes += key.size
                        if self._progress is not None:
                            self._progress(done_bytes, total_bytes)
                    if not remaining:
                        self._finish(writer, differences)
                        return
        finally:
            self._stop_workers()

    def _finish(self, writer: IndexWriter, differences: IndexDifferences) -> None:
        writer.set_overlay(self._overlay)
        # Last, so that a session whose file was moved is always in the index.
        for path in differences.removed:
            writer.remove(path)
        if differences.all_files:
            writer.mark_complete()

    def _start_workers(self, changed: Sequence[tuple[str, FileKey]]) -> None:
        from . import worker

        self._workers = worker.start(changed, self._workspace)

    def _stop_workers(self) -> None:
        if self._workers is not None:
            self._workers.close()
            self._workers = None

    def _update_file(self, writer: IndexWriter, path: str, key: FileKey) -> None:
        """Index a file, or what was appended to it."""
        try:
            if self._workers is not None and self._workers.has(path):
                self._put(writer, path, key, self._workers.read(path))
                return
        except WorkerLost:
            log.info("a worker process ended early; this process reads the remaining transcripts")
            self._stop_workers()
        try:
            with safe_io.open_for_reading(path) as (descriptor, status):
                indexed = writer.state(path)
                state = indexed[1] if indexed and indexed[0].inode == status.st_ino else None
                open_key = index_entry.current_key(status, key)
                parsed = index_entry.parse_file(descriptor, path, open_key, state, self._workspace)
                self._put(writer, path, key, parsed)
        except safe_io.UnreadableFile:
            writer.remove(path)
            if os.path.lexists(path):  # it is tried again by the next update
                self.problems.append(SourceProblem(path, "it cannot be opened"))
        except (OSError, sqlite3.Error, SegueError):
            raise
        except Exception as error:
            # A file that cannot be parsed hides only its own session, until the file changes.
            log.exception("skipping transcript %s, which cannot be parsed", path)
            empty = IndexedFile(key=key, state=b"", problem=f"it cannot be parsed: {error!r}")
            id = discovery.session_of_path(path)[0].lower()
            writer.put(path, id, [], lambda: empty, extends=False)

    def _put(self, writer: IndexWriter, path: str, key: FileKey, parsed: ParsedFile | None) -> None:
        if parsed is None:
            writer.remove(path)
            return
        texts = parsed.texts if key.size > _MAX_HELD_BYTES else list(parsed.texts)
        indexed = writer.state(path)
        # Unless another process was faster.
        if indexed is None or indexed[0] != key or parsed.extends:
            id = discovery.session_of_path(path)[0].lower()
            writer.put(path, id, texts, parsed.get_row, extends=parsed.extends)
