"""The session functions, over the store and every source: the Agent SDK's names and fields."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass

from segue import claude
from segue.hub import Hub
from segue.model import ids
from segue.model.content import plain_text
from segue.model.errors import NotFound
from segue.model.event import UserMessage
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.model.session import Session
from segue.sources.claude.exchange import transcript_writer
from segue.sources.claude.format.prompt import truncate
from segue.sources.claude.sdk import messages
from segue.sources.claude.sdk.sdk_types import ForkSessionResult, SDKSessionInfo, SessionMessage

from .opening import Where, hub_of

CLAUDE = "claude"
_PAGE = 200


@dataclass
class SessionInfo(SDKSessionInfo):
    """One session as lists show it, whoever keeps it."""

    source: str = "segue"
    status: str = "idle"


async def list_sessions(
    directory: str | os.PathLike[str] | None = None,
    limit: int | None = None,
    offset: int = 0,
    include_worktrees: bool = True,
    *,
    store: Where = None,
) -> list[SessionInfo]:
    """Sessions, the last active first: those of a directory and its worktrees, or all."""
    cwd = None if directory is None else os.path.abspath(directory)
    query = Query(cwd=cwd, worktrees=include_worktrees, archived="include", limit=_PAGE)
    start = max(0, offset)
    end = None if limit is None or limit <= 0 else start + limit
    found: list[Session] = []
    async with hub_of(store) as hub:
        async for session in _sessions(hub, query):
            if end is not None and len(found) == end:
                break
            found.append(session)
        return [await _info(hub, session) for session in found[start:]]


async def get_session_info(session_id: str, *, store: Where = None) -> SessionInfo | None:
    """One session; None if there is none of that id."""
    async with hub_of(store) as hub:
        try:
            return await _info(hub, await _kept(hub, session_id))
        except NotFound:
            return None


async def get_session_messages(
    session_id: str,
    limit: int | None = None,
    offset: int = 0,
    *,
    include_system_messages: bool = False,
    store: Where = None,
) -> list[SessionMessage]:
    """The conversation, in the form that model interfaces have. Empty for an unknown session."""
    async with hub_of(store) as hub:
        try:
            session = await _kept(hub, session_id)
        except NotFound:
            return []
        if await hub.keeper(LOCAL, session.id) == CLAUDE:
            return claude.get_session_messages(
                session.id, None, limit, offset, include_system_messages=include_system_messages
            )
        events = [event async for event in hub.history(LOCAL, session.id)]
    lines = transcript_writer.transcript_lines(session, events, resumable=False)
    entries = [entry for line in lines for entry in line.entries]
    return messages.messages_from_entries(entries, limit, offset, system=include_system_messages)


async def rename_session(session_id: str, title: str, *, store: Where = None) -> None:
    """Name a session."""
    async with hub_of(store) as hub:
        await hub.set_title(LOCAL, (await _kept(hub, session_id)).id, title)


async def tag_session(session_id: str, tag: str | None, *, store: Where = None) -> None:
    """Tag a session, or with None take its tag away."""
    async with hub_of(store) as hub:
        await hub.set_tag(LOCAL, (await _kept(hub, session_id)).id, tag)


async def fork_session(
    session_id: str,
    up_to_message_id: str | None = None,
    title: str | None = None,
    *,
    store: Where = None,
) -> ForkSessionResult:
    """A new session with the history of another, up to a message of it or all of it."""
    async with hub_of(store) as hub:
        id = (await _kept(hub, session_id)).id
        at = None
        if up_to_message_id is not None:
            if await hub.keeper(LOCAL, id) == CLAUDE:  # whose messages are named as in its files
                try:
                    return claude.fork_session(id, None, up_to_message_id, title)
                except ValueError as error:
                    raise NotFound(str(error), session=id) from None
            at = await hub.locate(LOCAL, id, _id(up_to_message_id))
        forked = await hub.fork(LOCAL, id, at=at, title=title)
        return ForkSessionResult(session_id=forked.id)


async def _sessions(hub: Hub, query: Query) -> AsyncIterator[Session]:
    cursor: str | None = None
    seen: set[str] = set()  # one that is touched meanwhile comes again at the end
    while True:
        page = await hub.list(LOCAL, query, cursor)
        for session in page.sessions:
            if session.id not in seen:
                seen.add(session.id)
                yield session
        if (cursor := page.next) is None:
            return


async def _kept(hub: Hub, session_id: str) -> Session:
    """A session that lists show; one in the trash is gone, as its file would be."""
    session = await hub.get(LOCAL, _id(session_id))
    if session.state == "trashed":
        raise NotFound(f"session {session_id} was deleted", session=session.id)
    return session


async def _info(hub: Hub, session: Session) -> SessionInfo:
    first = await hub.events(LOCAL, session.id, types=("user_message",), limit=1)
    said = first[0].body if first else None
    prompt = truncate(plain_text(said.content)) if isinstance(said, UserMessage) else None
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
    )


def _id(given: str) -> str:
    """An id in any spelling; what is none names nothing."""
    return ids.parse(given) or given
