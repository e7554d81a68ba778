"""Transcripts of files into a SessionStore."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import cast

from segue.sources.claude.exchange import bundle, transcript_line
from segue.sources.claude.format import jsonl, safe_io, sidecar, subagents
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.sdk.locate import find_transcript

from .changes import checked_id
from .protocol import SessionKey, SessionStore, SessionStoreEntry

BATCH = 500  # entries, and
_BATCH_SIZE = 1 << 20  # bytes, that one append has at most


async def import_session_to_store(
    session_id: str,
    store: SessionStore,
    *,
    directory: str | None = None,
    include_subagents: bool = True,
    batch_size: int = BATCH,
) -> None:
    """Append a session's transcript to a SessionStore, and those of its agents.

    A damaged line costs what it lost and nothing else. The key is the one under which the session
    would have been mirrored while it ran.
    """
    checked_id(session_id)
    place = find_transcript(ClaudeHome.current(), session_id, directory)
    if place is None:
        raise FileNotFoundError(f"Session {session_id} not found")
    key = key_of(place.path)
    size = batch_size if batch_size > 0 else BATCH
    try:
        await _append(store, key, place.path, size)
    except safe_io.UnreadableFile:
        raise FileNotFoundError(f"Session {session_id} not found") from None
    if not include_subagents:
        return
    for _, path in subagents.list_agent_transcripts(place.path):
        key = key_of(place.path, path)
        try:
            await _append(store, key, path, size)
        except safe_io.UnreadableFile:
            continue
        if about := subagents.read_metadata(path):
            entry = cast("SessionStoreEntry", {**about, "type": transcript_line.SUBAGENT_METADATA})
            await store.append(key, [entry])


def key_of(session: str, agent: str | None = None) -> SessionKey:
    """The key of the transcript in a file: a session's own, or that of an agent of it."""
    project, name = os.path.split(sidecar.sidecar_directory(session))
    key: SessionKey = {"project_key": os.path.basename(project), "session_id": name}
    if agent is not None:
        key["subpath"] = bundle.subagent_subpath(session, agent)
    return key


async def _append(store: SessionStore, key: SessionKey, path: str, size: int) -> None:
    for batch in _batches(path, size):
        await store.append(key, batch)


def _batches(path: str, size: int) -> Iterator[list[SessionStoreEntry]]:
    batch: list[SessionStoreEntry] = []
    held = 0
    with safe_io.open_for_reading(path) as (descriptor, _):
        for _, length, line in safe_io.read_lines(descriptor, longest=None):
            batch += cast("list[SessionStoreEntry]", jsonl.parse_entries(line))
            held += length
            if batch and (len(batch) >= size or held >= _BATCH_SIZE):
                yield batch
                batch, held = [], 0
    if batch:
        yield batch
