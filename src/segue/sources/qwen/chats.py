"""Find the files of Qwen's sessions and subagents, and the processes that write them.

A session is a file `projects/PROJECT/chats/ID.jsonl`, or `chats/archive/ID.jsonl` if it is
archived. Its subagents are `projects/PROJECT/subagents/ID/agent-*.jsonl`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from segue.model import ids
from segue.sources import safe_io
from segue.sources.kit import bodies, files, processes
from segue.sources.kit.reader import Report
from segue.sources.kit.statuses import FileStatuses

_NAME = re.compile(r"([0-9a-fA-F-]{32,36})\.jsonl")
_AGENT = re.compile(r"(agent-.+)\.jsonl")
_PROCESS = re.compile(r"(\d{1,10})\.json")
_NOT_ALPHANUMERIC = re.compile(r"[^a-zA-Z0-9]")
_ACCEPTED_ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
)
_ARCHIVE = "archive"
_PROGRAM = "qwen"


class ChatFile(NamedTuple):
    """A session's file; `agents` is the directory of its subagents, if there is one."""

    path: str
    id: str
    agents: str | None


def roots(home: str, settings: str) -> list[str]:
    """Return the directories with sessions: the home, and the directory that the settings name."""
    advanced = files.read_json(os.path.join(settings, "settings.json")).get("advanced")
    directory = bodies.text(advanced.get("runtimeOutputDir")) if isinstance(advanced, dict) else ""
    directory = os.path.expanduser(directory)
    # A relative path is one in each project, which cannot be listed.
    return list(dict.fromkeys([home, directory] if os.path.isabs(directory) else [home]))


def projects_directory(root: str) -> str:
    """Return the directory with one directory for each project."""
    return os.path.join(root, "projects")


def project_directory(root: str, cwd: str) -> str:
    """Return the directory of the project of a working directory."""
    return os.path.join(projects_directory(root), _NOT_ALPHANUMERIC.sub("-", cwd))


def native_id(id: str) -> str:
    """Return the id of a new session: another one if Qwen would refuse it, as it does version 7."""
    return id if _ACCEPTED_ID.fullmatch(id) else ids.derived_id(id)


def is_archived(path: str) -> bool:
    """Return whether a file is in the archive."""
    return os.path.basename(os.path.dirname(path)) == _ARCHIVE


def archive_of(chats: str) -> str:
    """Return the archive of a project's directory of sessions."""
    return os.path.join(chats, _ARCHIVE)


def project_of(path: str) -> str:
    """Return the project's directory of a session's file."""
    chats = os.path.dirname(path)
    return os.path.dirname(os.path.dirname(chats) if is_archived(path) else chats)


def list_chats(root: str, report: Report | None = None) -> Iterator[ChatFile]:
    """Return the files of all sessions, archived ones last. No file is opened."""
    for project in files.list_directory(projects_directory(root), report):
        directories = safe_io.list_directory(os.path.join(project.path, "subagents"))
        agents = {entry.name: entry.path for entry in directories}
        chats = os.path.join(project.path, "chats")
        for directory in (chats, archive_of(chats)):
            for entry in files.list_directory(directory, report):
                match = _NAME.fullmatch(entry.name)
                if match is not None and safe_io.is_regular_file(entry):
                    yield ChatFile(entry.path, match[1], agents.get(match[1]))


def add_statuses(statuses: FileStatuses, project: str) -> None:
    """Add the statuses of the sessions and subagents of a project."""
    chats, agents = os.path.join(project, "chats"), os.path.join(project, "subagents")
    agent_directories = [os.path.join(agents, name) for name in statuses.enter(agents)]
    for directory in (chats, archive_of(chats), *agent_directories):
        for name in statuses.enter(directory):
            if name.endswith(".jsonl"):
                statuses.add(name)


def chat_of(path: str) -> ChatFile | None:
    """Return the session that a path names; None if it names none."""
    match = _NAME.fullmatch(os.path.basename(path))
    if match is None:
        return None
    agents = os.path.join(project_of(path), "subagents", match[1])
    return ChatFile(path, match[1], agents if os.path.isdir(agents) else None)


def agent_of(path: str) -> str | None:
    """Return the id of the subagent that a path names; None if it names none."""
    match = _AGENT.fullmatch(os.path.basename(path))
    return match and match[1]


def list_agents(directory: str) -> list[os.DirEntry[str]]:
    """Return the files of the subagents of a session."""
    entries = safe_io.list_directory(directory)
    entries = [
        entry for entry in entries if agent_of(entry.name) and safe_io.is_regular_file(entry)
    ]
    return sorted(entries, key=lambda entry: entry.name)


def is_open(settings: str, session: str) -> bool | None:
    """Return whether a process has a session open: interactive ones write their id to a file.

    None if there is no such process: others leave no trace.
    """
    for entry in safe_io.list_directory(os.path.join(settings, "sessions")):
        match = _PROCESS.fullmatch(entry.name)
        if match is None or files.read_json(entry.path).get("sessionId") != session:
            continue
        if processes.is_alive(int(match[1]), _PROGRAM):
            return True
    return None
