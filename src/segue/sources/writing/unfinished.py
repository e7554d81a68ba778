"""Record work before it begins, so that another process can finish it after a crash.

A record is a file that its process holds a lock on. The system releases the lock when the process
ends, however it ends. A record without a lock is one whose process was killed, or failed.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from segue.model.errors import StoreError
from segue.sources import safe_io

_SUFFIX = ".json"
_NEW = ".new"  # the suffix of a record that is not complete yet
_MAX_BYTES = 1 << 20
_FLAGS = os.O_RDWR | safe_io.SAFE_OPEN_FLAGS


class Record(NamedTuple):
    """A record of unfinished work whose process has ended."""

    path: str
    data: bytes

    def remove(self) -> None:
        """Delete the record: its work is finished."""
        with suppress(FileNotFoundError):
            os.unlink(self.path)


class UnfinishedWork:
    """The records in one directory."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def names(self) -> list[str]:
        """Return the names of all records, sorted."""
        names = (entry.name for entry in safe_io.list_directory(self.directory))
        return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))

    @contextmanager
    def recorded(self, name: str, data: bytes) -> Iterator[None]:
        """Keep a record for a `with` block.

        It stays if the block fails. Raises StoreError if it cannot be written.
        """
        path = os.path.join(self.directory, name + _SUFFIX)
        try:
            descriptor = self._create(path, data)
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror}") from error
        try:
            yield
            os.unlink(path)
        finally:
            os.close(descriptor)

    def _create(self, path: str, data: bytes) -> int:
        """Write a record, and return the descriptor with its lock."""
        os.makedirs(self.directory, 0o700, exist_ok=True)
        descriptor = os.open(path + _NEW, _FLAGS | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, data)
            os.fsync(descriptor)
            os.rename(path + _NEW, path)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def abandoned(self) -> Iterator[Record]:
        """Yield the records whose process has ended. The caller holds the lock of each in turn."""
        for name in self.names():
            path = os.path.join(self.directory, name + _SUFFIX)
            try:
                descriptor = os.open(path, _FLAGS)
            except OSError:
                continue  # it was removed a moment ago
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield Record(path, os.read(descriptor, _MAX_BYTES))
            except BlockingIOError:
                continue
            finally:
                os.close(descriptor)
