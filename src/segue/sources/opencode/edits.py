"""Change opencode's sessions with opencode's own program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

import msgspec

from segue.model import clock
from segue.model.errors import AgentFailed
from segue.sources.base import OverlayOnly
from segue.sources.kit.edit.row_trash import (
    RowTrash,
    TrashedSession,
    deletion,
    has_session,
    require_imported,
    rows_of_sessions,
)

from .new_ids import NewIds
from .program import OpencodeProgram
from .records import SessionInfo

_ABORTED = "Tool execution aborted"  # as opencode ends a call that was cancelled


def change(
    program: OpencodeProgram, session: SessionInfo, *, title: str | None, archived: bool | None
) -> None:
    """Rename a session, or move it to the archive or back."""
    fields: dict[str, Any] = {} if title is None else {"title": title}
    if archived is not None:
        fields["time"] = {"archived": clock.now() // 1000 if archived else 0}
    if fields:
        with program.server(session.directory) as server:
            server.change(session.id, fields)


def trash(
    program: OpencodeProgram,
    trash: RowTrash,
    path: str,
    session: SessionInfo,
    subagents: Sequence[str],
) -> None:
    """Move a session with its subagents to the trash."""
    ids = (session.id, *subagents)
    rows = rows_of_sessions(path, "session", ids, "session_id", "aggregate_id")
    with program.server(session.directory) as server:
        exports = [msgspec.json.encode(server.export(id)) for id in ids]
        trashed = trash.add(session.id, path, rows, exports)
        # A server that did not answer in time may still delete the session until it has ended.
        with deletion(trashed, path, "session"), closing(server):
            server.delete(session.id)


def restore(
    program: OpencodeProgram, trashed: TrashedSession, databases: Callable[[], Sequence[str]]
) -> None:
    """Import a session and its subagents again; their ids are the same.

    The copy in the trash is deleted once one of the databases has all of them. Otherwise what was
    imported is deleted.
    """
    sessions = [_read_export(path) for path in trashed.exports()]
    is_gone = not any(has_session(path, "session", trashed.native_id) for path in databases())
    try:
        for session in sessions:
            program.import_session(session)
        for session in sessions:
            require_imported(databases(), "session", session["info"]["id"])
    except AgentFailed:
        if is_gone:
            directory = str(sessions[0]["info"].get("directory"))
            with suppress(OverlayOnly), program.server(directory) as server:
                server.delete(trashed.native_id)
        raise
    trashed.remove()


def _read_export(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        return msgspec.json.decode(file.read(), type=dict[str, Any])


def delete(program: OpencodeProgram, session: SessionInfo) -> None:
    """Delete a session with its subagents."""
    with program.server(session.directory) as server:
        server.delete(session.id)


def fork(
    program: OpencodeProgram,
    session: SessionInfo,
    records: set[str] | None,
    *,
    cwd: str | None,
    title: str | None,
) -> str:
    """Import a copy of a session, and return its id.

    `records` names the messages, parts and results that the copy has; None stands for all.
    """
    with program.server(session.directory) as server:
        export = server.export(session.id)
    ids = NewIds()
    now_ms = clock.now() // 1000
    messages = list(_messages(export["messages"], records, ids))
    info = {
        **export["info"],
        "id": ids.session,
        "title": title or f"{session.title} (fork #1)",  # as opencode names a fork
        "directory": cwd or session.directory,
        "time": {"created": now_ms, "updated": now_ms},
    }
    for name in ("parentID", "revert", "share", "cost", "tokens", "path"):
        info.pop(name, None)
    program.import_session({"info": info, "messages": messages})
    return ids.session


def _messages(
    messages: list[dict[str, Any]], records: set[str] | None, ids: NewIds
) -> Iterator[dict[str, Any]]:
    """Return the copies of messages that have one of the records."""
    for message in messages:
        info, parts = message["info"], message["parts"]
        kept = {info["id"], *(part["id"] for part in parts)}
        if records is not None and not kept & {record.partition(".")[0] for record in records}:
            continue
        new = {**info, "id": ids.of(info["id"]), "sessionID": ids.session}
        if "parentID" in info:
            new["parentID"] = ids.of(info["parentID"])
        copies = [_part(part, records, ids) for part in _until(parts, info["id"], records)]
        yield {"info": new, "parts": [{**part, "messageID": new["id"]} for part in copies]}


def _until(
    parts: list[dict[str, Any]], message: str, records: set[str] | None
) -> list[dict[str, Any]]:
    """Return the parts of a message up to the last one that has a record, or all."""
    if records is None or any(record.partition(".")[0] == message for record in records):
        return parts
    last = max(number for number, part in enumerate(parts) if part["id"] in records)
    return parts[: last + 1]


def _part(part: dict[str, Any], records: set[str] | None, ids: NewIds) -> dict[str, Any]:
    """Return the copy of a part; a call whose result is left out was aborted."""
    new = {**part, "id": ids.of(part["id"]), "sessionID": ids.session}
    state = part.get("state")
    if not isinstance(state, dict):
        return new
    has_result = records is None or f"{part['id']}.result" in records
    if has_result and state.get("status") in ("completed", "error"):
        return new
    moment = clock.now() // 1000
    time = state.get("time")
    start = time.get("start", moment) if isinstance(time, dict) else moment
    new["state"] = {
        "status": "error",
        "input": state.get("input") or {},
        "error": _ABORTED,
        "time": {"start": start, "end": moment},
    }
    return new
