"""Let one task of one process at a time work in a session's directory.

The locked file is next to the directory: a program of the session could lock the directory itself.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_RETRY_SECONDS = 0.05


class DirectoryLocks:
    """Locks between the tasks of this process, and file locks between processes."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        """Return the number of directories that are locked or waited for in this process."""
        return len(self._locks)

    @asynccontextmanager
    async def lock(self, directory: str, *, wait: bool = True) -> AsyncIterator[bool]:
        """Lock a directory and yield True.

        Without `wait`, yields False if another task or process holds the lock. Raises OSError if
        the directory does not exist.
        """
        _check_exists(directory)
        lock = self._locks.setdefault(directory, asyncio.Lock())
        if lock.locked() and not wait:
            yield False
            return
        async with lock:
            descriptor = os.open(lock_path(directory), _LOCK_FLAGS, 0o600)
            try:
                while not (locked := _try_lock(descriptor)) and wait:
                    await asyncio.sleep(_RETRY_SECONDS)
                _check_exists(directory)  # it may have been deleted meanwhile
                yield locked
            finally:
                os.close(descriptor)  # releases the file lock


def lock_path(directory: str) -> str:
    """Return the path of the file that is locked for a directory."""
    return f"{directory}.lock"


def _check_exists(directory: str) -> None:
    if not os.path.isdir(directory):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
