"""Change and fork Kimi Code's sessions as Kimi Code does."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from typing import Any

import msgspec

from segue.model import clock, codec
from segue.model.event import InfoChanged
from segue.sources import safe_io
from segue.sources.kit import files
from segue.sources.kit.reader import Unreadable


def change_state(directory: str, info: InfoChanged) -> None:
    """Change the title or the archive of a session; its other fields stay as they are."""
    path = os.path.join(directory, "state.json")
    state = files.read_json(path)
    if not state:
        raise Unreadable("its state.json is missing or damaged, so it cannot be changed")
    if info.title is None:
        for name in ("title", "titleKind"):
            state.pop(name, None)
        state["isCustomTitle"] = False
    elif isinstance(info.title, str):
        state |= {"title": info.title, "titleKind": "custom", "isCustomTitle": True}
    if info.archived is True:
        state |= {"archived": True, "archivedAt": clock.now() // 1000}
    elif info.archived is False:
        state["archived"] = False
        state.pop("archivedAt", None)
    safe_io.replace_file(path, msgspec.json.encode(state))


def delete_session(home: str, directory: str) -> None:
    """Delete a session; a line in the index of sessions says so."""
    shutil.rmtree(directory)
    add_deleted(home, os.path.basename(directory))


def add_deleted(home: str, native_id: str) -> None:
    """Note in the index of sessions that one is gone."""
    add_to_index(home, {"sessionId": native_id, "deleted": True})


def add_restored(home: str, directory: str, cwd: str) -> None:
    """Note in the index of sessions that one is there again."""
    native_id = os.path.basename(directory)
    add_to_index(home, {"sessionId": native_id, "sessionDir": directory, "workDir": cwd})


def add_to_index(home: str, record: dict[str, Any]) -> None:
    """Append a record to Kimi Code's index of sessions."""
    with open(os.path.join(home, "session_index.jsonl"), "ab") as file:
        file.write(codec.encode(record) + b"\n")


def fork_session(
    home: str, directory: str, new_id: str, *, at: int | None, cwd: str, title: str | None
) -> None:
    """Copy a session up to an event, with the files of its agents."""
    workspace = os.path.join(home, "sessions", workspace_name(cwd))
    name = os.path.basename(workspace)
    fork = os.path.join(workspace, new_id)
    os.makedirs(workspace, mode=0o700, exist_ok=True)
    copied = os.path.join(workspace, f".{new_id}.{os.getpid()}.tmp")  # hidden until it is complete
    try:
        os.mkdir(copied, 0o700)
        _copy_agents(os.path.join(directory, "agents"), os.path.join(copied, "agents"), at, name)
        state = _fork_state(directory, fork, cwd=cwd, title=title)
        safe_io.write_file(os.path.join(copied, "state.json"), [msgspec.json.encode(state)])
        os.rename(copied, fork)
    except BaseException:
        shutil.rmtree(copied, ignore_errors=True)
        raise
    add_to_index(home, {"sessionId": new_id, "sessionDir": fork, "workDir": cwd})


def workspace_name(cwd: str) -> str:
    """Return the name of the directory with the sessions of a working directory."""
    path = cwd.rstrip("/") or "/"
    slug = re.sub(r"[^a-z0-9._-]+", "-", os.path.basename(path).lower())[:40]
    return f"wd_{slug}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"


def _copy_agents(source: str, target: str, at: int | None, workspace: str) -> None:
    """Copy the files of all agents; the wire of the main agent up to an event."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.tmp"))
    for entry in safe_io.list_directory(source):
        path = os.path.join(entry.path, "wire.jsonl")
        if safe_io.nonempty_file_status(path) is not None:
            lines = _copied_lines(path, at if entry.name == "main" else None, workspace)
            copy = os.path.join(target, entry.name, "wire.jsonl")
            safe_io.write_file(copy, lines, replace=True)


def _copied_lines(path: str, at: int | None, workspace: str) -> Iterator[bytes]:
    """Return the records of an agent up to an event, and those that end the copy."""
    open_calls: dict[str, None] = {}
    for line, records in files.lines_until(path, at):
        for record in records:
            _note_calls(record, open_calls)
        if records[0].get("type") == "runtime.set_binding" and len(records) == 1:
            # Kimi Code refuses a session with the binding of another directory.
            yield msgspec.json.encode({**records[0], "workspaceId": workspace}) + b"\n"
        else:
            yield line + b"\n"
    agent = os.path.basename(os.path.dirname(path))
    now = clock.now() // 1000
    for call_id in open_calls:
        result = {"output": "The session was forked during this call.", "isError": True}
        event = {"type": "tool.result", "toolCallId": call_id, "result": result}
        yield _record("context.append_loop_event", agent, now, event=event)
    if agent == "main":
        yield _record("forked", agent, now)


def _note_calls(record: dict[str, Any], open_calls: dict[str, None]) -> None:
    """Note the tool calls that have no result yet."""
    event = record.get("event")
    if record.get("type") == "context.append_loop_event" and isinstance(event, dict):
        if event.get("type") == "tool.call":
            open_calls[str(event.get("toolCallId"))] = None
        elif event.get("type") == "tool.result":
            open_calls.pop(str(event.get("toolCallId")), None)


def _record(kind: str, agent: str, time: int, **fields: Any) -> bytes:
    return msgspec.json.encode({"type": kind, "agentId": agent, **fields, "time": time}) + b"\n"


def _fork_state(directory: str, fork: str, *, cwd: str, title: str | None) -> dict[str, Any]:
    parent = files.read_json(os.path.join(directory, "state.json"))
    now = clock.now() // 1000 + 1  # after all copied records
    agents = parent.get("agents")
    state = {
        **parent,
        "id": os.path.basename(fork),
        "cwd": cwd,
        "createdAt": now,
        "updatedAt": now,
        "archived": False,
        "forkedFrom": os.path.basename(directory),
        "title": title or f"Fork: {parent.get('title') or os.path.basename(directory)}",
        "titleKind": "replaceable" if title is None else "custom",
        "isCustomTitle": title is not None,
        "agents": {
            name: {**fields, "homedir": os.path.join(fork, "agents", name)}
            for name, fields in (agents if isinstance(agents, dict) else {}).items()
            if isinstance(fields, dict)
        },
    }
    state.pop("archivedAt", None)
    return state
