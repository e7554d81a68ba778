"""Measure how much of the disk a session's directory uses."""

from __future__ import annotations

import os
import stat

MAX_ENTRIES = 200_000
# A tree that is too large to measure, or hides a part, counts as this many bytes.
UNMEASURABLE_BYTES = 1 << 40
_BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system's own is

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def tree_bytes(directory: str) -> int:
    """Return the bytes that the files below a directory use on the disk. Follows no links."""
    return max(running_bytes([directory]), default=0)


def running_bytes(directories: Sequence[str]) -> Iterator[int]:
    """Yield the bytes of the files below directories after each file; the last is the sum."""
    total, entries = 0, 0
    waiting = [*directories]
    while waiting:
        path = waiting.pop()
        try:
            status = os.lstat(path)
            total += status.st_blocks * _BLOCK_BYTES
            yield total
            if not stat.S_ISDIR(status.st_mode):
                continue
            with os.scandir(path) as children:
                for child in children:
                    entries += 1
                    if entries > MAX_ENTRIES:
                        yield UNMEASURABLE_BYTES
                        return
                    waiting.append(child.path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # a program deleted or replaced it in the meantime
        except OSError:  # a path that is too long, or a directory without permissions
            yield UNMEASURABLE_BYTES
            return
