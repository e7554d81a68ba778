"""The trash for sessions that a tool keeps in files.

A session's files and directories are moved to segue-trash/MICROSECONDS-ID/ in the tool's home, each
under the path that it had in the home. So a move is a rename, and the tool no longer finds them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from segue.model import clock
from segue.model.errors import Conflict, InvalidInput
from segue.sources import safe_io

_NAME = re.compile(r"(\d+)-(.+)")


class TrashedFiles(NamedTuple):
    """A session in the trash. `directory` has its files as the home had them."""

    directory: str
    native_id: str
    deleted_at: int

    def remove(self) -> None:
        """Delete the session permanently."""
        import shutil  # a list does not need it

        shutil.rmtree(self.directory)


class FileTrash:
    """The trash of one home."""

    def __init__(self, home: str) -> None:
        self._home = home
        self.directory = os.path.join(home, "segue-trash")

    def sessions(self) -> Iterator[TrashedFiles]:
        """Return the sessions in the trash."""
        for entry in safe_io.list_directory(self.directory):
            match = _NAME.fullmatch(entry.name)
            if match is not None and safe_io.is_directory(entry, follow_symlinks=False):
                yield TrashedFiles(entry.path, match[2], int(match[1]))

    def of_path(self, path: str) -> TrashedFiles | None:
        """Return the session in the trash that a file belongs to; None if it is not there."""
        prefix = os.path.join(self.directory, "")
        if not path.startswith(prefix):
            return None
        name = path[len(prefix) :].partition(os.sep)[0]
        match = _NAME.fullmatch(name)
        return match and TrashedFiles(prefix + name, match[2], int(match[1]))

    def deleted_at(self, path: str) -> int | None:
        """Return when the session of a file was moved to the trash; None if it is not there."""
        trashed = self.of_path(path)
        return None if trashed is None else trashed.deleted_at

    def original(self, path: str) -> str:
        """Return where a file was before it was moved to the trash."""
        trashed = self.of_path(path)
        if trashed is None:
            return path
        return os.path.join(self._home, os.path.relpath(path, trashed.directory))

    def add(self, native_id: str, paths: Sequence[str]) -> None:
        """Move the files and directories of a session to the trash, the main file last.

        A move that was interrupted can be repeated: the session is where its main file is.
        """
        unfinished = (trashed for trashed in self.sessions() if trashed.native_id == native_id)
        trashed = next(unfinished, None)
        directory = os.path.join(self.directory, f"{clock.now()}-{native_id}")
        if trashed is not None:
            # The time of the trash is that of the move which is completed now.
            os.rename(trashed.directory, directory)
        for path in paths:
            _move(path, os.path.join(directory, os.path.relpath(path, self._home)))

    def restore(self, path: str) -> str:
        """Move a session's files back, and return where its main file `path` is then.

        Raises Conflict before anything is moved if the tool has such a file again.
        """
        trashed = self.of_path(path)
        if trashed is None:
            return path
        moves = list(_moves(trashed.directory, self._home))
        for _, target in moves:
            if os.path.lexists(target):
                raise Conflict(f"cannot restore session {trashed.native_id}: {target} exists")
        # What holds the main file is last: a restore that was interrupted can be repeated.
        for moved, target in sorted(moves, key=lambda move: _is_in(path, move[0])):
            _move(moved, target)
        trashed.remove()  # only directories that the home has are left
        return self.original(path)


def require_outside_trash(trashed: TrashedFiles | None) -> None:
    """Raise InvalidInput for a session in the trash, which cannot be changed there."""
    if trashed is not None:
        raise InvalidInput("a session in the trash cannot be changed; restore it first")


def _moves(directory: str, target: str) -> Iterator[tuple[str, str]]:
    """Return what to move to which path, so that a directory has the content of both."""
    for entry in safe_io.list_directory(directory):
        path = os.path.join(target, entry.name)
        if safe_io.is_directory(entry, follow_symlinks=False) and os.path.isdir(path):
            yield from _moves(entry.path, path)
        else:
            yield entry.path, path


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(os.path.join(directory, ""))


def _move(path: str, target: str) -> None:
    if os.path.lexists(target):
        raise Conflict(f"cannot move {path}: {target} exists")
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    os.rename(path, target)
