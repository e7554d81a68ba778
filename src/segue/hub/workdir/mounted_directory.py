"""Read and write the files of one directory below a session's directory.

Links below it are never followed. A file is written in a staging directory and then moved.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from segue.agents.tools import file_tree
from segue.agents.tools.path_guard import PathGuard, ToolError

from .staging import staging_directory

_WRITABLE_MODE = 0o755
_READ_ONLY_MODE = 0o555


class DirectoryScan(NamedTuple):
    """The digest of each file by its path, and why other paths cannot be read."""

    digests: dict[str, str]
    unreadable: dict[str, str]


class MountedDirectory:
    """The directory at a mount path. Paths of its files begin with a slash."""

    def __init__(self, root: Path, mount_path: str) -> None:
        self._root = root
        self._guard = PathGuard([str(root)], strict=True)
        self._top = str(root / mount_path.lstrip("/"))

    def scan_or_create(
        self, expected_paths: Iterable[str], max_file_bytes: int
    ) -> DirectoryScan | None:
        """Return the files of the directory. If it does not exist, create it and return None.

        Reads at most `max_file_bytes` of a file. An expected path that exists but was not read is
        reported as unreadable, not as missing. Returns None if something else is at the mount path.
        """
        scan = DirectoryScan({}, {})
        try:
            is_new = not self._guard.exists(self._top)
            with self._guard.open_directory(self._guard.resolve(self._top), create=True) as top:
                for file in file_tree.walk_files(top, scan.unreadable):
                    if not file.name.startswith(file_tree.TEMP_PREFIX):
                        _scan_file(file, max_file_bytes, scan)
                for path in expected_paths:
                    if path not in scan.digests and (reason := _reason_unreadable(top, path)):
                        scan.unreadable.setdefault(path, reason)
            _drop_parents(scan.unreadable)
        except ToolError:  # Writing to this directory reports the reason.
            return None
        return None if is_new else scan

    def read(self, path: str, max_bytes: int) -> bytes:
        """Return up to `max_bytes` of a file. Raises ToolError if it cannot be read."""
        *parents, name = path.split("/")[1:]
        with self._guard.open_directory(self._guard.resolve(self._top)) as top:
            try:
                with (
                    file_tree.open_directory(top, parents) as parent,
                    file_tree.open_file(parent, name, allow_hard_links=False) as file,
                ):
                    return file.read(max_bytes)
            except file_tree.UnusableFile as error:
                raise ToolError(f"it {error}") from None

    def has_file(self, path: str) -> bool:
        """Return True if a file can be read."""
        try:
            self.read(path, 0)
            return True
        except ToolError:
            return False

    def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Replace or create a file. Raises ToolError if its path leads out of the directory."""
        with staging_directory(self._root) as staging:
            staged = staging / "file"
            staged.write_bytes(data)
            if mode is not None:
                staged.chmod(mode)
            self._guard.move_in(staged, self._top + path)

    def set_writable(self, *, writable: bool) -> None:
        """Change the permissions of the directory and its subdirectories. Follows no links."""
        mode = _WRITABLE_MODE if writable else _READ_ONLY_MODE
        with suppress(ToolError), self._guard.open_directory(self._guard.resolve(self._top)) as top:
            for _, _, _, directory in os.fwalk(".", dir_fd=top):
                os.fchmod(directory, mode)

    def remove(self, path: str) -> None:
        """Delete a file, and its parent directories that are then empty."""
        names = path.split("/")[1:]
        with self._guard.open_directory(self._guard.resolve(self._top)) as top:
            for depth in range(len(names), 0, -1):
                remove = os.unlink if depth == len(names) else os.rmdir
                name, parents = names[depth - 1], names[: depth - 1]
                with file_tree.open_directory(top, parents) as parent, suppress(OSError):
                    remove(name, dir_fd=parent)


def _reason_unreadable(top: int, path: str) -> str | None:
    """Return why a path that was not read may still exist; None if it does not exist."""
    names = path.split("/")[1:]
    for depth, name in enumerate(names, 1):
        try:
            with file_tree.open_directory(top, names[: depth - 1]) as parent:
                mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None
        except OSError as error:
            return str(error.strerror)
        if stat.S_ISLNK(mode):
            return "a symbolic link is at this path or above it"
        if not stat.S_ISDIR(mode):
            return "it cannot be read" if depth == len(names) else None
    return None  # a directory: the file itself does not exist


def _drop_parents(unreadable: dict[str, str]) -> None:
    """Remove the paths below which another path is unreadable."""
    for path in list(unreadable):
        while path := path.rpartition("/")[0]:
            unreadable.pop(path, None)


def _scan_file(file: file_tree.TreeFile, max_bytes: int, scan: DirectoryScan) -> None:
    """Read one file into the scan, or note why it cannot be read."""
    path = file.path
    printable = file_tree.printable(path)
    if printable != path:
        scan.unreadable[printable] = "its name is not UTF-8"
        return
    try:
        with file_tree.open_file(file.parent, file.name, allow_hard_links=False) as content:
            scan.digests[path] = sha256(content.read(max_bytes)).hexdigest()
    except FileNotFoundError:  # deleted since the directory was listed
        return
    except file_tree.UnusableFile as error:
        scan.unreadable[path] = f"it {error}"
    except OSError as error:
        is_link = error.errno == errno.ELOOP
        reason = "symbolic links are not followed" if is_link else str(error.strerror)
        scan.unreadable[path] = reason
