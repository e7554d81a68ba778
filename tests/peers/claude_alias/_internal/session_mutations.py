"""The SDK's helpers for writing, in terms of ours."""

from __future__ import annotations

from pathlib import Path

from segue.sources.claude import write

_sanitize_unicode = write.clean_tag


def _try_append(path: Path, data: str) -> bool:
    return write.append(str(path), data.encode())
