"""Find the files of Gemini's sessions.

A session is a file `tmp/PROJECT/chats/session-TIME-ID8.jsonl`, or `.json` in older versions. There
may be several files of one session: Gemini copies all files of a project when it renames the
project's directory, converts `.json` to `.jsonl` and keeps both, and leaves a file without messages
when it resumes a session.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from time import time_ns
from typing import Any, NamedTuple

from segue.model import clock
from segue.sources import safe_io
from segue.sources.kit import files
from segue.sources.kit.reader import Report, Unreadable

_NAME = re.compile(r"session-(?:\d{4}-\d\d-\d\dT\d\d-\d\d-)?(?P<short>.{1,36})\.jsonl?")
_SESSION_ID = re.compile(rb'"sessionId"\s*:\s*"([^"\\]{1,200})"')
_SHORT_ID_CHARACTERS = 8  # the characters of an id that are in the name of a file
_HEAD_BYTES = 64 << 10
MAX_FILE_BYTES = 512 << 20  # of a session in one JSON object
_WRITE_NS = 2 * 10**9  # in which Gemini may still be writing a file


class SessionFiles(NamedTuple):
    """The files of a session: the one that Gemini wrote last, and those before it.

    `agents` are the directories with its subagents.
    """

    main: str
    older: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()


class Listing(NamedTuple):
    """All files of sessions and directories of subagents, by the first characters of their id."""

    files: dict[str, list[str]]
    agents: dict[str, list[str]]

    def sessions(self, short_id: str) -> Iterator[SessionFiles]:
        """Return the files of each session whose id begins with some characters."""
        agents = tuple(self.agents.get(short_id, ()))
        for session in _sessions(self.files.get(short_id, [])):
            yield session._replace(agents=agents)


def projects_directory(home: str) -> str:
    """Return the directory with one directory for each project."""
    return os.path.join(home, "tmp")


def project_of(path: str) -> str:
    """Return the project's directory of a session's or a subagent's file."""
    chats = os.path.dirname(path)
    if os.path.basename(chats) != "chats":
        chats = os.path.dirname(chats)
    return os.path.dirname(chats)


def new_path(project: str, id: str, at: int, *, is_journal: bool) -> str:
    """Return the path of a new session in a project's directory."""
    minute = clock.to_rfc3339(at)[:16].replace(":", "-")
    suffix = ".jsonl" if is_journal else ".json"
    return os.path.join(project, "chats", f"session-{minute}-{id[:_SHORT_ID_CHARACTERS]}{suffix}")


def newest_path(home: str) -> str:
    """Return the file that was written last; empty if there is none."""
    paths = (path for paths in list_chats(home).files.values() for path in paths)
    statuses = ((safe_io.nonempty_file_status(path), path) for path in paths)
    times = ((status.st_mtime_ns, path) for status, path in statuses if status is not None)
    return max(times, default=(0, ""))[1]


def parent_of(path: str) -> str | None:
    """Return the id of the session whose subagent a file is; None for a session."""
    directory = os.path.dirname(path)
    return None if os.path.basename(directory) == "chats" else os.path.basename(directory)


def list_chats(home: str, report: Report | None = None) -> Listing:
    """Return the files of all sessions. No file is opened."""
    listing = Listing({}, {})
    for project in files.list_directory(projects_directory(home), report):
        for entry in files.list_directory(os.path.join(project.path, "chats"), report):
            match = _NAME.fullmatch(entry.name)
            if match is not None and safe_io.is_regular_file(entry):
                listing.files.setdefault(match["short"][:_SHORT_ID_CHARACTERS], []).append(
                    entry.path
                )
            elif match is None and safe_io.is_directory(entry, follow_symlinks=False):
                listing.agents.setdefault(entry.name[:_SHORT_ID_CHARACTERS], []).append(entry.path)
    return listing


