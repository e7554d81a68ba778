"""Parse a transcript into its row and its texts for the index."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain

import msgspec

from segue.model import codec, search_text
from segue.sources.claude.events import subagent_threads, transcript_summary
from segue.sources.claude.events.summary import TranscriptSummary, decode_summary
from segue.sources.index.database import FileKey, IndexedFile, IndexedText
from segue.sources.index.parse_workers import ParsedFile

from . import discovery

_NO_ENTRIES = "it has no line that is an entry"


def parse_file(
    descriptor: int, path: str, key: FileKey, state: bytes | None, workspace: str
) -> ParsedFile:
    """Parse an open transcript, from where a stored state ends or from its beginning."""
    summary = transcript_summary.resume_summary(
        descriptor, decode_summary(state) if state else None
    )
    has_sidecar = key.sidecar_mtime_ns > 0
    if not subagent_threads.is_unchanged(path, summary, has_sidecar=has_sidecar):
        summary = TranscriptSummary()

    def texts() -> Iterator[IndexedText]:
        main_texts = transcript_summary.scan_lines(descriptor, summary)
        subagents = subagent_threads.read_appended(path, summary, has_sidecar=has_sidecar)
        for seq, body in chain(main_texts, subagents):
            if text := search_text.searchable_text(body):
                yield IndexedText(seq, text.encode("utf-8", "surrogatepass"))
        parsed.row = _row(path, key, summary, workspace)

    parsed = ParsedFile(texts(), extends=summary.end > 0)
    return parsed


def _row(path: str, key: FileKey, summary: TranscriptSummary, workspace: str) -> IndexedFile:
    id, trashed_at = discovery.session_of_path(path)
    session = transcript_summary.session_from_summary(
        summary, id, path, workspace, has_sidecar=key.sidecar_mtime_ns > 0
    )
    if session is not None and trashed_at is not None:
        session = msgspec.structs.replace(session, deleted_at=trashed_at)
    next_path = None
    if summary.continued_in is not None:
        next_path = os.path.join(os.path.dirname(path), f"{summary.continued_in}.jsonl")
    problem = _NO_ENTRIES if summary.is_sidechain is None else None
    state = codec.encode(summary)
    return IndexedFile(key=key, state=state, session=session, next=next_path, problem=problem)


def current_key(status: os.stat_result, known_key: FileKey) -> FileKey:
    """Return the key of an open file, which may be newer than the known key."""
    return FileKey(status.st_ino, status.st_size, status.st_mtime_ns, known_key.sidecar_mtime_ns)
