"""The result types of the session functions, with the names and fields of the Agent SDK."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


def page_slice(limit: int | None, offset: int) -> slice:
    """Return a page as the SDK defines it: a limit below 1 is no limit, a negative offset is 0."""
    start = max(0, offset)
    return slice(start, None if limit is None or limit < 1 else start + limit)


@dataclass
class SDKSessionInfo:
    """One session in a list. Times are milliseconds since the epoch."""

    session_id: str
    summary: str
    last_modified: int
    file_size: int | None = None
    custom_title: str | None = None
    first_prompt: str | None = None
    git_branch: str | None = None
    cwd: str | None = None
    tag: str | None = None
    created_at: int | None = None
    # None if it was never archived; False if a person or a later prompt unarchived it.
    archived: bool | None = None


@dataclass
class SessionMessage:
    """One message of a conversation; `message` is what the model API sent or received."""

    type: Literal["user", "assistant", "system"]
    uuid: str
    session_id: str
    message: Any
    parent_tool_use_id: str | None = None
    parent_agent_id: str | None = None


@dataclass
class ForkSessionResult:
    """The id of the session that a fork created."""

    session_id: str
