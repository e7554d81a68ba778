"""Sessions from Python: create, resume and prompt, and functions over all sessions."""

from __future__ import annotations

import os
from typing import Unpack

from segue.model import ids
from segue.model.errors import InvalidInput, NotFound

from .functions import (
    ResumeInResult,
    SearchResult,
    SessionInfo,
    archive_session,
    delete_session,
    fork_session,
    get_session_info,
    get_session_messages,
    list_sessions,
    rename_session,
    resume_in,
    search_sessions,
    tag_session,
    unarchive_session,
)
from .messages import (
    AssistantMessage,
    Message,
    PartialMessage,
    ResultMessage,
    SystemMessage,
    UserMessage,
)
from .options import Options
from .session import SDKSession

__all__ = [
    "AssistantMessage",
    "Message",
    "Options",
    "PartialMessage",
    "ResultMessage",
    "ResumeInResult",
    "SDKSession",
    "SearchResult",
    "SessionInfo",
    "SystemMessage",
    "UserMessage",
    "archive_session",
    "create_session",
    "delete_session",
    "fork_session",
    "get_session_info",
    "get_session_messages",
    "list_sessions",
    "prompt",
    "rename_session",
    "resume_in",
    "resume_session",
    "search_sessions",
    "tag_session",
    "unarchive_session",
    "unstable_v2_create_session",
    "unstable_v2_prompt",
    "unstable_v2_resume_session",
]


def create_session(
    *, model: str, cwd: str | os.PathLike[str] | None = None, **options: Unpack[Options]
) -> SDKSession:
    """Create a session in the default store, or in the one that the option `store` names.

    `model` is provider:name; a bare `claude-` name means anthropic, and `demo` needs no model.
    `cwd` is the working directory of its tools, which must exist; the default is the current
    directory. Raises InvalidInput for a bad directory, model or option.
    """
    directory = os.getcwd() if cwd is None else _directory(cwd)
    if not os.path.isdir(directory):
        raise InvalidInput(f"cwd: there is no directory {directory}; create it first")
    return SDKSession(ids.new_id(), model, options, create_in=directory)


def resume_session(
    session_id: str,
    *,
    model: str,
    cwd: str | os.PathLike[str] | None = None,
    **options: Unpack[Options],
) -> SDKSession:
    """Resume a session with its history, in its own working directory.

    `cwd`, if passed, must be that directory. The given `model` answers, not the session's agent.

    A session of another tool is imported first, under the same id. The tool's files stay unchanged,
    and new messages are stored here. Raises Busy while the tool is working on the session.
    """
    id = ids.parse(session_id)
    if id is None:
        raise InvalidInput(f"{session_id!r} is not a session id; list_sessions() returns ids")
    expected_cwd = None if cwd is None else _directory(cwd)
    return SDKSession(id, model, options, expected_cwd=expected_cwd)


def _directory(cwd: str | os.PathLike[str]) -> str:
    if not isinstance(cwd, str | os.PathLike) or not os.fspath(cwd):
        raise InvalidInput(f"cwd must be a directory, not {cwd!r}")
    return os.path.abspath(cwd)


async def prompt(
    text: str,
    *,
    model: str,
    cwd: str | os.PathLike[str] | None = None,
    **options: Unpack[Options],
) -> ResultMessage:
    """Send one prompt in a new session and return the result."""
    async with create_session(model=model, cwd=cwd, **options) as session:
        await session.send(text)
        async for message in session.stream():
            if isinstance(message, ResultMessage):
                return message
    raise NotFound(f"session {session.session_id} was deleted during the turn")


unstable_v2_create_session = create_session
unstable_v2_resume_session = resume_session
unstable_v2_prompt = prompt
