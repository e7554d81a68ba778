"""Apply the changes of tool calls to the events of the calls."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET
from msgspec.structs import replace

from segue.model.event import Event, ToolCall, ToolCallChanged

_FIELDS = ("name", "title", "kind", "input", "content", "locations")


def apply_change(call: ToolCall, change: ToolCallChanged) -> ToolCall:
    """Return a tool call after a change."""
    values = {name: getattr(change, name) for name in _FIELDS}
    return replace(call, **{name: value for name, value in values.items() if value is not UNSET})


def with_changes(events: Iterable[Event]) -> list[Event]:
    """Return events without changes of tool calls: each call has the values after its last change.

    A change stays if its call is not among the events.
    """
    result: list[Event] = []
    positions: dict[str, int] = {}
    for event in events:
        body = event.body
        if isinstance(body, ToolCall):
            positions[body.call_id] = len(result)
        elif isinstance(body, ToolCallChanged) and body.call_id in positions:
            position = positions[body.call_id]
            call = result[position].body
            assert isinstance(call, ToolCall)
            result[position] = replace(result[position], body=apply_change(call, body))
            continue
        result.append(event)
    return result
