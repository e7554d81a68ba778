"""Find Codex's rollout files, the names of its threads and the processes that write them."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from segue.sources import safe_io
from segue.sources.kit import database, files, processes
from segue.sources.kit.reader import Report, Unreadable

# rollout-<local time>-<thread id>[_<page id>].jsonl
_NAME = re.compile(
    r"rollout-.{19}-(?P<thread>[0-9a-f-]{36})(?:_(?P<page>[0-9a-f-]{36}))?\.jsonl(?P<packed>\.zst)?"
)
_STATE_DATABASE = re.compile(r"state_(\d+)\.sqlite")
_ARCHIVE = "archived_sessions"
_HEAD_BYTES = 1 << 20  # that hold the first line, which has the instructions of the model


class Rollout(NamedTuple):
    """A rollout file: a thread, or a page of one."""

    path: str
    thread: str
    page: str  # the id of the page; empty for the first one
    is_archived: bool

    @property
    def last_id(self) -> str:
        """The id by which `history_base` names the file."""
        return self.page or self.thread


def rollout_of_path(path: str) -> Rollout | None:
    """Return the rollout that a path names; None if it names none."""
    directory, name = os.path.split(path)
    return _rollout(path, name, os.path.basename(directory) == _ARCHIVE)


def _rollout(path: str, name: str, is_archived: bool) -> Rollout | None:
    match = _NAME.fullmatch(name)
    if match is None or match["packed"]:
        return None
    return Rollout(path, match["thread"], match["page"] or "", is_archived)


def directories(home: str) -> tuple[str, str]:
    """Return the directories of threads and of archived threads."""
    return os.path.join(home, "sessions"), os.path.join(home, _ARCHIVE)


def list_rollouts(home: str, report: Report | None = None) -> Iterator[Rollout]:
    """Return all rollout files; compressed ones are reported."""
    for number, directory in enumerate(directories(home)):
        for entry in files.walk_files(directory, (".jsonl", ".zst"), 3):
            rollout = _rollout(entry.path, entry.name, bool(number))
            if rollout is not None:
                yield rollout
            elif report is not None and _NAME.fullmatch(entry.name):
                report(entry.path, "it is compressed, which segue does not read yet")


def current_rollouts(home: str, report: Report | None = None) -> dict[str, Rollout]:
    """Return the current file of each thread: its newest page, in the archive only if not else."""
    current: dict[str, Rollout] = {}
    for rollout in list_rollouts(home, report):
        other = current.get(rollout.thread)
        if other is None or _rank(rollout) > _rank(other):
            current[rollout.thread] = rollout
    return current


def _rank(rollout: Rollout) -> tuple[str, bool, str]:
    return rollout.page, not rollout.is_archived, rollout.path


def thread_names(home: str, report: Report | None = None) -> dict[str, str]:
    """Return the names that people gave to threads, by thread id."""
    path = os.path.join(home, "session_index.jsonl")
    status = safe_io.nonempty_file_status(path)
    names: dict[str, str] = {}
    if status is not None:
        names.update(_index_names(path, status.st_ino, status.st_size, status.st_mtime_ns))
    state = state_database(home)
    if state is not None:
        try:
            names.update(_database_names(state, database.log_status(state)))
        except (Unreadable, sqlite3.Error) as error:
            if report is not None:
                report(state, f"names of threads cannot be read: {error}")
    return names


@lru_cache(8)
def _index_names(path: str, inode: int, size: int, mtime_ns: int) -> dict[str, str]:
    names: dict[str, str] = {}
    try:
        for _, record in files.Records(path):
            id, name = record.get("id"), record.get("thread_name")
            if isinstance(id, str) and isinstance(name, str) and name:
                names[id.lower()] = name  # the last line of a thread counts
    except safe_io.UnreadableFile:
        pass  # it was removed a moment ago
    return names


@lru_cache(8)
def _database_names(path: str, status: tuple[tuple[int, int, int], ...]) -> dict[str, str]:
    with database.open_database(path) as connection:
        if "name" not in database.columns(connection, "threads"):
            return {}
        rows = connection.execute("SELECT id, name FROM threads WHERE name > ''")
        return {str(row["id"]).lower(): str(row["name"]) for row in rows}


def state_database(home: str) -> str | None:
    """Return the database with the highest schema generation; None if there is none."""
    matches = (_STATE_DATABASE.fullmatch(entry.name) for entry in safe_io.list_directory(home))
    numbers = [int(match[1]) for match in matches if match]
    return os.path.join(home, f"state_{max(numbers)}.sqlite") if numbers else None


def head(path: str) -> dict[str, Any]:
    """Return the meta data in the first line of a rollout; empty if there is none."""
    status = safe_io.nonempty_file_status(path)
    return {} if status is None else _head(path, status.st_ino)


@lru_cache(4096)
def _head(path: str, inode: int) -> dict[str, Any]:
    try:
        with safe_io.open_for_reading(path) as (descriptor, _):
            _, _, data = next(safe_io.read_lines(descriptor, 0, _HEAD_BYTES), (0, 0, b""))
    except safe_io.UnreadableFile:
        return {}
    records = files.parse_records(data)
    payload = records[0].get("payload") if records else None
    if not isinstance(payload, dict):
        return {}
    # The instructions of the model are long, and of no use here.
    return {name: value for name, value in payload.items() if name != "base_instructions"}


def spawned_by(meta: dict[str, Any]) -> dict[str, Any] | None:
    """Return who started a thread as a subagent: parent_thread_id, agent_nickname, agent_role."""
    source = meta.get("source")
    subagent = source.get("subagent") if isinstance(source, dict) else None
    spawn = subagent.get("thread_spawn") if isinstance(subagent, dict) else None
    if isinstance(spawn, dict) and isinstance(spawn.get("parent_thread_id"), str):
        return spawn
    if subagent is not None and isinstance(meta.get("parent_thread_id"), str):
        return meta
    return None


def is_being_written(home: str, rollout: Rollout) -> bool | None:
    """Return whether a process writes a thread: by its lock, or by its open file.

    None if neither says so: Codex versions without locks may close the file between writes.
    """
    locks = os.path.join(home, "thread-writer-locks")
    if os.path.isdir(locks):
        return processes.is_locked(os.path.join(locks, f"{rollout.thread}.lock"))
    return processes.is_open(rollout.path) or None
