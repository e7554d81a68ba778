"""Parse transcripts in a worker process: run this module with a workspace."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from segue.sources import safe_io
from segue.sources.index.database import FileKey
from segue.sources.index.parse_workers import (
    Job,
    ParsedFile,
    ParseWorkers,
    serve,
    start_workers,
)

from .index_entry import current_key, parse_file

_decode_job = msgspec.msgpack.Decoder(tuple[bytes, FileKey]).decode


def start(files: Sequence[tuple[str, FileKey]], workspace: str) -> ParseWorkers | None:
    """Start workers for all but the first transcripts; None if there are none."""
    jobs = [
        Job(path, key.size, msgspec.msgpack.encode((os.fsencode(path), key))) for path, key in files
    ]
    return start_workers(jobs, __name__, workspace)


def main(workspace: str) -> None:
    """Run a worker."""

    @contextmanager
    def parse(job: bytes) -> Iterator[ParsedFile]:
        encoded_path, key = _decode_job(job)
        path = os.fsdecode(encoded_path)
        with safe_io.open_for_reading(path) as (descriptor, status):
            yield parse_file(descriptor, path, current_key(status, key), None, workspace)

    serve(parse)


if __name__ == "__main__":
    main(sys.argv[1])
