"""Read and write the files of one directory below a session's directory.

Links are never followed. A file is written under a temporary name and then renamed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from segue.agents.tools.path_guard import TEMP_PREFIX, PathGuard, ToolError

_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class DirectoryScan(NamedTuple):
    """The content of each file by its path, and why other paths cannot be read."""

    files: dict[str, bytes]
    unreadable: dict[str, str]


class MountedDirectory:
    """The directory at a mount path. Paths of its files begin with a slash."""

    def __init__(self, root: Path, mount_path: str) -> None:
        self._guard = PathGuard([str(root)], strict=False)
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
            is_new = not os.path.lexists(self._top)
            with self._guard.open_directory(self._guard.resolve(self._top), create=True) as top:
                for parent, _, names, parent_fd in os.fwalk(".", dir_fd=top):
                    for name in names:
                        if not name.startswith(TEMP_PREFIX):
                            path = f"{parent[1:]}/{name}"
                            _scan_file(path, name, parent_fd, max_file_bytes, scan)
        except ToolError:  # Writing to this directory reports the reason.
            return None
        for path in expected_paths:
            if path not in scan.files and (reason := self._reason_unreadable(path)):
                scan.unreadable.setdefault(path, reason)
        return None if is_new else scan

    def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Replace or create a file. Raises ToolError if its path leads out of the directory."""
        self._guard.replace_file(self._top + path, data, mode=mode)

    def remove(self, path: str) -> None:
        """Delete a file, and its parent directories that are then empty."""
        top = self._guard.resolve(self._top)
        names = (*top.names, *path.split("/")[1:])
        for depth in range(len(names), len(top.names), -1):
            remove = os.unlink if depth == len(names) else os.rmdir
            name, parent = names[depth - 1], top._replace(names=names[: depth - 1])
            with self._guard.open_directory(parent) as parent_fd, suppress(OSError):
                remove(name, dir_fd=parent_fd)

    def _reason_unreadable(self, path: str) -> str | None:
        """Return why a path that was not read may still exist; None if it does not exist."""
        current = self._top
        names = path.split("/")[1:]
        for depth, name in enumerate(names, 1):
            current = f"{current}/{name}"
            try:
                mode = os.lstat(current).st_mode
            except FileNotFoundError:
                return None
            except OSError as error:
                return str(error.strerror)
            if stat.S_ISLNK(mode):
                return "a symbolic link is at this path or above it"
            if not stat.S_ISDIR(mode):
                return "it cannot be read" if depth == len(names) else None
        return None  # a directory: the file itself does not exist


def _scan_file(path: str, name: str, parent_fd: int, max_bytes: int, scan: DirectoryScan) -> None:
    """Read one file into the scan, or note why it cannot be read."""
    printable = os.fsencode(path).decode("utf-8", "backslashreplace")
    if printable != path:
        scan.unreadable[printable] = "its name is not UTF-8"
        return
    try:
        with open(os.open(name, _READ_FLAGS, dir_fd=parent_fd), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                scan.unreadable[path] = "it is not a regular file"
            elif status.st_nlink > 1:
                scan.unreadable[path] = "it has another hard link, which may be outside"
            else:
                scan.files[path] = file.read(max_bytes)
    except FileNotFoundError:  # deleted since the directory was listed
        return
    except OSError as error:
        is_link = error.errno == errno.ELOOP
        reason = "symbolic links are not followed" if is_link else str(error.strerror)
        scan.unreadable[path] = reason
