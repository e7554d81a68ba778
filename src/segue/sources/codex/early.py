"""Read the rollouts of Codex before 0.32: their lines have no envelope, no times and no events.

The first line is the thread's meta data, the others are what the model sees. Nothing says which
messages a person typed, so they are known by their beginnings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from segue.model.content import Block, plain_text

_CONTEXT = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions")
_CWD = re.compile(r"<cwd>([^<\n]+)</cwd>|^Current working directory: (.+)$", re.MULTILINE)


def with_envelope(record: dict[str, Any]) -> dict[str, Any]:
    """Return a line as later versions write it; empty if it is no part of the history."""
    if isinstance(record.get("type"), str):
        return {"type": "response_item", "payload": record}
    if isinstance(record.get("id"), str):
        meta = {"timestamp": record.get("timestamp"), "payload": record}
        return {"type": "session_meta", **meta}
    return {}


def is_typed(content: Sequence[Block]) -> bool:
    """Return whether a person typed a message to the model."""
    return not plain_text(content).lstrip().startswith(_CONTEXT)


def early_cwd(content: Sequence[Block]) -> str | None:
    """Return the working directory that a message to the model names; None if it names none."""
    text = plain_text(content)
    match = _CWD.search(text) if text.lstrip().startswith(_CONTEXT) else None
    return match and (match[1] or match[2]).strip()
