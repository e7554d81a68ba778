"""The session functions over a SessionStore instead of files, as claude-agent-sdk names them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any, cast

from segue.model import clock
from segue.sources.claude.edit import fork
from segue.sources.claude.format import append, subagents
from segue.sources.claude.format.paths import is_uuid, resolve_directory
from segue.sources.claude.sdk import messages
from segue.sources.claude.sdk.sdk_types import ForkSessionResult, SDKSessionInfo, SessionMessage

from .changes import checked_fork, checked_id, checked_tag, checked_title
from .protocol import SessionKey, SessionStore, SessionStoreEntry, SessionSummaryEntry, implements
from .sessions import project_key_for_directory
from .summary import fold_session_summary, info_of

LOADS = 16  # transcripts that are loaded at a time


async def list_sessions_from_store(
    session_store: SessionStore,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SDKSessionInfo]:
    """A directory's sessions, the newest first.

    Where the store keeps summaries this loads no transcript, but for those sessions of the page
    whose summary is missing or older than they are.
    """
    project, cwd = project_key_for_directory(directory), resolve_directory(directory or ".")
    summaries = await _summaries(session_store, project)
    if implements(session_store, "list_sessions"):
        listed = await session_store.list_sessions(project)
        times = {each["session_id"]: each["mtime"] for each in listed}
    elif summaries is not None:
        times = {each["session_id"]: each["mtime"] for each in summaries}
    else:
        raise ValueError(
            "session_store implements neither list_session_summaries() nor list_sessions():"
            " it cannot list sessions"
        )
    infos: dict[str, SDKSessionInfo | None] = {}
    for summary in summaries or ():
        id = summary["session_id"]
        if id in times and summary["mtime"] >= times[id]:
            infos[id], times[id] = info_of(summary, cwd), summary["mtime"]
    if summaries is None:
        # What lists leave out must fill no page, so all have to be read before it is cut.
        infos = await _loaded(session_store, project, cwd, times)
    newest = sorted(times, key=lambda id: (times[id], id), reverse=True)
    page = _page([id for id in newest if id not in infos or infos[id]], limit, offset)
    absent = {id: times[id] for id in page if id not in infos}
    infos |= await _loaded(session_store, project, cwd, absent)
    return [info for id in page if (info := infos[id])]


async def get_session_info_from_store(
    session_store: SessionStore, session_id: str, directory: str | None = None
) -> SDKSessionInfo | None:
    """What lists say of one session, or None."""
    if not is_uuid(session_id):
        return None
    key = _key(session_id, directory)
    entries = await session_store.load(key)
    return (
        _info(key, entries, clock.now() // 1000, resolve_directory(directory or "."))
        if entries
        else None
    )


async def get_session_messages_from_store(
    session_store: SessionStore,
    session_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionMessage]:
    """The messages of a session's conversation, oldest first; empty for an unknown session."""
    if not is_uuid(session_id):
        return []
    entries = await session_store.load(_key(session_id, directory))
    return messages.messages_from_entries(_plain(entries), limit, offset)


async def list_subagents_from_store(
    session_store: SessionStore, session_id: str, directory: str | None = None
) -> list[str]:
    """The ids of the agents that a session started."""
    if not is_uuid(session_id):
        return []
    if not implements(session_store, "list_subkeys"):
        raise ValueError("session_store does not implement list_subkeys(): it cannot list agents")
    project = project_key_for_directory(directory)
    found = await session_store.list_subkeys({"project_key": project, "session_id": session_id})
    return list(dict.fromkeys(id for subpath in found if (id := _agent(subpath)) is not None))


async def get_subagent_messages_from_store(
    session_store: SessionStore,
    session_id: str,
    agent_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionMessage]:
    """The messages of one agent of a session; empty when there is none of that id."""
    if not is_uuid(session_id) or not agent_id:
        return []
    key = _key(session_id, directory)
    subpath: str | None = f"subagents/agent-{agent_id}"
    if implements(session_store, "list_subkeys"):
        project = key["project_key"]
        found = await session_store.list_subkeys({"project_key": project, "session_id": session_id})
        subpath = next((each for each in found if _agent(each) == agent_id), None)
    if subpath is None:
        return []
    entries = _plain(await session_store.load({**key, "subpath": subpath}))
    said = messages.messages_from_entries(entries, limit, offset, agent=True)
    about = [entry for entry in entries if entry.get("type") == "agent_metadata"]
    call, parent = subagents.parse_started_by(about[-1] if about else {})
    for message in said:
        message.parent_tool_use_id, message.parent_agent_id = call, parent
    return said


