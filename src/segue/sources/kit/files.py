"""Read JSON lines that a tool appends to, and know where a later read continues."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from segue.model.errors import NotFound
from segue.sources import safe_io

from .reader import FIRST_SEQ, Fingerprint, Report, Resume, Rewritten

MAX_RECORD_BYTES = 64 << 20  # a longer line is skipped, and named as a problem
_TAIL_BYTES = 256  # before the end of a read, by which a rewritten file is noticed
_BLANK = bytes(range(0x21))
DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)
_decode = msgspec.json.Decoder().decode


class Record(NamedTuple):
    """A JSON object of a file and the offset of its line."""

    offset: int
    record: dict[str, Any]

    def seq(self, number: int = 0) -> int:
        """Return the seq of an event of this line, the first of which has the number 0."""
        return FIRST_SEQ + self.offset + number


def fingerprint(status: os.stat_result, *others: object) -> Fingerprint:
    """Return the fingerprint of a file, and of other facts that a session's row depends on."""
    digest = digest_of(*others) if others else 0
    return Fingerprint(status.st_ino, status.st_size, status.st_mtime_ns, digest)


def digest_of(*values: object) -> int:
    """Return a number that differs for different values, for a fingerprint."""
    data = repr(values).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=7).digest()) | 1


def list_directory(directory: str, report: Report | None) -> list[os.DirEntry[str]]:
    """Return the entries of a directory, and report it if it is there but cannot be read."""
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError) as error:
        if report is None:
            return safe_io.list_directory(directory)
        report(directory, getattr(error, "strerror", None) or str(error))
        return []


def walk_files(
    directory: str, suffix: str | tuple[str, ...], depth: int, report: Report | None = None
) -> Iterator[os.DirEntry[str]]:
    """Yield the regular files below a directory whose names end with a suffix."""
    for entry in list_directory(directory, report):
        if entry.name.endswith(suffix):
            if safe_io.is_regular_file(entry):
                yield entry
        elif depth and safe_io.is_directory(entry, follow_symlinks=False):
            yield from walk_files(entry.path, suffix, depth - 1, report)


def contains(path: str, needle: bytes) -> bool:
    """Return whether a file contains some bytes."""
    overlap, offset = b"", 0
    with safe_io.open_for_reading(path) as (descriptor, _):
        while block := os.pread(descriptor, safe_io.BLOCK_BYTES, offset):
            if needle in overlap + block:
                return True
            overlap = block[-len(needle) :]
            offset += len(block)
    return False


def read_json(path: str) -> dict[str, Any]:
    """Return the JSON object in a small file; empty if there is none."""
    records = parse_records(safe_io.read_small_file(path) or b"")
    return records[0] if records else {}


