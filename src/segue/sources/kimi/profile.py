"""The records that a new session begins with: its model, its system prompt and its tools."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from segue.sources import safe_io
from segue.sources.kit import bodies, files

_CONFIG_BYTES = 1 << 20
_MAX_RECORDS = 20  # of a wire, among which the profile is
_PROTOCOL = "1.4"  # newer versions convert it
_PROFILES = ("profile.bind", "config.update")
_COPIED = ("runtime.set_binding", "profile.bind", "config.update", "tools.set_active_tools")
_PROMPT = (
    "You are Kimi Code CLI, a coding agent. Use the tools to help the user. "
    "The current working directory is `{cwd}`."
)
_TOOLS = [
    "Read",
    "Write",
    "Edit",
    "Grep",
    "Glob",
    "Bash",
    "TaskList",
    "TaskOutput",
    "TaskStop",
    "ReadMediaFile",
    "TodoList",
    "Skill",
    "WebSearch",
    "Agent",
    "FetchURL",
    "AskUserQuestion",
    "EnterPlanMode",
    "ExitPlanMode",
    "mcp__*",
]
Record = dict[str, Any]


def first_records(home: str, cwd: str, workspace: str, now: int) -> list[Record]:
    """Return the first records of a new session in a directory.

    They are those of the newest session that the user had in the directory, or in one without
    instructions of its own. Without such a session, they name the user's default model.
    """
    for records in _newest_first(home, workspace):
        if copied := _copy_records(records, cwd, workspace, now):
            return copied
    metadata = {"type": "metadata", "protocol_version": _PROTOCOL, "created_at": now}
    update: Record = {"type": "config.update", "agentId": "main", "profileName": "agent"}
    if model := _default_model(home):
        update["modelAlias"] = model
    update |= {"systemPrompt": _PROMPT.format(cwd=cwd), "time": now}
    tools = {"type": "tools.set_active_tools", "agentId": "main", "names": _TOOLS, "time": now}
    return [metadata, update, tools]


def _newest_first(home: str, workspace: str) -> Iterator[list[Record]]:
    """Yield the first records of the user's sessions, those in the same directory first."""
    wires: list[tuple[bool, int, str]] = []
    for entry in safe_io.list_directory(os.path.join(home, "sessions")):
        for session in safe_io.list_directory(entry.path):
            path = os.path.join(session.path, "agents", "main", "wire.jsonl")
            if (status := safe_io.nonempty_file_status(path)) is not None:
                wires.append((entry.name == workspace, status.st_mtime_ns, path))
    for _, _, path in sorted(wires, reverse=True):
        try:
            lines = zip(files.Records(path), range(_MAX_RECORDS), strict=False)
            yield [line.record for line, _ in lines]
        except safe_io.UnreadableFile:
            continue  # it was removed a moment ago


def _copy_records(records: list[Record], cwd: str, workspace: str, now: int) -> list[Record] | None:
    """Return copies of the records that describe a session; None if they do not fit `cwd`."""
    profile = next((record for record in records if _has_prompt(record)), None)
    if profile is None or records[0].get("type") != "metadata":
        return None
    disclosure = profile.get("environmentDisclosure")
    fields = disclosure if isinstance(disclosure, dict) else profile
    old_cwd = bodies.text(fields.get("cwd"))
    if old_cwd != cwd and (not old_cwd or profile.get("agentsMdPaths") != []):
        return None  # its prompt has the instructions of another project
    metadata = {**records[0], "created_at": now}
    kept = [record for record in records if record.get("type") in _COPIED]
    return [metadata, *(_moved(record, old_cwd, cwd, workspace, now) for record in kept)]


def _has_prompt(record: Record) -> bool:
    return record.get("type") in _PROFILES and bool(bodies.text(record.get("systemPrompt")))


def _moved(record: Record, old_cwd: str, cwd: str, workspace: str, now: int) -> Record:
    """Return a record as it is in another directory."""
    moved = {**record, "time": now}
    if "workspaceId" in moved:
        moved["workspaceId"] = workspace
    if isinstance(prompt := moved.get("systemPrompt"), str):
        moved["systemPrompt"] = prompt.replace(f"`{old_cwd}`", f"`{cwd}`")
    if isinstance(disclosure := moved.get("environmentDisclosure"), dict):
        moved["environmentDisclosure"] = {**disclosure, "cwd": cwd}
    if "cwd" in moved:
        moved["cwd"] = cwd
    return moved


def _default_model(home: str) -> str | None:
    import tomllib

    data = safe_io.read_small_file(os.path.join(home, "config.toml"), _CONFIG_BYTES)
    try:
        return bodies.text(tomllib.loads((data or b"").decode()).get("default_model")) or None
    except ValueError:
        return None
