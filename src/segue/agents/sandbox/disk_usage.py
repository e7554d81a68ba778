"""Measure how much of the disk a session's directory uses."""

from __future__ import annotations

import os
import stat

MAX_ENTRIES = 200_000
# A tree that is too large to measure, or hides a part, counts as this many bytes.
UNMEASURABLE_BYTES = 1 << 40
_BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system's own is


def tree_bytes(directory: str) -> int:
    """Return the bytes that the files below a directory use on the disk. Follows no links."""
    total, entries = 0, 0
    waiting = [directory]
    while waiting:
        path = waiting.pop()
        try:
            status = os.lstat(path)
            total += status.st_blocks * _BLOCK_BYTES
            if not stat.S_ISDIR(status.st_mode):
                continue
            with os.scandir(path) as children:
                for child in children:
                    entries += 1
                    if entries > MAX_ENTRIES:
                        return UNMEASURABLE_BYTES
                    waiting.append(child.path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # a program deleted or replaced it in the meantime
        except OSError:  # a path that is too long, or a directory without permissions
            return UNMEASURABLE_BYTES
    return total
