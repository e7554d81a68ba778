"""Fork Copilot's sessions as Copilot does: a copy with a new id that names its origin."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import msgspec

from segue.model import clock
from segue.sources import safe_io
from segue.sources.kit import files

from .workspace import changed_workspace, read_workspace


def fork_session(
    path: str,
    workspace: str,
    target: str,
    *,
    parent: str,
    at: int | None,
    cwd: str | None,
    title: str | None,
) -> None:
    """Copy the events of a session up to one of them to the directory `target`."""
    new_id = os.path.basename(target)
    old_name = read_workspace(workspace).get("name", "")
    name = title or f"{old_name} (fork)".strip()
    message = f'Forked from "{old_name}" ({parent}) as "{name}" ({new_id}).'
    now = clock.to_rfc3339(clock.now())[:23] + "Z"
    fields: dict[str, Any] = {"id": new_id, "name": name, "user_named": title is not None}
    if cwd is not None:
        fields |= {"cwd": cwd, "git_root": None, "branch": None}
    fields |= {"created_at": now, "updated_at": now}
    # Hidden until it is complete.
    copied = os.path.join(os.path.dirname(target), f".{new_id}.{os.getpid()}.tmp")
    try:
        os.mkdir(copied, 0o700)
        lines = _copied_lines(path, new_id, at, now, message)
        data = changed_workspace(workspace, fields)
        safe_io.write_file(os.path.join(copied, "workspace.yaml"), [data])
        safe_io.write_file(os.path.join(copied, "events.jsonl"), lines)
        os.rename(copied, target)
    except BaseException:
        shutil.rmtree(copied, ignore_errors=True)
        raise


def _copied_lines(
    path: str, new_id: str, at: int | None, now: str, message: str
) -> Iterator[bytes]:
    last: Any = None
    open_calls: dict[str, Any] = {}

    def event(kind: str, **data: Any) -> bytes:
        nonlocal last
        record = {"type": kind, "data": data, "id": str(uuid4()), "timestamp": now}
        line = msgspec.json.encode({**record, "parentId": last}) + b"\n"
        last = record["id"]
        return line

    for line, records in files.lines_until(path, at):
        for record in records:
            last = record.get("id", last)
            _note_calls(record, open_calls)
        data = records[0].get("data")
        if records[0].get("type") == "session.start" and isinstance(data, dict):
            yield (
                msgspec.json.encode(
                    {**records[0], "data": {**data, "sessionId": new_id, "startTime": now}}
                )
                + b"\n"
            )
        else:
            yield line + b"\n"
    for call_id in open_calls:
        error = {"message": "The session was forked during this call."}
        yield event("tool.execution_complete", toolCallId=call_id, success=False, error=error)
    yield event("session.info", infoType="fork", message=message)


def _note_calls(record: dict[str, Any], open_calls: dict[str, Any]) -> None:
    """Note the tool calls that have no result yet."""
    data = record.get("data")
    if not isinstance(data, dict):
        return
    if record.get("type") == "tool.execution_complete":
        open_calls.pop(str(data.get("toolCallId")), None)
    requests = data.get("toolRequests") if record.get("type") == "assistant.message" else None
    for request in requests if isinstance(requests, list) else ():
        if isinstance(request, dict):
            open_calls[str(request.get("toolCallId"))] = None
