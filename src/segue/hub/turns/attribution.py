"""Complete the events of a turn: name their turn and model request, leave out computed titles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from segue.model import clock, ids
from segue.model.event import (
    AgentMessage,
    AnyBody,
    Draft,
    Event,
    ModelCalled,
    Response,
    ToolCall,
    ToolCallChanged,
    ToolResult,
    UserMessage,
)
from segue.model.requests.spans import OpenRequest, after_event, failed_request, fold_request_end
from segue.model.tools.titles import without_computed_title


class TurnRequests:
    """The model requests of a turn. At most one is open at a time."""

    def __init__(self) -> None:
        self._open: OpenRequest | None = None

    def begin(self, model: str | None) -> OpenRequest:
        """Return a new request, which is now the open one."""
        asked_at = clock.to_rfc3339(clock.now())
        self._open = OpenRequest(id=ids.new_id(), model=model, asked_at=asked_at)
        return self._open

    def failed(self, unstored: Iterable[Draft] = ()) -> list[AnyBody]:
        """Return the event that ends the open request without a response.

        Without an open request, or if one of the drafts ends it, there is no such event.
        """
        has_ended = any(isinstance(draft.body, ModelCalled) for draft in unstored)
        return [] if has_ended else failed_request(self._open)

    def attribute(self, drafts: Iterable[AnyBody | Draft], turn: str) -> list[Draft]:
        """Return events with their turn and the open request."""
        return attribute(drafts, turn, self._open)

    def message_ids(self, drafts: Sequence[AnyBody | Draft]) -> set[str | None]:
        """Return the ids whose deltas are replaced when the events are stored."""
        messages = {draft.id for draft in drafts if isinstance(draft, Draft)}
        bodies = (draft.body if isinstance(draft, Draft) else draft for draft in drafts)
        if self._open and any(isinstance(body, Response | ModelCalled) for body in bodies):
            messages.add(self._open.id)
        return messages

    def add(self, events: Iterable[Event]) -> None:
        """Note the events that were stored; they may end the open request."""
        for event in events:
            self._open = after_event(self._open, event)


def attribute(
    drafts: Iterable[AnyBody | Draft], turn: str | None, request: OpenRequest | None
) -> list[Draft]:
    """Return events with their turn and their model request; values that they have are kept.

    The last event of the request's response has its usage. A tool call's title is left out if it
    can be computed.
    """
    attributed = []
    for draft in drafts:
        draft = draft if isinstance(draft, Draft) else Draft(body=draft)
        attributed.append(replace(draft, body=_attribute(draft.body, turn, request)))
    return fold_request_end(attributed, request)


def _attribute(body: AnyBody, turn: str | None, request: OpenRequest | None) -> AnyBody:
    if isinstance(body, ToolCall):
        body = without_computed_title(body)
    changes: dict[str, Any] = {}
    if isinstance(body, UserMessage | Response | ToolCallChanged | ToolResult):
        changes["turn"] = body.turn or turn
    if isinstance(body, Response) and request is not None:
        changes["request"] = body.request or request.id
    if isinstance(body, AgentMessage) and request is not None:
        changes["model"] = body.model or request.model
    return replace(body, **changes) if changes else body
