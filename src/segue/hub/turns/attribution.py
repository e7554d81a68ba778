"""Complete the events of a turn: name their turn and model request, leave out computed titles."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec.structs import replace

from segue.model.event import (
    AgentMessage,
    AgentThought,
    AnyBody,
    Draft,
    Event,
    ModelAsked,
    ToolCall,
    ToolCallChanged,
    ToolResult,
    UserMessage,
)
from segue.model.tools.titles import without_computed_title

_OF_A_TURN = (UserMessage, AgentMessage, AgentThought, ToolCall, ToolCallChanged, ToolResult)


class OpenRequest(NamedTuple):
    """A model request that has begun: the id of its ModelAsked event, and the model."""

    id: str
    model: str | None = None


def open_request(event: Event) -> OpenRequest | None:
    """Return the request that an event begins."""
    body = event.body
    return OpenRequest(event.id, body.model) if isinstance(body, ModelAsked) else None


def attribute(
    draft: AnyBody | Draft, turn: str | None, request: OpenRequest | None
) -> AnyBody | Draft:
    """Return an event with its turn and its model request; values that it has are kept.

    A tool call's title is left out if it can be computed.
    """
    if isinstance(draft, Draft):
        return replace(draft, body=_attribute(draft.body, turn, request))
    return _attribute(draft, turn, request)


def _attribute(body: AnyBody, turn: str | None, request: OpenRequest | None) -> AnyBody:
    if isinstance(body, ToolCall):
        body = without_computed_title(body)
    changes: dict[str, Any] = {}
    if isinstance(body, _OF_A_TURN):
        changes["turn"] = body.turn or turn
    if isinstance(body, AgentMessage | AgentThought | ToolCall) and request is not None:
        changes["request"] = body.request or request.id
    if isinstance(body, AgentMessage) and request is not None:
        changes["model"] = body.model or request.model
    return replace(body, **changes) if changes else body
