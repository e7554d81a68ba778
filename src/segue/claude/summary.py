"""Keep a summary of each session in a SessionStore, so that a list loads no transcript."""

from __future__ import annotations

from typing import Any, cast

from segue.model.anthropic.sdk_types import SDKSessionInfo
from segue.sources.claude.sdk import sdk_summary

from .protocol import SessionKey, SessionStoreEntry, SessionSummaryEntry


def fold_session_summary(
    prev: SessionSummaryEntry | None, key: SessionKey, entries: list[SessionStoreEntry]
) -> SessionSummaryEntry:
    """Return the summary after more entries of a session. Not for subagents' transcripts.

    `mtime` is that of `prev`, or 0: only the store knows when it wrote.
    """
    summary: SessionSummaryEntry = {"session_id": key["session_id"], "mtime": 0, "data": {}}
    if prev is not None:
        summary = {**prev, "data": dict(prev["data"])}
    sdk_summary.fold_entries(summary["data"], cast("list[dict[str, Any]]", entries))
    return summary


def info_of(summary: SessionSummaryEntry, directory: str | None = None) -> SDKSessionInfo | None:
    """Return a summary as session info; None for a session that lists leave out."""
    return sdk_summary.info_from_summary(
        summary["session_id"], summary["mtime"], summary["data"], directory
    )
