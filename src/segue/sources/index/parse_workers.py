"""Worker processes that parse files for a large update of an index.

Parsing takes about as long as writing the full-text index. So the workers parse ahead while the
process that started them writes. They send MessagePack frames, each after its length.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import IO, Any, NamedTuple

import msgspec

from segue.model import codec
from segue.model.session import decode_session
from segue.sources import safe_io

from .database import FileKey, IndexedFile, IndexedText

MAX_WORKERS = 4  # one writer does not keep more of them busy; it waits while they are behind
_FRAME_BYTES = 1 << 18  # of text in one frame
_PIPE_BYTES = 1 << 20  # how far a worker may be ahead of the writer
_OWN_BYTES = 3 << 20  # parsed by this process while the workers start


class ParsedFile:
    """A file that is being parsed: its texts, and its row once all texts were consumed."""

    def __init__(self, texts: Iterable[IndexedText], *, extends: bool) -> None:
        self.texts = texts
        self.extends = extends  # whether the texts are added to those in the index
        self.row: IndexedFile | None = None

    def get_row(self) -> IndexedFile:
        """Return the row of the index, after the last text."""
        assert self.row is not None, "not all texts were consumed"
        return self.row


class WorkerLost(Exception):
    """A worker process ended before it had read all its files."""


class Job(NamedTuple):
    """A file for a worker: its path in the index, its size, and what the worker gets."""

    path: str
    size: int
    data: bytes


class _FrameRow(msgspec.Struct, array_like=True):
    key: FileKey
    state: bytes
    session: bytes | None
    next: bytes | None
    open_since: int | None
    problem: str | None


class _Frame(msgspec.Struct, array_like=True):
    """Some texts. The last frame of a file has its row, unless the file is unreadable."""

    texts: list[IndexedText]
    last: bool
    row: _FrameRow | None = None


class ParseWorkers:
    """Processes that parse files ahead, each its share of them, in order."""

    def __init__(self, jobs: Sequence[Job], module: str, arguments: Sequence[str], count: int):
        self._workers = [_Worker(jobs[n::count], module, arguments) for n in range(count)]
        self._worker_numbers = {job.path: n % count for n, job in enumerate(jobs)}

    def has(self, path: str) -> bool:
        """Return whether a worker parses this file."""
        return path in self._worker_numbers

    def read(self, path: str) -> ParsedFile | None:
        """Return a parsed file, or None if it is unreadable.

        Files are read in the order in which they were given. Raises WorkerLost, here or while the
        texts are consumed.
        """
        worker = self._workers[self._worker_numbers[path]]
        first = worker.read_frame()
        if first.last and first.row is None:
            return None

        def texts() -> Iterator[IndexedText]:
            frame = first
            while True:
                yield from frame.texts
                if frame.last:
                    break
                frame = worker.read_frame()
            if (row := frame.row) is None:
                raise safe_io.UnreadableFile(path)
            parsed.row = IndexedFile(
                key=row.key,
                state=row.state,
                session=None if row.session is None else decode_session(row.session),
                next=None if row.next is None else os.fsdecode(row.next),
                open_since=row.open_since,
                problem=row.problem,
            )

        parsed = ParsedFile(texts(), extends=False)
        return parsed

    def close(self) -> None:
        """Kill all workers."""
        for worker in self._workers:
            worker.close()


def start_workers(jobs: Sequence[Job], module: str, *arguments: str) -> ParseWorkers | None:
    """Start workers for all but the first files; None if there is one core or no program for them.

    `module` is run with the arguments, and calls `serve`. The caller parses the first files itself,
    since a worker takes a while to start.
    """
    count = min(MAX_WORKERS, os.cpu_count() or 1)
    if count < 2 or not sys.executable:
        return None
    own_files, own_bytes = 0, 0
    while own_files < len(jobs) and own_bytes < _OWN_BYTES:
        own_files, own_bytes = own_files + 1, own_bytes + jobs[own_files].size
    try:
        return ParseWorkers(jobs[own_files:], module, arguments, count)
    except OSError:
        return None


class _Worker:
    """One process that parses its share of the files."""

    def __init__(self, jobs: Sequence[Job], module: str, arguments: Sequence[str]) -> None:
        import subprocess  # a list imports this module and starts no worker
        import tempfile

        with tempfile.TemporaryFile() as file:
            for job in jobs:
                file.write(len(job.data).to_bytes(4))
                file.write(job.data)
            file.seek(0)
            self._process = subprocess.Popen(
                # Without -P, a package of this name in the current directory would run instead.
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        with suppress(ImportError, AttributeError, OSError):  # Linux only
            import fcntl

            fcntl.fcntl(self._output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def read_frame(self) -> _Frame:
        """Return the next frame. Raises WorkerLost."""
        size = int.from_bytes(self._output.read(4))
        data = self._output.read(size)
        if not size or len(data) < size:
            raise WorkerLost
        return _decode_frame(data)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def _send(file: IO[bytes], value: Any) -> None:
    data = msgspec.msgpack.encode(value)
    file.write(len(data).to_bytes(4))
    file.write(data)


_decode_frame = msgspec.msgpack.Decoder(_Frame).decode


def serve(parse: Callable[[bytes], AbstractContextManager[ParsedFile]]) -> None:
    """Run a worker: parse the files that standard input names, write frames to standard output.

    `parse` raises UnreadableFile if the process that started this one has to decide.
    """
    while size := int.from_bytes(sys.stdin.buffer.read(4)):
        _run_job(sys.stdout.buffer, parse, sys.stdin.buffer.read(size))


def _run_job(
    output: IO[bytes], parse: Callable[[bytes], AbstractContextManager[ParsedFile]], job: bytes
) -> None:
    texts: list[IndexedText] = []
    held_bytes = 0
    row: _FrameRow | None = None
    try:
        with parse(job) as parsed:
            for text in parsed.texts:
                texts.append(text)
                held_bytes += len(text.data)
                if held_bytes > _FRAME_BYTES:
                    _send(output, _Frame(texts, False))
                    texts, held_bytes = [], 0
            file = parsed.get_row()
            row = _FrameRow(
                file.key,
                file.state,
                None if file.session is None else codec.encode(file.session),
                None if file.next is None else os.fsencode(file.next),
                file.open_since,
                file.problem,
            )
    except safe_io.UnreadableFile:
        texts = []
    _send(output, _Frame(texts, True, row))
    output.flush()
