"""Import transcripts from Claude Code's files into a SessionStore."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import cast

from segue.sources import safe_io
from segue.sources.claude.exchange import bundle, transcript_line
from segue.sources.claude.format import jsonl, sidecar, subagents

from .changes import require_transcript
from .protocol import SessionKey, SessionStore, SessionStoreEntry

DEFAULT_BATCH_ENTRIES = 500
_BATCH_BYTES = 1 << 20


async def import_session_to_store(
    session_id: str,
    store: SessionStore,
    *,
    directory: str | None = None,
    include_subagents: bool = True,
    batch_size: int = DEFAULT_BATCH_ENTRIES,
) -> None:
    """Append a session's transcript and those of its subagents to a SessionStore.

    The readable entries of damaged lines are imported. The key is the one under which the SDK
    mirrors the session while it runs. Raise ValueError or FileNotFoundError.
    """
    transcript = require_transcript(session_id, directory)
    key = key_of(transcript.path)
    max_entries = batch_size if batch_size > 0 else DEFAULT_BATCH_ENTRIES
    try:
        await _append(store, key, transcript.path, max_entries)
    except safe_io.UnreadableFile:
        raise FileNotFoundError(f"Session {session_id} not found") from None
    if not include_subagents:
        return
    for _, path in subagents.list_agent_transcripts(transcript.path):
        key = key_of(transcript.path, path)
        try:
            await _append(store, key, path, max_entries)
        except safe_io.UnreadableFile:
            continue
        if metadata := subagents.read_metadata(path):
            entry = cast(
                "SessionStoreEntry", {**metadata, "type": transcript_line.SUBAGENT_METADATA}
            )
            await store.append(key, [entry])


def key_of(session: str, agent: str | None = None) -> SessionKey:
    """Return the key of a session's transcript, or of one of its subagents'."""
    project, name = os.path.split(sidecar.sidecar_directory(session))
    key: SessionKey = {"project_key": os.path.basename(project), "session_id": name}
    if agent is not None:
        key["subpath"] = bundle.subagent_subpath(session, agent)
    return key


async def _append(store: SessionStore, key: SessionKey, path: str, max_entries: int) -> None:
    for batch in _batches(path, max_entries):
        await store.append(key, batch)


def _batches(path: str, max_entries: int) -> Iterator[list[SessionStoreEntry]]:
    batch: list[SessionStoreEntry] = []
    batch_bytes = 0
    with safe_io.open_for_reading(path) as (descriptor, _):
        for _, length, line in safe_io.read_lines(descriptor, max_bytes=None):
            batch += cast("list[SessionStoreEntry]", jsonl.parse_entries(line))
            batch_bytes += length
            if batch and (len(batch) >= max_entries or batch_bytes >= _BATCH_BYTES):
                yield batch
                batch, batch_bytes = [], 0
    if batch:
        yield batch
