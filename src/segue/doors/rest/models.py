"""The models that are configured here."""

from __future__ import annotations

from typing import Any

from ...model.errors import NotFound
from .call import Call
from .settings import DEMO

_MODELS: tuple[dict[str, Any], ...] = (
    {
        "type": "model",
        "id": DEMO,
        "display_name": "The demo agent: no model, it repeats what it is told",
        "created_at": "2026-01-01T00:00:00Z",
        "lifecycle": "active",
        "line": None,
        "capabilities": None,
        "allowed_fallback_models": None,
        "max_input_tokens": None,
        "max_tokens": None,
        "deprecated_at": None,
        "retires_at": None,
    },
)


async def list_(call: Call) -> dict[str, Any]:
    limit = call.params.limit(20, 1000)
    names = [model["id"] for model in _MODELS]
    after, before = call.params.text("after_id"), call.params.text("before_id")
    start = names.index(after) + 1 if after in names else 0
    stop = names.index(before) if before in names else len(names)
    found = _MODELS[start:stop]
    shown = found[:limit] if before is None else found[-limit:]
    return {
        "data": shown,
        "has_more": len(found) > limit,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
    }


async def retrieve(call: Call) -> dict[str, Any]:
    for model in _MODELS:
        if model["id"] == call.path["model_id"]:
            return model
    raise NotFound(f"model {call.path['model_id']} not found")
