"""What the session functions answer: the names and fields of Claude's own SDK."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass
class SDKSessionInfo:
    """One session, as lists show it. Times are milliseconds since the epoch."""

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
    # None when it never was: false says that somebody, or a later prompt, took it out again.
    archived: bool | None = None


@dataclass
class SessionMessage:
    """One message of a conversation; `message` is what the model's interface sent or received."""

    type: Literal["user", "assistant", "system"]
    uuid: str
    session_id: str
    message: Any
    parent_tool_use_id: str | None = None
    parent_agent_id: str | None = None


@dataclass
class ForkSessionResult:
    """The id of the session that a fork made."""

    session_id: str
