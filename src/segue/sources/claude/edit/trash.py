"""Deleting that can be taken back.

A session goes to the trash with all that belongs to it. What went where is written down before
anything moves, so a restore puts back whatever had been moved, even after a crash in between.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import Any

from segue.model import clock, codec
from segue.sources.claude.format import jsonl, processes, related_files, safe_io
from segue.sources.claude.format.paths import ClaudeHome, ProjectDirectory, TranscriptFile
from segue.sources.claude.format.sidecar import TRASH_MANIFEST
from segue.sources.claude.sdk import locate


@dataclass
class TrashedSession:
    """A session in the trash."""

    session_id: str
    summary: str
    cwd: str | None
    trashed_at: int  # milliseconds
    # Its directory in the trash, and where its transcript was.
    path: str
    original_path: str


def trash_directory(home: ClaudeHome) -> str:
    """Where it is."""
    return home.trash


def move_to_trash(home: ClaudeHome, place: TranscriptFile) -> TrashedSession:
    """Move a session and its belongings to the trash. Raises SessionIsLive."""
    processes.require_not_live(home, place.id)
    now = clock.now()
    room = os.path.join(trash_directory(home), f"{now}-{place.id}")
    os.makedirs(room, 0o700)
    moved = [
        os.path.relpath(path, home.root) for path in related_files.find_related_paths(home, place)
    ]
    lines = related_files.read_prompt_history(home, place.id)
    described = locate.session_info(place)
    told = {
        "sessionId": place.id,
        "trashedAt": now // 1000,
        "summary": described.summary if described else "",
        "cwd": described.cwd if described else None,
        "transcript": os.path.relpath(place.path, home.root),
        "moved": moved,
        "history": [line.decode("utf-8", "surrogateescape") for line in lines],
        "indexed": related_files.read_index_rows(place),
    }
    _write(os.path.join(room, TRASH_MANIFEST), codec.encode(told))
    for number, path in enumerate(moved):
        os.rename(os.path.join(home.root, path), os.path.join(room, str(number)))
    related_files.remove_prompt_history(home, place.id)
    related_files.remove_index_rows(place)
    return _shown(home, room, told)


def list_trash(home: ClaudeHome) -> list[TrashedSession]:
    """What is in the trash, the newest first."""
    return [_shown(home, room, told) for room, told in _rooms(home)]


def restore_session(home: ClaudeHome, id: str) -> str:
    """Put the session that was trashed last under this id back; gives its transcript's path.

    Raises FileNotFoundError, and FileExistsError when something is in its place now.
    """
    found = next(((room, told) for room, told in _rooms(home) if told["sessionId"] == id), None)
    if found is None:
        raise FileNotFoundError(f"Session {id} not found in the trash")
    room, told = found
    moves = [
        (os.path.join(room, str(number)), os.path.join(home.root, path))
        for number, path in enumerate(told["moved"])
        if os.path.lexists(os.path.join(room, str(number)))
    ]
    for _, target in moves:
        if os.path.lexists(target):
            raise FileExistsError(f"Session {id} cannot be restored: {target} exists")
    # The transcript, which is the first, comes last: then the session is whole.
    for kept, target in reversed(moves):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(kept, target)
    path = os.path.join(home.root, told["transcript"])
    place = TranscriptFile(id, path, ProjectDirectory(os.path.dirname(path)))
    lines = [line for line in told.get("history") or [] if isinstance(line, str)]
    related_files.restore_prompt_history(
        home, [line.encode("utf-8", "surrogateescape") for line in lines]
    )
    related_files.restore_index_rows(place, told.get("indexed") or [])
    shutil.rmtree(room)
    return path


def delete_trashed(home: ClaudeHome, id: str) -> bool:
    """Delete for good what was trashed last under this id; False when there is nothing."""
    room = next((room for room, told in _rooms(home) if told["sessionId"] == id), None)
    if room is not None:
        shutil.rmtree(room)
    return room is not None


def empty_trash(home: ClaudeHome, days: float) -> int:
    """Delete for good what was trashed more than some days ago; gives how many sessions."""
    before = clock.now() - int(days * clock.DAY)
    old = [room for room, told in _rooms(home) if told["trashedAt"] * 1000 <= before]
    for room in old:
        shutil.rmtree(room)
    return len(old)


def _rooms(home: ClaudeHome) -> list[tuple[str, dict[str, Any]]]:
    try:
        names = sorted(os.listdir(trash_directory(home)), reverse=True)
    except OSError:
        return []
    found = []
    for name in names:
        room = os.path.join(trash_directory(home), name)
        data = safe_io.read_small_file(os.path.join(room, TRASH_MANIFEST), 1 << 30)
        found += [(room, told) for told in jsonl.parse_entries(data or b"") if _is_list(told)]
    found.sort(key=lambda pair: pair[1]["trashedAt"], reverse=True)
    return found


def _is_list(told: dict[str, Any]) -> bool:
    """Whether this is a list that we wrote: what it names is moved, so it must not lead out."""
    paths = told.get("moved")
    return (
        isinstance(told.get("sessionId"), str)
        and isinstance(told.get("trashedAt"), int)
        and isinstance(paths, list)
        and all(
            isinstance(path, str) and _inside(path) for path in [*paths, told.get("transcript")]
        )
    )


def _inside(path: str) -> bool:
    return not os.path.isabs(path) and ".." not in path.split(os.sep)


def _shown(home: ClaudeHome, room: str, told: dict[str, Any]) -> TrashedSession:
    original = os.path.join(home.root, told["transcript"])
    summary, at = told.get("summary") or "", told["trashedAt"]
    return TrashedSession(told["sessionId"], summary, told.get("cwd"), at, room, original)


def _write(path: str, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