async def rename_session_via_store(
    session_store: SessionStore, session_id: str, title: str, directory: str | None = None
) -> None:
    """Give a session a title."""
    checked_id(session_id)
    fields = {"type": "custom-title", "customTitle": checked_title(title)}
    await _append(session_store, session_id, directory, fields)


async def tag_session_via_store(
    session_store: SessionStore, session_id: str, tag: str | None, directory: str | None = None
) -> None:
    """Give a session a tag; None takes it away."""
    checked_id(session_id)
    fields = {"type": "tag", "tag": checked_tag(tag)}
    await _append(session_store, session_id, directory, fields)


async def delete_session_via_store(
    session_store: SessionStore, session_id: str, directory: str | None = None
) -> None:
    """Delete a session, if the store can delete at all."""
    checked_id(session_id)
    if implements(session_store, "delete"):
        await session_store.delete(_key(session_id, directory))


async def fork_session_via_store(
    session_store: SessionStore,
    session_id: str,
    directory: str | None = None,
    up_to_message_id: str | None = None,
    title: str | None = None,
) -> ForkSessionResult:
    """Copy a conversation, whole or up to a message, into a session of its own."""
    checked_fork(session_id, up_to_message_id)
    key = _key(session_id, directory)
    loaded = await session_store.load(key)
    if not loaded:
        raise FileNotFoundError(f"Session {session_id} not found")
    name = append.clean_title(title or "")
    if not name:
        data = fold_session_summary(None, key, loaded)["data"]
        names = ("custom_title", "ai_title", "first_prompt", "command_fallback")
        name = fork.fork_title(next(filter(None, map(data.get, names)), None))
    id, forked = fork.fork_entries(_plain(loaded), session_id, name, up_to_message_id)
    await session_store.append({**key, "session_id": id}, cast("list[SessionStoreEntry]", forked))
    return ForkSessionResult(id)


def _key(session_id: str, directory: str | None) -> SessionKey:
    return {"project_key": project_key_for_directory(directory), "session_id": session_id}


def _agent(subpath: str) -> str | None:
    """The agent whose transcript lies there."""
    last = subpath.rpartition("/")[2]
    mine = subpath.startswith("subagents/") and last.startswith("agent-")
    return last[len("agent-") :] if mine else None


def _plain(entries: Iterable[Any] | None) -> list[dict[str, Any]]:
    """The entries that are objects, which is what they ought to be."""
    return [entry for entry in entries or () if isinstance(entry, dict)]


def _page(ids: Sequence[str], limit: int | None, offset: int) -> Sequence[str]:
    start = max(0, offset)
    return ids[start : start + limit] if limit is not None and limit > 0 else ids[start:]


async def _append(
    store: SessionStore, id: str, directory: str | None, fields: dict[str, str]
) -> None:
    # A retried append is told by its id, so this has one although on disk it would not.
    stamp = {"sessionId": id, "uuid": str(uuid.uuid4()), "timestamp": clock.to_rfc3339(clock.now())}
    await store.append(_key(id, directory), [cast("SessionStoreEntry", {**fields, **stamp})])


async def _summaries(store: SessionStore, project: str) -> list[SessionSummaryEntry] | None:
    if not implements(store, "list_session_summaries"):
        return None
    try:
        return await store.list_session_summaries(project)
    except NotImplementedError:
        return None


def _info(
    key: SessionKey, entries: list[SessionStoreEntry], mtime: int, cwd: str
) -> SDKSessionInfo | None:
    return info_of({**fold_session_summary(None, key, entries), "mtime": mtime}, cwd)


async def _loaded(
    store: SessionStore, project: str, cwd: str, times: dict[str, int]
) -> dict[str, SDKSessionInfo | None]:
    """What is told of sessions by their entries; a store's failure leaves that row empty."""
    if not times:
        return {}
    import anyio  # with whatever event loop the caller has

    limiter = anyio.CapacityLimiter(LOADS)
    infos: dict[str, SDKSessionInfo | None] = {}

    async def load(id: str, mtime: int) -> None:
        key: SessionKey = {"project_key": project, "session_id": id}
        async with limiter:
            try:
                entries = await store.load(key)
            except Exception:
                infos[id] = SDKSessionInfo(session_id=id, summary="", last_modified=mtime)
                return
        infos[id] = _info(key, entries, mtime, cwd) if entries else None

    async with anyio.create_task_group() as group:
        for id, mtime in times.items():
            group.start_soon(load, id, mtime)
    return infos
