"""The status of all files of a tool, for a quick check that none has changed."""

from __future__ import annotations

import marshal
import os
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from segue.sources import safe_io


class FileStatuses:
    """Collects the status of files.

    Every list does that for every file, so each step counts. Resolving a whole path takes longer
    than all the rest: names are relative to the directory that was entered last.
    """

    def __init__(self) -> None:
        self._fields: list[Any] = []
        self._descriptor: int | None = None

    def enter(self, directory: str) -> Iterator[str]:
        """Return the names in a directory; `add` looks there until the last one was consumed."""
        with safe_io.open_directory(directory) as (descriptor, names):
            self._fields.append(directory)
            self._descriptor = descriptor
            yield from names
            self._descriptor = None

    def add(self, name: str) -> bool:
        """Add the status of a file; return False if there is none."""
        try:
            status = os.lstat(name, dir_fd=self._descriptor)
        except (OSError, ValueError):
            return False
        self._fields += (name, status.st_ino, status.st_size, status.st_mtime_ns)
        return True

    def add_value(self, value: bool) -> None:
        """Add another value that the sessions depend on."""
        self._fields.append(value)

    def digest(self, *others: object) -> bytes:
        """Return a digest of all statuses, and of other values."""
        # Version 2 of the format is the last that gives equal bytes for equal values.
        digest = blake2b(marshal.dumps(self._fields, 2), digest_size=16)
        digest.update(repr(others).encode("utf-8", "surrogatepass"))
        return digest.digest()
