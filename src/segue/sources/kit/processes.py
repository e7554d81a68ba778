"""Find out whether a tool's process works on a session, without touching its files."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")


def is_alive(process_id: int, program: str | None = None) -> bool:
    """Return whether a process runs, and on Linux, whether its command names a program."""
    if not 0 < process_id < 1 << 31:
        return False
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # a process of another user is running too
    if program is None:
        return True
    try:
        command = (_PROC / str(process_id) / "cmdline").read_bytes()
    except OSError:
        return True  # the system has no /proc
    return program.encode() in command


def is_locked(path: str) -> bool | None:
    """Return whether a process holds a lock of a file; None if the system does not say.

    The lock is looked up and not taken: the tool would fail to take it meanwhile.
    """
    try:
        inode = str(os.stat(path).st_ino).encode()
    except OSError:
        return False
    try:
        lines = (_PROC / "locks").read_bytes().splitlines()
    except OSError:
        return None
    fields = (line.split() for line in lines)
    return any(len(line) >= 8 and line[-3].rpartition(b":")[2] == inode for line in fields)


def is_open(path: str) -> bool | None:
    """Return whether another process of this user has a file open; None if the system does not say.

    It looks at every process, so ask it only about sessions with an open turn.
    """
    try:
        status = os.stat(path)
        process_ids = [name for name in os.listdir(_PROC) if name.isdigit()]
    except OSError:
        return None
    for process_id in process_ids:
        if int(process_id) == os.getpid():
            continue
        try:
            with os.scandir(f"{_PROC}/{process_id}/fd") as descriptors:
                for descriptor in descriptors:
                    if os.readlink(descriptor.path) == path:
                        opened = os.stat(descriptor.path)
                        if opened.st_ino == status.st_ino:
                            return True
        except OSError:
            continue  # it has ended, or belongs to another user
    return False
