"""The settings of a session that a client can change."""

from __future__ import annotations

from typing import Any

from segue.agents.base.spec import MODE_LABELS

MODE = "mode"


def session_config(mode: str | None) -> dict[str, Any]:
    """Return the settings of a session, with their values."""
    labels = {id: label for id, (label, _) in MODE_LABELS.items()}
    schema = {
        "type": "string",
        "title": "Mode",
        "description": "When segue's agent asks before it acts",
        "enum": list(labels),
        "enumLabels": list(labels.values()),
        "enumDescriptions": [description for _, description in MODE_LABELS.values()],
        "default": "default",
        "sessionMutable": True,
    }
    value = mode if mode in MODE_LABELS else "default"
    return {
        "schema": {"type": "object", "properties": {MODE: schema}},
        "values": {MODE: value},
    }
