"""Reading files that somebody else writes: regular ones only, a bounded piece at a time.

A directory of transcripts may hold links, pipes, directories with a transcript's name and files
that vanish or cannot be read. None of them may stop a reader, so all reading begins here.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

# Not through a link out of the tree, and never waiting for the other end of a pipe.
SAFE_OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 8 << 20  # a line beyond this is known by its two ends, and not held
# A want of this machine, not a fault of one file: to skip the file would hide a good session.
_MACHINE_ERRORS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


class UnreadableFile(Exception):
    """There is no regular file here that can be read."""


def open_regular(path: str) -> tuple[int, os.stat_result]:
    """A regular file's descriptor and status. Raises Unreadable, whatever is wrong with it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | SAFE_OPEN_FLAGS)
    except (OSError, ValueError) as error:
        raise _as_unreadable(path, error) from error
    try:
        status = os.fstat(descriptor)
    except OSError as error:
        os.close(descriptor)
        raise _as_unreadable(path, error) from error
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise UnreadableFile(path)
    return descriptor, status


@contextmanager
def open_file(path: str) -> Iterator[tuple[int, os.stat_result]]:
    """The same for a `with` block, which may do more than read."""
    descriptor, status = open_regular(path)
    try:
        yield descriptor, status
    finally:
        os.close(descriptor)


@contextmanager
def open_for_reading(path: str) -> Iterator[tuple[int, os.stat_result]]:
    """The same for a `with` block that only reads: a failing read is Unreadable too."""
    with open_file(path) as found:
        try:
            yield found
        except OSError as error:
            raise _as_unreadable(path, error) from error


def _as_unreadable(path: str, error: Exception) -> Exception:
    return error if _is_machine_error(error) else UnreadableFile(path)


def _is_machine_error(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in _MACHINE_ERRORS


def list_directory(directory: str) -> list[os.DirEntry[str]]:
    """What is in a directory; nothing when it cannot be read."""
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except (OSError, ValueError) as error:
        if _is_machine_error(error):
            raise
        return []


def is_regular_file(entry: os.DirEntry[str]) -> bool:
    """Whether this is a file and no link to one, which most file systems tell with the name."""
    try:
        return entry.is_file(follow_symlinks=False)
    except OSError:
        return False


@contextmanager
def open_directory(path: str) -> Iterator[tuple[int, list[str]]]:
    """A directory's descriptor and the names in it; no names when it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        if _is_machine_error(error):
            raise
        yield -1, []
        return
    try:
        yield descriptor, os.listdir(descriptor)
    finally:
        os.close(descriptor)


def read_small_file(path: str, limit: int = BLOCK_BYTES) -> bytes | None:
    """The whole of a small file beside a transcript, or None."""
    try:
        with open_for_reading(path) as (descriptor, status):
            return os.read(descriptor, limit) if status.st_size <= limit else None
    except UnreadableFile:
        return None


def read_at(descriptor: int, start: int, size: int) -> bytes:
    """The bytes from `start`, fewer than `size` only where the file ends."""
    data = os.pread(descriptor, size, start)
    if len(data) == size or not data:
        return data
    parts = [data]  # a signal or a network file system may cut a read short
    while data and (size := size - len(data)):
        start += len(data)
        data = os.pread(descriptor, size, start)
        parts.append(data)
    return b"".join(parts)


def read_lines(
    descriptor: int, start: int = 0, longest: int | None = MAX_LINE_BYTES
) -> Iterator[tuple[int, int, bytes]]:
    """Each line from `start`, as (offset, size, bytes), the newline left out.

    Of a line that is longer than `longest` only the two ends come, so that memory stays bounded;
    its size then is not that of the bytes.
    """
    offset, held, size = start, bytearray(), 0
    while block := os.pread(descriptor, BLOCK_BYTES, start):
        start += len(block)
        begin = 0
        if size:
            end = block.find(b"\n")
            taken = len(block) if end < 0 else end
            held += memoryview(block)[:taken]
            size += taken
            if longest is not None and len(held) > longest:
                held = held[: longest // 2] + held[-(longest // 2) :]
            if end < 0:
                continue
            yield offset, size, bytes(held)
            offset, held, size, begin = offset + size + 1, bytearray(), 0, end + 1
        while (end := block.find(b"\n", begin)) >= 0:
            yield offset, end - begin, block[begin:end]
            offset += end - begin + 1
            begin = end + 1
        held, size = bytearray(memoryview(block)[begin:]), len(block) - begin
    if held:
        yield offset, size, bytes(held)


def read_blocks_backwards(descriptor: int, start: int, end: int) -> Iterator[bytes]:
    """The bytes from `start`, which begins a line, in blocks of whole lines, the last one first.

    Lines longer than a block are left out.
    """
    rest = b""
    while end > start:
        size = min(BLOCK_BYTES, end - start)
        end -= size
        first, newline, lines = (read_at(descriptor, end, size) + rest).partition(b"\n")
        if newline:
            yield lines
        rest = first if len(first) < BLOCK_BYTES else b""
    yield rest
