"""Protect a session from Claude Code's cleanup of old transcripts."""

from __future__ import annotations

import os
import time
from typing import Any

from segue.sources import safe_io
from segue.sources.claude.format import jsonl
from segue.sources.claude.format.paths import ClaudeHome, TranscriptFile

DEFAULT_CLEANUP_DAYS = 30
_MAX_CLEANUP_DAYS = 100_000
_DAY_SECONDS = 86_400


def pin_session(home: ClaudeHome, transcript: TranscriptFile, days: int) -> int:
    """Protect a session for some days. Return the end of the protection in milliseconds.

    The cleanup goes by the modification time of the file, so that is what changes: it is set to
    the future if `days` exceeds what the cleanup grants anyway. Raise ValueError if `days` is not
    positive.
    """
    if days <= 0:
        raise ValueError("days must be positive")
    now = time.time()
    granted = cleanup_days(home)
    modified = now + max(0, days - granted) * _DAY_SECONDS
    os.utime(transcript.path, (now, modified), follow_symlinks=False)
    return int((modified + granted * _DAY_SECONDS) * 1000)


def unpin_session(transcript: TranscriptFile) -> None:
    """Set the modification time of a transcript back to the time of its last entry."""
    with safe_io.open_for_reading(transcript.path) as (descriptor, status):
        last = _last_entry_time(descriptor, status.st_size)
    if last is not None and last < status.st_mtime:
        os.utime(transcript.path, (status.st_atime, last), follow_symlinks=False)


def cleanup_days(home: ClaudeHome) -> int:
    """Return after how many days Claude Code deletes a transcript, by this home's settings."""
    settings = jsonl.read_object(os.path.join(home.root, "settings.json"))
    days: Any = settings.get("cleanupPeriodDays")
    is_valid = isinstance(days, int) and 0 <= days < _MAX_CLEANUP_DAYS
    return days if is_valid else DEFAULT_CLEANUP_DAYS


def _last_entry_time(descriptor: int, size: int) -> float | None:
    """Return the time of the last entry in seconds, or None if no entry has one."""
    for block in safe_io.read_blocks_backwards(descriptor, 0, size):
        for line in reversed(block.split(b"\n")):
            for entry in reversed(jsonl.parse_entries(line)):
                if (at := jsonl.parse_timestamp(entry.get("timestamp"))) is not None:
                    return at / 1e6
    return None
