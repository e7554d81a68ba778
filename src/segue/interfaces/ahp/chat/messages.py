"""Messages of the user, inputs of tools and plans, as clients show them."""

from __future__ import annotations

import json
from typing import Any

from segue.model.content import Image, plain_text
from segue.model.event import PlanChanged, UserMessage


def message_fields(message: UserMessage) -> dict[str, Any]:
    """Return a message of the user as clients have it."""
    fields: dict[str, Any] = {"text": _typed_text(message), "origin": {"kind": "user"}}
    images = [block for block in message.content if isinstance(block, Image) and block.data]
    if images:
        fields["attachments"] = [
            {
                "type": "embeddedResource",
                "label": f"Image {number}",
                "displayKind": "image",
                "data": image.data,
                "contentType": image.mime,
            }
            for number, image in enumerate(images, 1)
        ]
    return fields


def _typed_text(message: UserMessage) -> str:
    """Return what a person typed; the labels of inserted parts if a person typed nothing."""
    content = tuple(block for block in message.content if not isinstance(block, Image))
    if not message.inserted:
        return plain_text(content)
    texts = {}
    for number, block in enumerate(message.content):
        text = getattr(block, "text", None)
        if isinstance(text, str):
            texts[number] = text
    for part in sorted(message.inserted, key=lambda part: part.start, reverse=True):
        text = texts.get(part.block, "")
        texts[part.block] = text[: part.start] + text[part.end :]
    typed = "\n\n".join(text.strip() for text in texts.values() if text.strip())
    return typed or ", ".join(part.label or part.kind for part in message.inserted)


def input_text(value: Any) -> str:
    """Return the input of a tool call as text: a single command, or JSON."""
    if isinstance(value, dict) and set(value) == {"command"} and isinstance(value["command"], str):
        return value["command"]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def plan_text(plan: PlanChanged) -> str:
    """Return a plan as a list with boxes, in Markdown."""
    boxes = {"completed": "[x]", "in_progress": "[>]", "cancelled": "[-]"}
    entries = (f"- {boxes.get(entry.status, '[ ]')} {entry.content}" for entry in plan.entries)
    return "\n".join(("**Plan**", "", *entries))
