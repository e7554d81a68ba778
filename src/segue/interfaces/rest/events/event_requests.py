"""The events that clients send."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from segue.hub.resources.content_blocks import BlockIn, SearchResultIn
from segue.hub.resources.first_events import DefineOutcome, SystemMessage, UserMessage
from segue.interfaces.rest.schemas.requests import Body

Results = Annotated[tuple[BlockIn | SearchResultIn, ...], Meta(max_length=1000)]


class Interrupt(Body, frozen=True, tag_field="type", tag="user.interrupt"):
    session_thread_id: str | None = None


class Confirmation(Body, frozen=True, tag_field="type", tag="user.tool_confirmation"):
    tool_use_id: str
    result: Literal["allow", "deny"]
    deny_message: str | None = None
    session_thread_id: str | None = None


class CustomToolResult(Body, frozen=True, tag_field="type", tag="user.custom_tool_result"):
    custom_tool_use_id: str
    content: Results | None = None
    is_error: bool | None = None
    session_thread_id: str | None = None


class ToolResult(Body, frozen=True, tag_field="type", tag="user.tool_result"):
    tool_use_id: str
    content: Results | None = None
    is_error: bool | None = None
    session_thread_id: str | None = None


Incoming = (
    UserMessage
    | Interrupt
    | Confirmation
    | CustomToolResult
    | ToolResult
    | DefineOutcome
    | SystemMessage
)


class Send(Body, frozen=True):
    events: Annotated[tuple[Incoming, ...], Meta(min_length=1, max_length=1000)]
