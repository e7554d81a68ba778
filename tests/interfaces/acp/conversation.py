"""Build the conversation that a client displays from the updates that it received."""

from collections.abc import Iterable
from typing import Any

from tests.interfaces.acp.harness import Update

Entry = tuple[str, str]


def conversation(updates: Iterable[Update]) -> list[Entry]:
    """Return the messages and tool calls of updates. Both protocol versions give the same."""
    entries: dict[tuple[str, str], Any] = {}
    unnamed = 0  # consecutive chunks without an id, which version 1 allows, are one message
    last_kind = ""
    for _, kind, body in updates:
        unnamed += kind != last_kind
        last_kind = kind
        role, _, suffix = kind.partition("_")
        if kind.startswith(("user_message", "agent_message", "agent_thought")):
            name = "thought" if "thought" in kind else role
            key = (name, body.get("messageId", f"unnamed {unnamed}"))
            if suffix.endswith("_chunk"):
                entries[key] = entries.get(key, "") + _text(body["content"])
            elif "content" in body:
                entries[key] = "".join(map(_text, body["content"] or ()))
        elif kind in ("tool_call", "tool_call_update"):
            key = ("tool", body["toolCallId"])
            title, status = entries.get(key, ("", ""))
            entries[key] = (body.get("title", title), body.get("status", status))
    return [
        (name, f"{entry[0]}: {entry[1]}" if isinstance(entry, tuple) else entry)
        for (name, _), entry in entries.items()
    ]


def _text(block: dict[str, Any]) -> str:
    return str(block.get("text", f"[{block['type']}]"))
