"""The events that clients send, as they spell them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from segue.interfaces.rest.schemas.requests import Body

from . import blocks

MAX_RUBRIC = 262_144

Blocks = Annotated[tuple[blocks.BlockIn, ...], Meta(min_length=1, max_length=1000)]
Results = Annotated[tuple[blocks.BlockIn | blocks.SearchResultIn, ...], Meta(max_length=1000)]


class UserMessage(Body, frozen=True, tag_field="type", tag="user.message"):
    content: Blocks


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


class TextRubric(Body, frozen=True, tag_field="type", tag="text"):
    content: Annotated[str, Meta(min_length=1, max_length=MAX_RUBRIC)]


class FileRubric(Body, frozen=True, tag_field="type", tag="file"):
    file_id: str


class DefineOutcome(Body, frozen=True, tag_field="type", tag="user.define_outcome"):
    description: Annotated[str, Meta(min_length=1)]
    rubric: TextRubric | FileRubric
    max_iterations: Annotated[int, Meta(ge=1, le=20)] | None = None


class SystemMessage(Body, frozen=True, tag_field="type", tag="system.message"):
    content: Annotated[tuple[blocks.TextIn, ...], Meta(min_length=1, max_length=1000)]


Incoming = (
    UserMessage
    | Interrupt
    | Confirmation
    | CustomToolResult
    | ToolResult
    | DefineOutcome
    | SystemMessage
)
Initial = UserMessage | DefineOutcome
Opening = Initial | SystemMessage  # what a deployment may begin its sessions with


class Send(Body, frozen=True):
    events: Annotated[tuple[Incoming, ...], Meta(min_length=1, max_length=1000)]
