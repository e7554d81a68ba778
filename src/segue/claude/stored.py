"""The session functions over a SessionStore, with the names of claude-agent-sdk."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, cast

from segue.model import clock
from segue.model.anthropic.sdk_types import (
    ForkSessionResult,
    SDKSessionInfo,
    SessionMessage,
    page_slice,
)
from segue.sources.claude.edit import fork
from segue.sources.claude.format import append, subagents
from segue.sources.claude.format.paths import is_uuid, resolve_directory
from segue.sources.claude.sdk import messages, sdk_summary

from .changes import check_fork, check_session_id, check_tag, check_title
from .protocol import SessionKey, SessionStore, SessionStoreEntry, SessionSummaryEntry, implements
from .sessions import project_key_for_directory
from .summary import fold_session_summary, info_of

MAX_CONCURRENT_LOADS = 16


async def list_sessions_from_store(
    session_store: SessionStore,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SDKSessionInfo]:
    """Return a directory's sessions, newest first.

    If the store keeps summaries, load only the transcripts of the page's sessions whose summary is
    missing or outdated.
    """
    project, cwd = project_key_for_directory(directory), resolve_directory(directory or ".")
    summaries = await _load_summaries(session_store, project)
    if implements(session_store, "list_sessions"):
        sessions = await session_store.list_sessions(project)
        mtimes = {session["session_id"]: session["mtime"] for session in sessions}
    elif summaries is not None:
        mtimes = {summary["session_id"]: summary["mtime"] for summary in summaries}
    else:
        raise ValueError(
            "session_store implements neither list_session_summaries() nor list_sessions():"
            " it cannot list sessions"
        )
    infos: dict[str, SDKSessionInfo | None] = {}
    for summary in summaries or ():
        id = summary["session_id"]
        if id in mtimes and summary["mtime"] >= mtimes[id]:
            infos[id], mtimes[id] = info_of(summary, cwd), summary["mtime"]
    if summaries is None:
        # Sessions that lists leave out must not count, so all are read before the page is cut.
        infos = await _load_infos(session_store, project, cwd, mtimes)
    newest = sorted(mtimes, key=lambda id: (mtimes[id], id), reverse=True)
    page = [id for id in newest if id not in infos or infos[id]][page_slice(limit, offset)]
    missing = {id: mtimes[id] for id in page if id not in infos}
    infos |= await _load_infos(session_store, project, cwd, missing)
    return [info for id in page if (info := infos[id])]


async def get_session_info_from_store(
    session_store: SessionStore, session_id: str, directory: str | None = None
) -> SDKSessionInfo | None:
    """Return one session as lists show it, or None."""
    if not is_uuid(session_id):
        return None
    key = _key(session_id, directory)
    entries = await session_store.load(key)
    if not entries:
        return None
    cwd = resolve_directory(directory or ".")
    return _info_from_entries(key, entries, clock.now() // 1000, cwd)


async def get_session_messages_from_store(
    session_store: SessionStore,
    session_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionMessage]:
    """Return the messages of a conversation, oldest first; empty for an unknown session."""
    if not is_uuid(session_id):
        return []
    entries = await session_store.load(_key(session_id, directory))
    return messages.messages_from_entries(_objects(entries), limit, offset)


async def list_subagents_from_store(
    session_store: SessionStore, session_id: str, directory: str | None = None
) -> list[str]:
    """Return the ids of the subagents that a session started."""
    if not is_uuid(session_id):
        return []
    if not implements(session_store, "list_subkeys"):
        raise ValueError(
            "session_store does not implement list_subkeys(): it cannot list subagents"
        )
    project = project_key_for_directory(directory)
    subpaths = await session_store.list_subkeys({"project_key": project, "session_id": session_id})
    return list(dict.fromkeys(id for path in subpaths if (id := _agent_id(path)) is not None))


async def get_subagent_messages_from_store(
    session_store: SessionStore,
    session_id: str,
    agent_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionMessage]:
    """Return the messages of one subagent; empty if it is unknown."""
    if not is_uuid(session_id) or not agent_id:
        return []
    key = _key(session_id, directory)
    subpath: str | None = f"subagents/agent-{agent_id}"
    if implements(session_store, "list_subkeys"):
        subpaths = await session_store.list_subkeys(
            {"project_key": key["project_key"], "session_id": session_id}
        )
        subpath = next((path for path in subpaths if _agent_id(path) == agent_id), None)
    if subpath is None:
        return []
    entries = _objects(await session_store.load({**key, "subpath": subpath}))
    page = messages.messages_from_entries(entries, limit, offset, is_agent=True)
    metadata = [entry for entry in entries if entry.get("type") == "agent_metadata"]
    tool_use_id, parent_agent = subagents.parse_started_by(metadata[-1] if metadata else {})
    for message in page:
        message.parent_tool_use_id, message.parent_agent_id = tool_use_id, parent_agent
    return page


async def rename_session_via_store(
    session_store: SessionStore, session_id: str, title: str, directory: str | None = None
) -> None:
    """Set a session's title."""
    check_session_id(session_id)
    fields = {"type": "custom-title", "customTitle": check_title(title)}
    await _append_entry(session_store, session_id, directory, fields)