def parse_object(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object that some bytes are; None if they are damaged."""
    try:
        value = _decode(data)
    except DECODE_ERRORS:
        return None
    return value if isinstance(value, dict) else None


def parse_records(line: bytes) -> list[dict[str, Any]]:
    """Return the JSON objects of a line: one, none if it is damaged, several after a crash."""
    try:
        value = _decode(line)
        return [value] if isinstance(value, dict) else []
    except DECODE_ERRORS:
        return _salvage(line)


def _salvage(line: bytes) -> list[dict[str, Any]]:
    """Return the objects of a line with NULs, invalid UTF-8 or several objects."""
    import json

    decoder = json.JSONDecoder(strict=False)
    text, records, start = line.strip(_BLANK).decode("utf-8", "replace"), [], 0
    while start < len(text):
        try:
            value, start = decoder.raw_decode(text, start)
        except DECODE_ERRORS:
            break
        if isinstance(value, dict):
            records.append(value)
        while start < len(text) and text[start] in "\0 \t\r\n":
            start += 1
    return records


class Records:
    """Iterates the JSON objects of a file, and knows its problems and where the read ended.

    `end` is the offset to stop at. A last line that is not complete is left to the next read. A
    line without an object is a problem. The iteration raises Rewritten if the file does not
    continue where `resume` ended, and UnreadableFile if it cannot be opened.
    """

    def __init__(self, path: str, resume: Resume | None = None, *, end: int | None = None) -> None:
        self._path = path
        self._resume = resume
        self._stop = end
        self._end = Resume()
        self.problems: list[str] = []

    def __iter__(self) -> Iterator[Record]:
        with safe_io.open_for_reading(self._path) as (descriptor, status):
            start = check_resume(descriptor, status, self._resume)
            stop = status.st_size if self._stop is None else self._stop
            for offset, size, data in safe_io.read_lines(descriptor, start, MAX_RECORD_BYTES):
                start = offset + size + 1
                if start > stop:
                    # Another program may be writing this line; complete JSON is a whole line.
                    start = offset
                    if self._stop is not None or not _is_whole(data):
                        break
                    start += size
                yield from self._records(offset, size, data)
            self._end = resume_at(descriptor, status, start)

    def _records(self, offset: int, size: int, data: bytes) -> Iterator[Record]:
        if size != len(data):
            self.problems.append(f"the record at byte {offset} is too long: {size} bytes")
            return
        records = parse_records(data)
        if not records and data.strip(_BLANK):
            self.problems.append(f"the record at byte {offset} is damaged")
        for record in records:
            yield Record(offset, record)

    def resume(self, data: dict[str, Any] | None = None, *, before: int | None = None) -> Resume:
        """Return where the next read continues, with the reader's own data.

        `before` is the offset of a record that the next read gets again.
        """
        end = self._end if before is None else resume_of(self._path, before) or self._end
        return msgspec.structs.replace(end, data=data or {})


def _is_whole(data: bytes) -> bool:
    try:
        return isinstance(_decode(data), dict)
    except DECODE_ERRORS:
        return False


def check_resume(descriptor: int, status: os.stat_result, resume: Resume | None) -> int:
    """Return the offset at which a read continues; raises Rewritten."""
    if resume is None:
        return 0
    if resume.inode != status.st_ino or status.st_size < resume.offset:
        raise Rewritten("the file was replaced or truncated")
    if _tail_hash(descriptor, resume.offset) != resume.tail_hash:
        raise Rewritten("the file was rewritten")
    return resume.offset


def resume_at(descriptor: int, status: os.stat_result, offset: int) -> Resume:
    """Return the position of a read that ended at an offset."""
    return Resume(inode=status.st_ino, offset=offset, tail_hash=_tail_hash(descriptor, offset))


def resume_of(path: str, offset: int) -> Resume | None:
    """Return the position of a read of a file that ended at an offset; None if it is gone."""
    try:
        with safe_io.open_for_reading(path) as (descriptor, status):
            return resume_at(descriptor, status, offset)
    except safe_io.UnreadableFile:
        return None


def _tail_hash(descriptor: int, offset: int) -> str:
    start = max(0, offset - _TAIL_BYTES)
    tail = safe_io.read_at(descriptor, start, offset - start)
    # A last line without its newline may get one.
    return blake2b(tail, digest_size=8).hexdigest()


def append_line(path: str, line: bytes) -> None:
    """Append a line to a file that a tool writes, and flush it to the disk."""
    flags = os.O_RDWR | os.O_APPEND | safe_io.SAFE_OPEN_FLAGS
    with os.fdopen(os.open(path, flags), "ab") as file:
        size = os.fstat(file.fileno()).st_size
        is_complete = not size or os.pread(file.fileno(), 1, size - 1) == b"\n"
        file.write(line if is_complete else b"\n" + line)
        file.flush()
        os.fsync(file.fileno())


def lines_until(path: str, seq: int | None) -> Iterator[tuple[bytes, list[dict[str, Any]]]]:
    """Return the lines of a file up to that of an event, or all, with the objects in them.

    A fork copies them. Lines without an object are left out.
    """
    with safe_io.open_for_reading(path) as (descriptor, _):
        for offset, _, data in safe_io.read_lines(descriptor, max_bytes=None):
            if seq is not None and FIRST_SEQ + offset > seq:
                return
            if records := parse_records(data):
                yield data, records


def file_lines(path: str) -> Iterable[bytes]:
    """Return the lines of a file as they are; raises NotFound if there is none."""
    if safe_io.nonempty_file_status(path) is None:
        raise NotFound(f"there is no file {path} to read")

    def lines() -> Iterator[bytes]:
        try:
            with safe_io.open_for_reading(path) as (descriptor, _):
                for _, _, data in safe_io.read_lines(descriptor, max_bytes=None):
                    yield data + b"\n"
        except safe_io.UnreadableFile:
            raise NotFound(f"{path} was deleted while it was read") from None

    return lines()
