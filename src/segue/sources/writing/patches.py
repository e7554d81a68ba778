"""Calls of `apply_patch`, by meaning: a patch of one hunk is an edit, or writes a file."""

from __future__ import annotations

import re
from typing import Any

from segue.sources.kit.patches import parse_patch

from .tool_names import Arguments

# A line of a patch that an edit cannot say: another name of the file, a removal, a place.
_SPECIAL_LINE = re.compile(r"^(?:\*\*\* (?:Move to|Delete File|End of File)|@@ *\S)", re.M)


def _patch(input: Any) -> str | None:
    """Return the text of a patch, which older versions have in an argument."""
    if isinstance(input, dict):
        input = input.get("input", input.get("patch"))
    return input if isinstance(input, str) else None


def decode_edit(input: Any) -> Arguments | None:
    """Return the edit that a patch makes with one hunk in one file."""
    patch = _patch(input) or ""
    diffs = parse_patch(patch)
    if len(diffs) != 1 or not diffs[0].old or _SPECIAL_LINE.search(patch):
        return None
    return {"path": diffs[0].path, "old": diffs[0].old, "new": diffs[0].new}


def decode_write(input: Any) -> Arguments | None:
    """Return the file that a patch adds, if it adds one."""
    diffs = parse_patch(_patch(input) or "")
    if len(diffs) != 1 or diffs[0].old is not None:
        return None
    return {"path": diffs[0].path, "content": diffs[0].new}
