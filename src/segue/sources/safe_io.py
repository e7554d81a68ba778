"""Read files that another program writes: regular files only, with bounded memory.

A directory of transcripts may hold links, pipes, directories named like a transcript, and files
that vanish or cannot be read. None of them may stop a reader, so every read goes through here.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

# Do not follow a link out of the directory; do not block on a pipe without a writer.
SAFE_OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 8 << 20  # of a longer line only the two ends are kept in memory
# The machine is out of a resource. Skipping the file would hide a good session.
_MACHINE_ERRORS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


class UnreadableFile(Exception):
    """There is no readable regular file at this path."""


def open_regular(path: str) -> tuple[int, os.stat_result]:
    """Return the descriptor and status of a regular file. Raise UnreadableFile if there is none."""
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
    """Open a regular file for a `with` block. Errors inside the block pass through."""
    descriptor, status = open_regular(path)
    try:
        yield descriptor, status
    finally:
        os.close(descriptor)


@contextmanager
def open_for_reading(path: str) -> Iterator[tuple[int, os.stat_result]]:
    """Open a regular file for a `with` block that only reads. A failed read is UnreadableFile."""
    with open_file(path) as opened:
        try:
            yield opened
        except OSError as error:
            raise _as_unreadable(path, error) from error


def _as_unreadable(path: str, error: Exception) -> Exception:
    return error if _is_machine_error(error) else UnreadableFile(path)


def _is_machine_error(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in _MACHINE_ERRORS


def list_directory(directory: str) -> list[os.DirEntry[str]]:
    """Return the entries of a directory; none if it cannot be read."""
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except (OSError, ValueError) as error:
        if _is_machine_error(error):
            raise
        return []


def is_regular_file(entry: os.DirEntry[str]) -> bool:
    """Return whether this is a file, not a link to one. Most file systems need no stat for it."""
    try:
        return entry.is_file(follow_symlinks=False)
    except OSError:
        return False


def is_directory(entry: os.DirEntry[str], *, follow_symlinks: bool = True) -> bool:
    """Return whether this is a directory, or a link to one unless links are not followed."""
    try:
        return entry.is_dir(follow_symlinks=follow_symlinks)
    except OSError:
        return False


def nonempty_file_status(path: str) -> os.stat_result | None:
    """Return the status of a regular file that is not empty, or None."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return status if stat.S_ISREG(status.st_mode) and status.st_size else None


@contextmanager
def open_directory(path: str) -> Iterator[tuple[int, list[str]]]:
    """Open a directory and list the names in it; no names if it cannot be read."""
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
    """Return the content of a file of at most `limit` bytes, or None."""
    try:
        with open_for_reading(path) as (descriptor, status):
            return os.read(descriptor, limit) if status.st_size <= limit else None
    except UnreadableFile:
        return None


def write_file(
    path: str, chunks: Iterable[bytes], mode: int = 0o600, *, replace: bool = False
) -> None:
    """Write a file and flush it to the disk. Raise FileExistsError unless `replace` is set."""
    flags = os.O_WRONLY | os.O_CREAT | SAFE_OPEN_FLAGS | (os.O_TRUNC if replace else os.O_EXCL)
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        file.writelines(chunks)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: str, data: bytes) -> None:
    """Replace the content of a file at once, so that no reader sees half of it."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        write_file(temporary, [data], mode, replace=True)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def read_at(descriptor: int, start: int, size: int) -> bytes:
    """Return `size` bytes from `start`, fewer only at the end of the file."""
    data = os.pread(descriptor, size, start)
    if len(data) == size or not data:
        return data
    chunks = [data]  # a signal or a network file system may cut a read short
    while data and (size := size - len(data)):
        start += len(data)
        data = os.pread(descriptor, size, start)
        chunks.append(data)
    return b"".join(chunks)


def read_lines(
    descriptor: int, start: int = 0, max_bytes: int | None = MAX_LINE_BYTES
) -> Iterator[tuple[int, int, bytes]]:
    """Yield each line from `start` as (offset, size, bytes), without its newline.

    Of a line longer than `max_bytes` only the two ends are kept, so that memory stays bounded;
    `size` then differs from the number of bytes.
    """
    offset, partial, size = start, bytearray(), 0
    while block := os.pread(descriptor, BLOCK_BYTES, start):
        start += len(block)
        begin = 0
        if size:
            end = block.find(b"\n")
            added = len(block) if end < 0 else end
            partial += memoryview(block)[:added]
            size += added
            if max_bytes is not None and len(partial) > max_bytes:
                partial = partial[: max_bytes // 2] + partial[-(max_bytes // 2) :]
            if end < 0:
                continue
            yield offset, size, bytes(partial)
            offset, partial, size, begin = offset + size + 1, bytearray(), 0, end + 1
        while (end := block.find(b"\n", begin)) >= 0:
            yield offset, end - begin, block[begin:end]
            offset += end - begin + 1
            begin = end + 1
        partial, size = bytearray(memoryview(block)[begin:]), len(block) - begin
    if partial:
        yield offset, size, bytes(partial)


def read_blocks_backwards(descriptor: int, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes from `start` to `end` in blocks of whole lines, the last block first.

    `start` must be the beginning of a line. Lines longer than a block are left out.
    """
    line_end = b""
    while end > start:
        size = min(BLOCK_BYTES, end - start)
        end -= size
        first, newline, lines = (read_at(descriptor, end, size) + line_end).partition(b"\n")
        if newline:
            yield lines
        line_end = first if len(first) < BLOCK_BYTES else b""
    yield line_end
