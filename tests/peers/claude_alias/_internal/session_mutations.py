"""The SDK's helpers for writing, in terms of ours."""

from __future__ import annotations

from pathlib import Path

from segue.sources.claude.format import append

_sanitize_unicode = append.clean_tag


def _try_append(path: Path, data: str) -> bool:
    return append.append_lines(str(path), data.encode())
