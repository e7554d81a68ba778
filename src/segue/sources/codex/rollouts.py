"""Find Codex's rollout files, the names of its threads and the processes that write them."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from segue.model import clock, codec
from segue.sources import safe_io
from segue.sources.kit import bodies, database, files, processes
from segue.sources.kit.reader import Report, Unreadable
from segue.sources.kit.statuses import FileStatuses

from . import packed

# rollout-<local time>-<thread id>[_<page id>].jsonl
_NAME = re.compile(
    r"rollout-.{19}-(?P<thread>[0-9a-f-]{36})(?:_(?P<page>[0-9a-f-]{36}))?\.jsonl(?P<packed>\.zst)?"
)
_STATE_DATABASE = re.compile(r"state_(\d+)\.sqlite")
_NAMES = "session_index.jsonl"
_SESSIONS, _ARCHIVE = "sessions", "archived_sessions"
# Segue's trash, with the same directories in it. It is inside the home, so that a move is a rename.
_TRASH = "segue-trash"
_MAX_TRASH_DEPTH = 5  # directories from the trash to a rollout: segue-trash/sessions/YYYY/MM/DD
_THREAD_COLUMNS = (
    "cwd",
    "title",
    "first_user_message",
    "created_at",
    "updated_at",
    "created_at_ms",
    "updated_at_ms",
    "model",
    "git_branch",
    "cli_version",
)
_HEAD_BYTES = 1 << 20  # enough for the first line, which has the model's instructions


class Rollout(NamedTuple):
    """A rollout file: a thread, or a page of one."""

    path: str
    thread: str
    page: str  # the id of the page; empty for the first one
    is_archived: bool
    is_trashed: bool

    @property
    def last_id(self) -> str:
        """The id by which `history_base` names the file."""
        return self.page or self.thread


class Segment(NamedTuple):
    """A part of a history: the first bytes of a file, and the bytes of all parts before it."""

    rollout: Rollout
    end: int | None
    before: int
    inherited: bool


def rollout_of_path(path: str) -> Rollout | None:
    """Return the rollout that a path names; None if it names none."""
    directory, name = os.path.split(path)
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    parents = directory.split(os.sep)[-_MAX_TRASH_DEPTH:]
    is_archived, is_trashed = parents[-1] == _ARCHIVE, _TRASH in parents
    return Rollout(path, match["thread"], match["page"] or "", is_archived, is_trashed)


def directories(home: str) -> tuple[str, ...]:
    """Return the directories of threads, of archived threads and of those in the trash."""
    return tuple(os.path.join(home, name) for name in (_SESSIONS, _ARCHIVE, _TRASH))


def trash_path(home: str, path: str) -> str:
    """Return where a rollout is in the trash."""
    return os.path.join(home, _TRASH, os.path.relpath(path, home))


def restored_path(home: str, path: str) -> str:
    """Return where a rollout in the trash was before."""
    return os.path.join(home, os.path.relpath(path, os.path.join(home, _TRASH)))


def archived_path(home: str, path: str, *, archived: bool) -> str:
    """Return the path of a rollout in the archive, or outside of it: its name has the day."""
    name = os.path.basename(path)
    if archived:
        return os.path.join(home, _ARCHIVE, name)
    year, month, day = name.removeprefix("rollout-")[:10].split("-")
    return os.path.join(home, _SESSIONS, year, month, day, name)


def list_rollouts(home: str, report: Report | None = None) -> Iterator[Rollout]:
    """Yield all rollout files."""
    for directory in directories(home):
        for entry in files.walk_files(directory, (".jsonl", packed.SUFFIX), 4, report):
            rollout = rollout_of_path(entry.path)
            if rollout is not None:
                yield rollout


def status(home: str) -> bytes | None:
    """Return a digest that differs after each change; None right after one of the database."""
    statuses = FileStatuses()
    for directory in directories(home):
        _add_statuses(statuses, directory, 4)
    statuses.add(os.path.join(home, _NAMES))
    path = state_database(home)
    names = path and database.settled_status(path)
    return None if path and names is None else statuses.digest(path, names)


def _add_statuses(statuses: FileStatuses, directory: str, depth: int) -> None:
    others = []
    for name in statuses.enter(directory):
        if name.endswith(".jsonl"):
            statuses.add(name)
        elif name.endswith(packed.SUFFIX):
            statuses.add(name)
            statuses.add_value(packed.can_unpack())
        elif depth:
            others.append(os.path.join(directory, name))
    for other in others:
        _add_statuses(statuses, other, depth - 1)


def current_rollouts(home: str, report: Report | None = None) -> dict[str, Rollout]:
    """Return the current file of each thread: its newest page, in the trash only if not else."""
    current: dict[str, Rollout] = {}
    for rollout in list_rollouts(home, report):
        other = current.get(rollout.thread)
        if other is None or _rank(rollout) > _rank(other):
            current[rollout.thread] = rollout
    return current


def _rank(rollout: Rollout) -> tuple[str, bool, bool, bool, str]:
    is_plain = not packed.is_packed(rollout.path)
    return rollout.page, not rollout.is_trashed, not rollout.is_archived, is_plain, rollout.path


def append_name(home: str, thread: str, name: str) -> None:
    """Add the name of a thread to the file of names, of which the last line for a thread counts."""
    moment = clock.to_rfc3339(clock.now())
    line = {"id": thread, "thread_name": name, "updated_at": moment}
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | safe_io.SAFE_OPEN_FLAGS
    descriptor = os.open(os.path.join(home, _NAMES), flags, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        is_cut = size > 0 and safe_io.read_at(descriptor, size - 1, 1) != b"\n"
        os.write(descriptor, b"\n" * is_cut + codec.encode(line) + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def thread_names(home: str, report: Report | None = None) -> dict[str, str]:
    """Return the names that people gave to threads, by thread id."""
    path = os.path.join(home, _NAMES)
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


def thread_preview(home: str, thread: str) -> str | None:
    """Return the text that Codex lists for a thread without a name; None if it is not known."""
    path = state_database(home)
    if path is None:
        return None
    try:
        with database.open_database(path) as connection:
            if "preview" not in database.columns(connection, "threads"):
                return None
            sql = "SELECT preview FROM threads WHERE id = ?"
            row = connection.execute(sql, (thread,)).fetchone()
    except (Unreadable, sqlite3.Error):
        return None  # `thread_names` reports it
    return bodies.prompt_title(str(row["preview"] or "")) if row is not None else None


def state_database(home: str) -> str | None:
    """Return the database with the highest schema generation; None if there is none."""
    matches = (_STATE_DATABASE.fullmatch(entry.name) for entry in safe_io.list_directory(home))
    numbers = [int(match[1]) for match in matches if match]
    return os.path.join(home, f"state_{max(numbers)}.sqlite") if numbers else None


def head(path: str) -> dict[str, Any]:
    """Return the meta data in the first line of a rollout; empty if there is none."""
    status = safe_io.nonempty_file_status(path)
    try:
        return {} if status is None else _head(path, status.st_ino)
    except LookupError:  # it is damaged, or not written yet
        return {}


@lru_cache(4096)
def _head(path: str, inode: int) -> dict[str, Any]:
    """Return the meta data; raises LookupError, which is not cached, if there is none."""
    try:
        data = _packed_head(path) if packed.is_packed(path) else _plain_head(path)
    except (safe_io.UnreadableFile, Unreadable):
        raise LookupError(path) from None
    records = files.parse_records(data)
    payload = records[0].get("payload") if records else None
    if not isinstance(payload, dict):
        raise LookupError(path)
    # The instructions of the model are long, and of no use here.
    return {name: value for name, value in payload.items() if name != "base_instructions"}


def _plain_head(path: str) -> bytes:
    with safe_io.open_for_reading(path) as (descriptor, _):
        _, _, data = next(safe_io.read_lines(descriptor, 0, _HEAD_BYTES), (0, 0, b""))
    return data


def _packed_head(path: str) -> bytes:
    data = b""
    for block in packed.unpacked_blocks(path):
        data += block
        if b"\n" in block or len(data) > _HEAD_BYTES:
            break
    return data.partition(b"\n")[0]


def thread_row(home: str, thread: str) -> dict[str, Any] | None:
    """Return what Codex's database has of a thread; None if it is not known."""
    path = state_database(home)
    if path is None:
        return None
    try:
        with database.open_database(path) as connection:
            select = database.select(connection, "threads", *_THREAD_COLUMNS)
            row = connection.execute(f"{select} WHERE id = ?", (thread,)).fetchone()
    except (Unreadable, sqlite3.Error):
        return None  # `thread_names` reports it
    return None if row is None else dict(row)


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
