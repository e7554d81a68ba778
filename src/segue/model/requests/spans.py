"""Find where requests to a model begin and end in a session's events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from segue.model import codec
from segue.model.event import AnyBody, Delta, Draft, Event, ModelCalled, Response, Usage

ResponseBody = TypeVar("ResponseBody", bound=Response)
# The types of events that belong to requests.
RESPONSE_TYPES = ("agent_message", "agent_thought", "tool_call", "model_called")


class OpenRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request that has no end yet. `asked_at` is None once an event of its response has it."""

    id: str
    model: str | None = None
    asked_at: str | None = None


_decode: codec.Decoder[OpenRequest] = codec.Decoder(OpenRequest)


def encode_request(request: OpenRequest) -> str:
    """Return a request as the text of a delta."""
    return codec.encode(request).decode("utf-8", "surrogatepass")


def decode_request(text: str) -> OpenRequest:
    """Return the request of a delta's text."""
    return _decode(text.encode("utf-8", "surrogatepass"))


def request_end(body: object) -> ModelCalled | None:
    """Return the end of the request that an event states, also if it is part of a response."""
    if isinstance(body, ModelCalled):
        return body
    if not isinstance(body, Response) or body.usage is None:
        return None
    return ModelCalled(
        usage=body.usage,
        asked=body.request,
        model=body.model,
        duration=body.duration,
        context_used=body.context_used,
        context_size=body.context_size,
        thread=body.thread,
    )


def without_request(body: ResponseBody) -> ResponseBody:
    """Return an event of a response without what it says about its request."""
    return replace(
        body,
        request=None,
        asked_at=None,
        model=None,
        usage=None,
        duration=None,
        context_used=None,
        context_size=None,
    )


def failed_request(request: OpenRequest | None) -> list[AnyBody]:
    """Return the end of a request that will get no response, if one was running."""
    if request is None:
        return []
    asked_at = request.asked_at
    return [ModelCalled(usage=Usage(), asked=request.id, asked_at=asked_at, is_error=True)]


def begun_request(body: object) -> str | None:
    """Return the id of the request whose beginning an event states."""
    if isinstance(body, Response):
        return None if body.asked_at is None else body.request
    return body.asked if isinstance(body, ModelCalled) and body.asked_at is not None else None


def after_event(request: OpenRequest | None, event: Event) -> OpenRequest | None:
    """Return the open request after an event was stored."""
    if request is None:
        return None
    end = request_end(event.body)
    if end is not None and end.asked == request.id:
        return None
    return replace(request, asked_at=None) if begun_request(event.body) == request.id else request


def find_open_request(events: Iterable[Event], deltas: Iterable[Delta]) -> OpenRequest | None:
    """Return the request that was running at the end of a history.

    `events` are the last ones of RESPONSE_TYPES, the newest first. Before a request has any event,
    it is a delta.
    """
    for delta in deltas:
        if delta.kind == "request":
            return decode_request(delta.text)
    newest: str | None = None
    for event in events:
        end = request_end(event.body)
        if newest is None:
            if end is not None or not isinstance(event.body, Response):
                return None
            newest = event.body.request
        if newest is None or (end is not None and end.asked == newest):
            return None
        if begun_request(event.body) == newest:
            return OpenRequest(id=newest, model=getattr(event.body, "model", None))
    return None


def fold_request_end(drafts: list[Draft], request: OpenRequest | None) -> list[Draft]:
    """Return drafts with the usage of a request on the last event of its response.

    The ModelCalled event stays if there is no such event, or if the request failed. The first of
    the request's events has `asked_at`, unless it is stored already.
    """
    if request is None:
        return drafts
    folded: list[Draft] = []
    last = -1  # the index of the last event of the response
    asked_at = request.asked_at
    for draft in drafts:
        body = draft.body
        if isinstance(body, ModelCalled) and body.asked == request.id:
            if last >= 0 and not body.is_error and body.thread is None:
                folded[last] = _with_end(folded[last], body)
                continue
            draft = replace(draft, body=replace(body, asked_at=asked_at))
            asked_at = None
        elif isinstance(body, Response) and body.request == request.id:
            last = len(folded)
            draft = replace(draft, body=replace(body, asked_at=asked_at))
            asked_at = None
        folded.append(draft)
    return folded


def _with_end(draft: Draft, end: ModelCalled) -> Draft:
    assert isinstance(draft.body, Response)
    body = replace(
        draft.body,
        usage=end.usage,
        model=end.model or draft.body.model,
        duration=end.duration,
        context_used=end.context_used,
        context_size=end.context_size,
    )
    return replace(draft, body=body)