def all_sessions(home: str, report: Report) -> Iterator[SessionFiles]:
    """Return the files of each session. Only sessions with several files are opened."""
    listing = list_chats(home, report)
    for short_id in listing.files:
        yield from listing.sessions(short_id)


def session_of(home: str, path: str) -> SessionFiles | None:
    """Return the files of the session that a file is the last one of."""
    match = _NAME.fullmatch(os.path.basename(path))
    if match is None:
        return None
    sessions = list_chats(home).sessions(match["short"][:_SHORT_ID_CHARACTERS])
    return next((session for session in sessions if session.main == path), None)


def session_with_id(home: str, id: str) -> SessionFiles | None:
    """Return the files of a session."""
    sessions = list_chats(home).sessions(id[:_SHORT_ID_CHARACTERS])
    return next((session for session in sessions if session_id(session.main) == id), None)


def _sessions(paths: list[str]) -> Iterator[SessionFiles]:
    if len(paths) == 1:
        yield SessionFiles(paths[0])
        return
    by_id: dict[str, list[tuple[bool, int, str]]] = {}
    for path in paths:
        status = safe_io.nonempty_file_status(path)
        if status is not None:
            key = (path, status.st_ino, status.st_size, status.st_mtime_ns)
            rank = (_is_filled(*key), status.st_mtime_ns, path)
            by_id.setdefault(session_id(path), []).append(rank)
    for ranks in by_id.values():
        *older, main = sorted(ranks)
        yield SessionFiles(main[2], tuple(path for filled, _, path in older if filled))


def files_of(home: str, id: str) -> list[str]:
    """Return all files of a session, those without messages included."""
    paths = list_chats(home).files.get(id[:_SHORT_ID_CHARACTERS], [])
    return [path for path in paths if session_id(path) == id]


def session_id(path: str) -> str:
    """Return the id of a session, which its file begins with; else the name of the file."""
    status = safe_io.nonempty_file_status(path)
    try:
        return _session_id(path, 0 if status is None else status.st_ino)
    except LookupError:  # it is damaged, or not written yet
        return os.path.basename(path).rpartition(".")[0]


@lru_cache(4096)
def _session_id(path: str, inode: int) -> str:
    """Return the id in a file; raises LookupError, which is not cached, if it has none."""
    try:
        with safe_io.open_for_reading(path) as (descriptor, _):
            match = _SESSION_ID.search(safe_io.read_at(descriptor, 0, _HEAD_BYTES))
    except safe_io.UnreadableFile:
        match = None
    if match is None:
        raise LookupError(path)
    return match[1].decode("utf-8", "replace")


@lru_cache(1024)
def _is_filled(path: str, inode: int, size: int, mtime_ns: int) -> bool:
    """Return whether a file has more messages than the context that a start of Gemini writes."""
    from .messages import has_conversation  # only sessions with several files need it

    try:
        records: Iterator[dict[str, Any]] = (line.record for line in files.Records(path))
        if path.endswith(".json"):
            records = iter(
                files.parse_records(safe_io.read_small_file(path, MAX_FILE_BYTES) or b"")
            )
        return any(has_conversation(record) for record in records)
    except safe_io.UnreadableFile:
        return False


def read_object(path: str) -> dict[str, Any]:
    """Return a session that is one JSON object.

    Raises OSError while Gemini may be writing the file: the session then stays listed unchanged.
    """
    status = safe_io.nonempty_file_status(path)
    data = safe_io.read_small_file(path, MAX_FILE_BYTES)
    if status is None or data is None:
        if status is not None and status.st_size > MAX_FILE_BYTES:
            raise Unreadable(f"it is too long: {status.st_size} bytes")
        raise safe_io.UnreadableFile(path)
    record = files.parse_object(data)
    if record is not None:
        return record
    if time_ns() - status.st_mtime_ns < _WRITE_NS:
        raise BlockingIOError("Gemini CLI is writing it")
    raise Unreadable("it is damaged: it is not a JSON object")
