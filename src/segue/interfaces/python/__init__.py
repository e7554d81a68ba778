"""The Python door: sessions in a program's hands, and the session functions over all of them."""

from __future__ import annotations

import os
from typing import Unpack

from segue.model import ids
from segue.model.errors import InvalidInput, NotFound

from .functions import (
    SessionInfo,
    fork_session,
    get_session_info,
    get_session_messages,
    list_sessions,
    rename_session,
    tag_session,
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
    "SDKSession",
    "SessionInfo",
    "SystemMessage",
    "UserMessage",
    "create_session",
    "fork_session",
    "get_session_info",
    "get_session_messages",
    "list_sessions",
    "prompt",
    "rename_session",
    "resume_session",
    "tag_session",
    "unstable_v2_create_session",
    "unstable_v2_prompt",
    "unstable_v2_resume_session",
]


def create_session(
    *, model: str, cwd: str | os.PathLike[str] | None = None, **options: Unpack[Options]
) -> SDKSession:
    """A new session, kept in the default store unless the option `store` says otherwise.

    `model` is provider:name; a bare name of Claude's is Anthropic's, and `demo` needs no model.
    `cwd` is where its tools work: the current directory, if none is given.
    """
    return SDKSession(ids.new_id(), model, options, new_in=os.path.abspath(cwd or os.getcwd()))


def resume_session(
    session_id: str,
    *,
    model: str,
    cwd: str | os.PathLike[str] | None = None,
    **options: Unpack[Options],
) -> SDKSession:
    """Take up a session again, with all that was said in it, in its own directory.

    `cwd`, if it is given, must be that directory. The model that is named answers, whichever
    agent the session has.

    One of Claude Code's is imported first, under the same id: its files stay as they are, and
    what is said from now on is kept here. Busy while Claude Code is working on it.
    """
    id = ids.parse(session_id)
    if id is None:
        raise InvalidInput(f"{session_id!r} is no id of a session")
    return SDKSession(id, model, options, known_in=None if cwd is None else os.path.abspath(cwd))


async def prompt(
    text: str,
    *,
    model: str,
    cwd: str | os.PathLike[str] | None = None,
    **options: Unpack[Options],
) -> ResultMessage:
    """Ask one thing in a session of its own, and wait for the result."""
    async with create_session(model=model, cwd=cwd, **options) as session:
        await session.send(text)
        async for message in session.stream():
            if isinstance(message, ResultMessage):
                return message
    raise NotFound(f"no session {session.session_id}: it was deleted meanwhile")


unstable_v2_create_session = create_session
unstable_v2_resume_session = resume_session
unstable_v2_prompt = prompt
