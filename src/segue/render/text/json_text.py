"""Show values as JSON for people."""

from __future__ import annotations

import json
from typing import Any

from segue.render.relative_paths import NESTED_TOO_DEEPLY

MAX_INDENTED_DEPTH = 20  # of JSON that is shown on several lines


def to_json(value: Any) -> str:
    """Return a value as JSON for people; a note if it is nested too deeply."""
    # Each line of a deeply nested value would begin with hundreds of spaces.
    indent = None if _is_deeper(value, MAX_INDENTED_DEPTH) else 2
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False)
    except RecursionError:
        return NESTED_TOO_DEEPLY


def _is_deeper(value: Any, depth: int) -> bool:
    """Return True if lists and objects are nested deeper than `depth`."""
    level = [value]
    for _ in range(depth + 1):
        nested = [item for item in level if isinstance(item, dict | list)]
        level = [
            item
            for container in nested
            for item in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return False
    return True