async def tag_session_via_store(
    session_store: SessionStore, session_id: str, tag: str | None, directory: str | None = None
) -> None:
    """Set a session's tag; None removes it."""
    check_session_id(session_id)
    fields = {"type": "tag", "tag": check_tag(tag)}
    await _append_entry(session_store, session_id, directory, fields)


async def delete_session_via_store(
    session_store: SessionStore, session_id: str, directory: str | None = None
) -> None:
    """Delete a session, if the store supports deletion."""
    check_session_id(session_id)
    if implements(session_store, "delete"):
        await session_store.delete(_key(session_id, directory))


async def fork_session_via_store(
    session_store: SessionStore,
    session_id: str,
    directory: str | None = None,
    up_to_message_id: str | None = None,
    title: str | None = None,
) -> ForkSessionResult:
    """Copy a conversation, complete or up to a message, into a new session."""
    check_fork(session_id, up_to_message_id)
    key = _key(session_id, directory)
    loaded = await session_store.load(key)
    if not loaded:
        raise FileNotFoundError(f"Session {session_id} not found")
    new_title = append.clean_title(title or "")
    if not new_title:
        summary = fold_session_summary(None, key, loaded)
        new_title = fork.fork_title(sdk_summary.facts_from_summary(summary["data"]))
    id, forked = fork.fork_entries(_objects(loaded), session_id, new_title, up_to_message_id)
    await session_store.append({**key, "session_id": id}, cast("list[SessionStoreEntry]", forked))
    return ForkSessionResult(id)


def _key(session_id: str, directory: str | None) -> SessionKey:
    return {"project_key": project_key_for_directory(directory), "session_id": session_id}


def _agent_id(subpath: str) -> str | None:
    """Return the id of the subagent whose transcript has this subpath, or None."""
    name = subpath.rpartition("/")[2]
    is_agent = subpath.startswith("subagents/") and name.startswith("agent-")
    return name[len("agent-") :] if is_agent else None


def _objects(entries: Iterable[Any] | None) -> list[dict[str, Any]]:
    """Return the entries that are JSON objects, as all should be."""
    return [entry for entry in entries or () if isinstance(entry, dict)]


async def _append_entry(
    store: SessionStore, id: str, directory: str | None, fields: dict[str, str]
) -> None:
    # The id lets a store recognise a repeated append. In a file such an entry has none.
    stamp = {"sessionId": id, "uuid": str(uuid.uuid4()), "timestamp": clock.to_rfc3339(clock.now())}
    await store.append(_key(id, directory), [cast("SessionStoreEntry", {**fields, **stamp})])


async def _load_summaries(store: SessionStore, project: str) -> list[SessionSummaryEntry] | None:
    if not implements(store, "list_session_summaries"):
        return None
    try:
        return await store.list_session_summaries(project)
    except NotImplementedError:
        return None


def _info_from_entries(
    key: SessionKey, entries: list[SessionStoreEntry], mtime: int, cwd: str
) -> SDKSessionInfo | None:
    return info_of({**fold_session_summary(None, key, entries), "mtime": mtime}, cwd)


async def _load_infos(
    store: SessionStore, project: str, cwd: str, mtimes: dict[str, int]
) -> dict[str, SDKSessionInfo | None]:
    """Return the info of sessions by loading their entries; empty info where loading fails."""
    if not mtimes:
        return {}
    import anyio  # works with any event loop of the caller

    limiter = anyio.CapacityLimiter(MAX_CONCURRENT_LOADS)
    infos: dict[str, SDKSessionInfo | None] = {}

    async def load(id: str, mtime: int) -> None:
        key: SessionKey = {"project_key": project, "session_id": id}
        async with limiter:
            try:
                entries = await store.load(key)
            except Exception:
                infos[id] = SDKSessionInfo(session_id=id, summary="", last_modified=mtime)
                return
        infos[id] = _info_from_entries(key, entries, mtime, cwd) if entries else None

    async with anyio.create_task_group() as group:
        for id, mtime in mtimes.items():
            group.start_soon(load, id, mtime)
    return infos
