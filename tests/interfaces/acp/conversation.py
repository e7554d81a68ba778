"""What a client shows of a session, made from updates by the rules of either version."""

from collections.abc import Iterable
from typing import Any

from tests.interfaces.acp.harness import Update

Entry = tuple[str, str]


def conversation(updates: Iterable[Update]) -> list[Entry]:
    """Who said what, and each tool call with how it ended: the same for both versions."""
    entries: dict[tuple[str, str], Any] = {}
    for _, kind, body in updates:
        who, _, rest = kind.partition("_")
        if kind.startswith(("user_message", "agent_message", "agent_thought")):
            name = "thought" if "thought" in kind else who
            key = (name, body["messageId"])
            if rest.endswith("_chunk"):
                entries[key] = entries.get(key, "") + _text(body["content"])
            elif "content" in body:
                entries[key] = "".join(map(_text, body["content"] or ()))
        elif kind in ("tool_call", "tool_call_update"):
            key = ("tool", body["toolCallId"])
            title, status = entries.get(key, ("", ""))
            entries[key] = (body.get("title", title), body.get("status", status))
    return [
        (name, f"{held[0]}: {held[1]}" if isinstance(held, tuple) else held)
        for (name, _), held in entries.items()
    ]


def _text(block: dict[str, Any]) -> str:
    return str(block.get("text", f"[{block['type']}]"))
