"""Bringing the index to where the files are: what changed is read, and what is gone forgotten."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from segue.model.errors import SegueError
from segue.sources.claude.format import safe_io
from segue.sources.index.database import Index, Item, Key
from segue.sources.index.writer import Writing

from . import discovery, index_entry
from .discovery import Differences

if TYPE_CHECKING:
    from .parse_workers import Helpers

log = logging.getLogger("segue.claude")

Progress = Callable[[int, int], None]  # bytes read, of so many

_HELD = 16 << 20  # the text of a file up to this size is held before it is written
_MUCH = 20 << 20  # bytes that are worth processes of their own
_BATCH = 32 << 20  # bytes that become visible together while much is read


class Updating:
    """How to do it: for which workspace, under which overlay, told to whom, and until when."""

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
        self._helpers: Helpers | None = None

    def update(self, index: Index, differences: Differences) -> None:
        """Do it. When it is broken off, what is done is kept."""
        rest = differences.changed[::-1]
        done, total = 0, sum(key.size for _, key in rest)
        if total > _MUCH and differences.new:
            self._begin_helpers(differences.changed)
        try:
            while True:
                with index.writing() as writing:
                    end = done + _BATCH
                    while rest and done < end:
                        if self._is_closing():
                            return
                        path, key = rest.pop()
                        self._take(writing, path, key)
                        done += key.size
                        if self._progress is not None:
                            self._progress(done, total)
                    if not rest:
                        writing.overlay(self._overlay)
                        # Last, so that a session that moved is never not there.
                        for path in differences.gone:
                            writing.remove(path)
                        if differences.all:
                            writing.complete()
                        return
        finally:
            self._end_helpers()

    def _begin_helpers(self, changed: Sequence[tuple[str, Key]]) -> None:
        from .parse_workers import helpers_for

        self._helpers = helpers_for(changed, self._workspace)

    def _end_helpers(self) -> None:
        if self._helpers is not None:
            self._helpers.close()
            self._helpers = None

    def _take(self, writing: Writing, path: str, key: Key) -> None:
        """Take one file in, or what was added to it."""
        try:
            if self._helpers is not None and self._helpers.has(path):
                self._put(writing, path, key, self._helpers.take(path))
                return
        except index_entry.Lost:
            log.info("a process that read transcripts went away; the rest is read by this one")
            self._end_helpers()
        try:
            with safe_io.open_for_reading(path) as (descriptor, status):
                known = writing.state(path)
                state = known[1] if known and known[0].inode == status.st_ino else None
                now = index_entry.key_of(status, key)
                taken = index_entry.take(descriptor, path, now, state, self._workspace)
                self._put(writing, path, key, taken)
        except safe_io.UnreadableFile:
            writing.remove(path)
        except (OSError, sqlite3.Error, SegueError):
            raise
        except Exception:
            # Whatever somebody wrote there, it hides no session but its own; until it changes.
            log.exception("%s cannot be understood, and is left out", path)
            nothing = Item(key=key, state=b"")
            writing.put(path, discovery.named(path)[0].lower(), [], lambda: nothing, more=False)

    def _put(self, writing: Writing, path: str, key: Key, taken: index_entry.Taken | None) -> None:
        if taken is None:
            writing.remove(path)
            return
        texts = taken.texts if key.size > _HELD else list(taken.texts)
        known = writing.state(path)
        if known is None or known[0] != key or taken.more:  # or another process was quicker
            id = discovery.named(path)[0].lower()
            writing.put(path, id, texts, taken.made, more=taken.more)
