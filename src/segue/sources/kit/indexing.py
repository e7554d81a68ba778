"""Keep a source's index current: compare what the tool has with it, and read what changed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from segue.model.errors import SegueError
from segue.sources import safe_io
from segue.sources.base import Progress, SourceProblem
from segue.sources.index.database import Index, IndexedFile
from segue.sources.index.parse_workers import ParsedFile, ParseWorkers, WorkerLost
from segue.sources.index.writer import MIN_DEFERRED_BYTES, IndexWriter, write_index

from . import database
from .reader import Reader, Rewritten, SessionRef, Unreadable
from .rows import ReadState, decode_state, parse_session, session_id

if TYPE_CHECKING:
    import logging

_ALL = "*"  # the name under which the digest of all sessions is saved
_STATUS = "?"  # the name under which the digest of the reader's status is saved
_MAX_HELD_BYTES = 16 << 20  # of a session whose texts are all held before they are written
_MIN_WORKER_BYTES = 64 << 20  # to read; starting workers for less costs more than they save
_BATCH_BYTES = 32 << 20  # of sessions that are committed together
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


class Differences(NamedTuple):
    """The sessions that changed, newest first, and the keys of those that are gone."""

    changed: list[SessionRef]
    removed: list[str]
    all_new: bool = False  # whether the index has none of the changed sessions
    all_sessions: bool = False  # whether every session was compared
    digests: Mapping[str, bytes] = {}  # to save if nothing differs
    change: int = 0  # the number of the index's change that was compared

    @property
    def size(self) -> int:
        """The bytes or rows to read."""
        return sum(ref.fingerprint.size for ref in self.changed)


def is_unchanged(index: Index, status: object) -> bool:
    """Return whether the index has every session as it was when the reader had this status."""
    if status is None:
        return False
    return index.directory_digest(_STATUS) == _digest(index.change(), status)


def find_differences(
    index: Index,
    refs: Sequence[SessionRef],
    problems: Sequence[SourceProblem],
    status: object = None,
) -> Differences:
    """Compare all sessions with the index. If nothing changed, no row is read.

    Sessions below a path with a problem are not removed. `status` is the reader's from before the
    sessions were found.
    """
    change = index.change()
    digests = {_ALL: _digest(change, [(ref.key, *ref.fingerprint) for ref in refs], [*problems])}
    if status is not None and not problems:
        digests[_STATUS] = _digest(change, status)
    if index.directory_digest(_ALL) == digests[_ALL]:
        is_saved = index.directory_digest(_STATUS) == digests.get(_STATUS)
        return Differences([], [], digests={} if is_saved else digests, change=change)
    indexed = index.all_keys()
    changed = [ref for ref in refs if indexed.get(ref.key) != ref.fingerprint]
    missing = indexed.keys() - {ref.key for ref in refs}
    kept = tuple(problem.path for problem in problems)
    removed = [key for key in missing if not (kept and key.startswith(kept))]
    all_new = not any(ref.key in indexed for ref in changed)
    is_same = not changed and not removed
    changed.sort(key=_newest_first)
    return Differences(changed, removed, all_new, True, digests if is_same else {}, change)


def _digest(*values: object) -> bytes:
    return blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def find_differences_of(index: Index, refs: Mapping[str, SessionRef | None]) -> Differences:
    """Compare some sessions with the index; a session that is gone is None."""
    changed, removed = [], []
    for key, ref in refs.items():
        indexed = index.key(key)
        if ref is not None and ref.fingerprint != indexed:
            changed.append(ref)
        elif ref is None and indexed is not None:
            removed.append(key)
    changed.sort(key=_newest_first)
    return Differences(changed, removed)


def _newest_first(ref: SessionRef) -> int:
    return -ref.fingerprint.mtime_ns


def save_digests(index: Index, differences: Differences) -> None:
    """Remember that the index has every session as it is."""
    if differences.digests:
        index.save_digests(differences.digests, differences.change)


def problems_of(index: Index) -> list[SourceProblem]:
    """Return what could not be read of the indexed sessions."""
    problems = [SourceProblem(*problem) for problem in index.problems()]
    for key, data in index.parser_states():
        state = decode_state(data) if data else ReadState()
        problems += [SourceProblem(key, reason) for reason in state.problems]
    return problems


class IndexUpdate:
    """Apply differences to the index of one workspace."""

    def __init__(
        self,
        reader: Reader,
        workspace: str,
        overlay: Mapping[str, Mapping[str, Any]],
        progress: Progress | None,
        is_closing: Callable[[], bool],
    ) -> None:
        self._reader = reader
        self._workspace = workspace
        self._overlay = overlay
        self._progress = progress
        self._is_closing = is_closing
        self.problems: list[SourceProblem] = []  # of sessions that the next update tries again
        self._locked: set[str] = set()  # databases that were locked
        self._workers: ParseWorkers | None = None

    def apply(self, index: Index, differences: Differences) -> None:
        """Apply all differences. Finished batches stay if the source is closed meanwhile."""
        if differences.size > _MIN_WORKER_BYTES and differences.all_new:
            from . import worker

            self._workers = worker.start(self._reader, differences.changed, self._workspace)
        try:
            with database.keep_open():
                self._apply(index, differences)
        finally:
            self._stop_workers()

    def _stop_workers(self) -> None:
        if self._workers is not None:
            self._workers.close()
            self._workers = None

    def _apply(self, index: Index, differences: Differences) -> None:
        remaining = differences.changed[::-1]
        done_bytes, total_bytes = 0, differences.size
        defer_search = total_bytes > MIN_DEFERRED_BYTES
        while True:
            with write_index(index, defer_search=defer_search) as writer:
                batch_end = done_bytes + _BATCH_BYTES
                while remaining and done_bytes < batch_end:
                    if self._is_closing():
                        return
                    ref = remaining.pop()
                    self._update_session(writer, ref)
                    done_bytes += ref.fingerprint.size
                    if self._progress is not None:
                        self._progress(done_bytes, total_bytes)
                if not remaining:
                    writer.set_overlay(self._overlay)
                    # Last, so that a session whose file was moved is always in the index.
                    for key in differences.removed:
                        writer.remove(key)
                    if differences.all_sessions:
                        writer.mark_complete()
                    return

    def _update_session(self, writer: IndexWriter, ref: SessionRef) -> None:
        """Index a session, or what was added to it."""
        if self._put_from_worker(writer, ref):
            return
        path = ref.key.partition("#")[0]
        if path in self._locked:
            return
        try:
            indexed = writer.state(ref.key)
            if indexed is not None and indexed[0] == ref.fingerprint:
                return  # another process was faster
            state = _usable_state(indexed[1]) if indexed else None
            try:
                self._put(writer, ref, state)
            except Rewritten:
                self._put(writer, ref, None)
        except (safe_io.UnreadableFile, FileNotFoundError):
            writer.remove(ref.key)
            if os.path.lexists(ref.key):  # it is tried again by the next update
                self.problems.append(SourceProblem(ref.key, "it cannot be opened"))
        except Unreadable as error:
            self._put_problem(writer, ref, str(error))
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _BUSY:
                self._locked.add(path)
                self.problems.append(SourceProblem(path, "another program has locked it"))
            else:
                self._put_problem(writer, ref, str(error))
        except (MemoryError, SegueError):
            raise
        except OSError as error:  # of the machine, not of the file; it is tried again
            self.problems.append(SourceProblem(ref.key, error.strerror or str(error)))
        except Exception as error:
            # A session that cannot be parsed hides only itself, until it changes.
            _log().exception("skipping %s, which cannot be parsed", ref.key)
            self._put_problem(writer, ref, f"it cannot be parsed: {error!r}")

    def _put_from_worker(self, writer: IndexWriter, ref: SessionRef) -> bool:
        """Index a session that a worker has read; return False if none could."""
        if self._workers is None or not self._workers.has(ref.key):
            return False
        try:
            parsed = self._workers.read(ref.key)
            if parsed is not None:
                self._put_parsed(writer, ref, parsed)
            return parsed is not None
        except safe_io.UnreadableFile:
            return False
        except WorkerLost:
            _log().info("a worker process ended early; this process reads the remaining sessions")
            self._stop_workers()
            return False

    def _put(self, writer: IndexWriter, ref: SessionRef, state: ReadState | None) -> None:
        parsed = parse_session(self._reader, ref, self._workspace, state)
        self._put_parsed(writer, ref, parsed)

    def _put_parsed(self, writer: IndexWriter, ref: SessionRef, parsed: ParsedFile) -> None:
        is_long = ref.fingerprint.size > _MAX_HELD_BYTES
        writer.put(
            ref.key,
            session_id(self._reader.name, ref),
            parsed.texts if is_long else list(parsed.texts),
            parsed.get_row,
            extends=parsed.extends,
        )

    def _put_problem(self, writer: IndexWriter, ref: SessionRef, reason: str) -> None:
        row = IndexedFile(key=ref.fingerprint, state=b"", problem=reason)
        id = session_id(self._reader.name, ref)
        writer.put(ref.key, id, [], lambda: row, extends=False)


def _usable_state(data: bytes) -> ReadState | None:
    return decode_state(data) if data else None


def _log() -> logging.Logger:
    import logging  # a list does not need it

    return logging.getLogger("segue.sources")
