"""The fold by which a SessionStore keeps what lists show, so that a list loads no transcript."""

from __future__ import annotations

from typing import Any, cast

from segue.sources.claude.sdk import sdk_summary
from segue.sources.claude.sdk.sdk_types import SDKSessionInfo

from .protocol import SessionKey, SessionStoreEntry, SessionSummaryEntry


def fold_session_summary(
    prev: SessionSummaryEntry | None, key: SessionKey, entries: list[SessionStoreEntry]
) -> SessionSummaryEntry:
    """The summary after some more entries of a session; not for the transcripts of its agents.

    `mtime` stays what it was, 0 at first: the store knows when it wrote.
    """
    made: SessionSummaryEntry = {"session_id": key["session_id"], "mtime": 0, "data": {}}
    if prev is not None:
        made = {**prev, "data": dict(prev["data"])}
    for entry in entries:
        sdk_summary.fold_entry(made["data"], cast("dict[str, Any]", entry))
    return made


def info_of(entry: SessionSummaryEntry, directory: str | None = None) -> SDKSessionInfo | None:
    """A summary as lists show it; None for a session that they leave out."""
    return sdk_summary.info_from_summary(
        entry["session_id"], entry["mtime"], entry["data"], directory
    )
