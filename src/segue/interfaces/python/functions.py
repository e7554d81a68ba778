"""The Agent SDK's session functions, for the sessions of the store and of every source."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from msgspec import to_builtins

from segue import claude
from segue.claude.event_messages import messages_from_events
from segue.hub import Hub
from segue.hub.sessions import directories
from segue.model import ids
from segue.model.anthropic.sdk_types import (
    ForkSessionResult,
    SDKSessionInfo,
    SessionMessage,
    page_slice,
)
from segue.model.content import plain_text, truncate_prompt
from segue.model.errors import NotFound
from segue.model.event import UserMessage
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.model.session import Session

from .hub_handle import StoreLocation, open_for_call

CLAUDE = "claude"
_PAGE_SIZE = 200


@dataclass
class SessionInfo(SDKSessionInfo):
    """One row of a list of sessions. `source` is segue or the tool whose session it is."""

    source: str = "segue"
    status: str = "idle"


class SearchResult(NamedTuple):
    """A session that matches a search, and the text around the words."""

    session: SessionInfo
    snippet: str


async def list_sessions(
    directory: str | os.PathLike[str] | None = None,
    limit: int | None = None,
    offset: int = 0,
    include_worktrees: bool = True,
    *,
    store: StoreLocation = None,
) -> list[SessionInfo]:
    """Return sessions, most recently active first: all, or those of a directory.

    The worktrees of the directory's repository are included, unless `include_worktrees` is False.
    """
    cwd = None if directory is None else os.path.abspath(directory)
    query = Query(cwd=cwd, worktrees=include_worktrees, archived="include", limit=_PAGE_SIZE)
    page = page_slice(limit, offset)
    sessions: list[Session] = []
    async with open_for_call(store) as hub:
        async for session in _read_pages(hub, query):
            if len(sessions) == page.stop:
                break
            sessions.append(session)
        return [await _session_info(hub, session) for session in sessions[page]]


async def search_sessions(
    text: str,
    directory: str | os.PathLike[str] | None = None,
    limit: int = 20,
    *,
    include_archived: bool = True,
    store: StoreLocation = None,
) -> list[SearchResult]:
    """Return the newest sessions that contain every word of `text`, each with a snippet.

    Words are searched in messages, titles, tags, directories, branches and sources. Raises
    InvalidInput if `text` has no word.
    """
    cwd = None if directory is None else os.path.abspath(directory)
    archived: Literal["include", "exclude"] = "include" if include_archived else "exclude"
    query = Query(text=text, cwd=cwd, worktrees=cwd is not None, archived=archived, limit=limit)
    async with open_for_call(store) as hub:
        page = await hub.sessions.search(LOCAL, query)
        return [
            SearchResult(await _session_info(hub, match.session), match.snippet)
            for match in page.matches
        ]


async def get_session_info(
    session_id: str,
    directory: str | os.PathLike[str] | None = None,
    *,
    store: StoreLocation = None,
) -> SessionInfo | None:
    """Return one session; None if the id is unknown, or the session is not of `directory`."""
    async with open_for_call(store) as hub:
        try:
            return await _session_info(hub, await _current_session(hub, session_id, directory))
        except NotFound:
            return None


async def get_session_messages(
    session_id: str,
    limit: int | None = None,
    offset: int = 0,
    *,
    directory: str | os.PathLike[str] | None = None,
    include_system_messages: bool = False,
    store: StoreLocation = None,
) -> list[SessionMessage]:
    """Return the messages of a conversation in the form of model APIs; empty for an unknown id."""
    async with open_for_call(store) as hub:
        try:
            session = await _current_session(hub, session_id, directory)
        except NotFound:
            return []
        if await hub.sessions.owner(LOCAL, session.id) == CLAUDE:
            return claude.get_session_messages(
                session.id, None, limit, offset, include_system_messages=include_system_messages
            )
        read = hub.history.read(LOCAL, session.id)
        events = [event async for event in read if event.body.thread is None]
    return messages_from_events(
        session, events, limit, offset, include_system_messages=include_system_messages
    )


async def rename_session(
    session_id: str,
    title: str,
    directory: str | os.PathLike[str] | None = None,
    *,
    store: StoreLocation = None,
) -> None:
    """Set the title of a session. Raises NotFound if the id is unknown."""
    async with open_for_call(store) as hub:
        await hub.editor.set_title(
            LOCAL, (await _current_session(hub, session_id, directory)).id, title
        )


async def tag_session(
    session_id: str,
    tag: str | None,
    directory: str | os.PathLike[str] | None = None,
    *,
    store: StoreLocation = None,
) -> None:
    """Set the tag of a session; None removes it. Raises NotFound if the id is unknown."""
    async with open_for_call(store) as hub:
        await hub.editor.set_tag(
            LOCAL, (await _current_session(hub, session_id, directory)).id, tag
        )


async def archive_session(
    session_id: str,
    directory: str | os.PathLike[str] | None = None,
    *,
    store: StoreLocation = None,
) -> None:
    """Archive a session. Raises NotFound if the id is unknown."""
    async with open_for_call(store) as hub:
        await hub.editor.archive(LOCAL, (await _current_session(hub, session_id, directory)).id)


async def unarchive_session(
    session_id: str,
    directory: str | os.PathLike[str] | None = None,
    *,
    store: StoreLocation = None,
) -> None:
    """Move an archived session back to the normal list. Raises NotFound if the id is unknown."""
    async with open_for_call(store) as hub:
        await hub.editor.unarchive(LOCAL, (await _current_session(hub, session_id, directory)).id)


async def delete_session(
    session_id: str,
    directory: str | os.PathLike[str] | None = None,
    *,
    permanently: bool = False,
    store: StoreLocation = None,
) -> None:
    """Move a session to the trash, or delete it permanently.

    Raises NotFound if the id is unknown, Busy while a turn runs in it.
    """
    async with open_for_call(store) as hub:
        id = (await _current_session(hub, session_id, directory)).id
        await (hub.editor.purge if permanently else hub.editor.trash)(LOCAL, id)


async def fork_session(
    session_id: str,
    up_to_message_id: str | None = None,
    title: str | None = None,
    *,
    directory: str | os.PathLike[str] | None = None,
    store: StoreLocation = None,
) -> ForkSessionResult:
    """Fork a session: copy its history, or the part up to a message, into a new session.

    Raises NotFound if the session or the message is unknown.
    """
    async with open_for_call(store) as hub:
        id = (await _current_session(hub, session_id, directory)).id
        at = None
        if up_to_message_id is not None:
            # The ids of its messages are those in its files.
            if await hub.sessions.owner(LOCAL, id) == CLAUDE:
                try:
                    return claude.fork_session(id, None, up_to_message_id, title)
                except ValueError as error:
                    raise NotFound(str(error), session=id) from None
            at = await hub.history.locate(LOCAL, id, _normalize_id(up_to_message_id))
        forked = await hub.editor.fork(LOCAL, id, at=at, title=title)
        return ForkSessionResult(session_id=forked.id)


@dataclass
class ResumeInResult:
    """A session that continues another one, and how its tool is started.

    `command` and `environment` are empty if segue answers, and after a dry run. `report` says what
    the tool could not hold: its `losses` name the parts, their number and what became of them.
    """

    session_id: str | None
    cwd: str
    command: list[str]
    environment: dict[str, str]
    report: dict[str, Any]


async def resume_in(
    session_id: str,
    tool: str,
    *,
    model: str | None = None,
    keep_turns: int | None = None,
    dry_run: bool = False,
    store: StoreLocation = None,
) -> ResumeInResult:
    """Write a session for another tool with the whole conversation, so that the tool resumes it.

    `session_id` is what the command line accepts: an id, the beginning of one, the id that its
    tool gave it, or a part of its title. `tool` is a name such as codex; `segue` is segue's own
    agent, for which `model` is a model as provider:name.

    With `keep_turns`, a summary that `model` or the configured one writes replaces everything
    before these last turns. With `dry_run`, only the report is made. The tool is not started.

    Raises NotFound if the session is unknown, InvalidInput if the tool is or if several sessions
    match, NoAgent if segue has no model.
    """
    from segue.hub.sync.continuing import Handoff

    handoff = None
    if keep_turns is not None:
        handoff, model = Handoff(keep_turns, model), None
    async with open_for_call(store) as hub:
        match = await hub.sessions.resolve(LOCAL, session_id)
        session = await _current_session(hub, match.id)
        if dry_run:
            report = await hub.continuing.report(LOCAL, session.id, tool, handoff=handoff)
            return ResumeInResult(None, session.cwd, [], {}, to_builtins(report))
        new, report, command = await hub.continuing.continue_in(
            LOCAL, session.id, tool, model=model, handoff=handoff
        )
    arguments = [] if command is None else list(command.arguments)
    environment = {} if command is None else dict(command.environment)
    return ResumeInResult(new.id, new.cwd, arguments, environment, to_builtins(report))


async def _read_pages(hub: Hub, query: Query) -> AsyncIterator[Session]:
    cursor: str | None = None
    seen: set[str] = set()  # a session that changes meanwhile is listed again at the end
    while True:
        page = await hub.sessions.list(LOCAL, query, cursor)
        for session in page.sessions:
            if session.id not in seen:
                seen.add(session.id)
                yield session
        if (cursor := page.next) is None:
            return


async def _current_session(
    hub: Hub, session_id: str, directory: str | os.PathLike[str] | None = None
) -> Session:
    """Return a session with what its tool has added, which is pulled first.

    Raises NotFound if it is unknown, in the trash or not of `directory`.

    The worktrees of the directory's repository count as the directory.
    """
    await hub.sync.ensure_current(LOCAL, _normalize_id(session_id))
    session = await hub.sessions.get(LOCAL, _normalize_id(session_id))
    if session.state == "trashed":
        raise NotFound(f"session {session_id} was deleted", session=session.id)
    if directory is not None:
        path = os.path.abspath(directory)
        if session.directory not in directories.directories(path, worktrees=True):
            message = f"session {session_id} is not of {path} but of {session.cwd}"
            raise NotFound(message, session=session.id)
    return session


async def _file_size(hub: Hub, session: Session) -> int | None:
    """Return the size of the transcript of another tool's session, if it is one file."""
    if await hub.sessions.owner(LOCAL, session.id) != CLAUDE:
        return None
    info = claude.get_session_info(session.native_id or session.id)
    return None if info is None else info.file_size


async def _session_info(hub: Hub, session: Session) -> SessionInfo:
    first = await hub.history.events(LOCAL, session.id, types=("user_message",), limit=1)
    body = first[0].body if first else None
    prompt = truncate_prompt(plain_text(body.content)) if isinstance(body, UserMessage) else None
    return SessionInfo(
        session_id=session.id,
        summary=session.title or prompt or "",
        last_modified=session.active_at // 1000,
        custom_title=session.title if session.title_by == "person" else None,
        first_prompt=prompt or None,
        git_branch=session.git_branch,
        cwd=session.cwd,
        tag=session.tag,
        created_at=session.created_at // 1000,
        archived=True if session.archived_at is not None else None,
        source=session.source,
        status=session.status,
        file_size=await _file_size(hub, session),
    )


def _normalize_id(id: str) -> str:
    """Return an id in its canonical form; other text, which matches no session, unchanged."""
    return ids.parse(id) or id
