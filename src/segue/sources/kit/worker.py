"""Read sessions in a worker process: run this module with a workspace and a pickled reader."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from segue.sources.index.parse_workers import (
    Job,
    ParsedFile,
    ParseWorkers,
    serve,
    start_workers,
)
from segue.sources.safe_io import UnreadableFile

from . import database
from .reader import Reader, SessionRef
from .rows import parse_session


def start(reader: Reader, refs: Sequence[SessionRef], workspace: str) -> ParseWorkers | None:
    """Start workers for all but the first sessions; None if there are none."""
    # Pickled, because a reader may have references of its own.
    jobs = [Job(ref.key, ref.fingerprint.size, pickle.dumps(ref)) for ref in refs]
    return start_workers(jobs, __name__, workspace, pickle.dumps(reader).hex())


def main(workspace: str, pickled_reader: str) -> None:
    """Run a worker. A session that cannot be read is left to the process that started it."""
    reader: Reader = pickle.loads(bytes.fromhex(pickled_reader))

    @contextmanager
    def parse(job: bytes) -> Iterator[ParsedFile]:
        ref: SessionRef = pickle.loads(job)
        try:
            yield parse_session(reader, ref, workspace, None)
        except Exception as error:
            raise UnreadableFile(ref.key) from error

    with database.keep_open():
        serve(parse)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
