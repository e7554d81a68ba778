"""Delete sessions so that they can be restored.

A session is moved to the trash with everything that belongs to it. A manifest is written before
anything moves, so a restore puts everything back, even after a crash in between.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import Any

from segue.model import clock, codec
from segue.sources import safe_io
from segue.sources.claude.format import jsonl, processes, related_files
from segue.sources.claude.format.paths import ClaudeHome, ProjectDirectory, TranscriptFile
from segue.sources.claude.format.sidecar import MAX_MANIFEST_BYTES, TRASH_MANIFEST
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


def move_to_trash(home: ClaudeHome, transcript: TranscriptFile) -> TrashedSession:
    """Move a session and its related files to the trash. Raise SessionIsLive."""
    processes.require_not_live(home, transcript.id)
    now = clock.now()
    directory = os.path.join(home.trash, f"{now}-{transcript.id}")
    os.makedirs(directory, 0o700)
    paths = related_files.find_related_paths(home, transcript)
    moved = [os.path.relpath(path, home.root) for path in paths]
    history = related_files.read_prompt_history(home, transcript.id)
    info = locate.session_info(transcript)
    manifest = {
        "sessionId": transcript.id,
        "trashedAt": now // 1000,
        "summary": info.summary if info else "",
        "cwd": info.cwd if info else None,
        "transcript": os.path.relpath(transcript.path, home.root),
        "moved": moved,
        "history": [line.decode("utf-8", "surrogateescape") for line in history],
        "indexed": related_files.read_index_rows(transcript),
    }
    safe_io.write_file(os.path.join(directory, TRASH_MANIFEST), [codec.encode(manifest)])
    for number, path in enumerate(moved):
        os.rename(os.path.join(home.root, path), os.path.join(directory, str(number)))
    related_files.remove_prompt_history(home, transcript.id)
    related_files.remove_index_rows(transcript)
    return _trashed_session(home, directory, manifest)


def list_trash(home: ClaudeHome) -> list[TrashedSession]:
    """Return the sessions in the trash, newest first."""
    return [_trashed_session(home, directory, manifest) for directory, manifest in _read_all(home)]


def restore_session(home: ClaudeHome, id: str) -> str:
    """Restore the session with this id that was trashed last. Return its transcript's path.

    Raise FileNotFoundError, or FileExistsError if one of its paths is in use again.
    """
    trashed = _find_trashed(home, id)
    if trashed is None:
        raise FileNotFoundError(f"Session {id} not found in the trash")
    directory, manifest = trashed
    moves = [
        (os.path.join(directory, str(number)), os.path.join(home.root, path))
        for number, path in enumerate(manifest["moved"])
        if os.path.lexists(os.path.join(directory, str(number)))
    ]
    for _, target in moves:
        if os.path.lexists(target):
            raise FileExistsError(f"Session {id} cannot be restored: {target} exists")
    # The transcript is the first in the list. It moves last, when the session is complete.
    for source, target in reversed(moves):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(source, target)
    path = os.path.join(home.root, manifest["transcript"])
    history = [line for line in manifest.get("history") or [] if isinstance(line, str)]
    related_files.restore_prompt_history(
        home, [line.encode("utf-8", "surrogateescape") for line in history]
    )
    related_files.restore_index_rows(
        TranscriptFile(id, path, ProjectDirectory(os.path.dirname(path))),
        manifest.get("indexed") or [],
    )
    shutil.rmtree(directory)
    return path


def delete_trashed(home: ClaudeHome, id: str) -> bool:
    """Delete the session with this id that was trashed last. Return False if there is none."""
    trashed = _find_trashed(home, id)
    if trashed is not None:
        shutil.rmtree(trashed[0])
    return trashed is not None


def empty_trash(home: ClaudeHome, days: float) -> int:
    """Delete the sessions that were trashed more than `days` ago. Return how many."""
    before = clock.now() - int(days * clock.DAY)
    old = [path for path, manifest in _read_all(home) if manifest["trashedAt"] * 1000 <= before]
    for path in old:
        shutil.rmtree(path)
    return len(old)


def _find_trashed(home: ClaudeHome, id: str) -> tuple[str, dict[str, Any]] | None:
    return next((trashed for trashed in _read_all(home) if trashed[1]["sessionId"] == id), None)


def _read_all(home: ClaudeHome) -> list[tuple[str, dict[str, Any]]]:
    """Return the directories in the trash with their manifests, newest first."""
    try:
        names = sorted(os.listdir(home.trash), reverse=True)
    except OSError:
        return []
    trashed = []
    for name in names:
        directory = os.path.join(home.trash, name)
        path = os.path.join(directory, TRASH_MANIFEST)
        manifest = jsonl.read_object(path, MAX_MANIFEST_BYTES)
        if _is_valid(manifest):
            trashed.append((directory, manifest))
    trashed.sort(key=lambda pair: pair[1]["trashedAt"], reverse=True)
    return trashed


def _is_valid(manifest: dict[str, Any]) -> bool:
    """Return whether segue wrote this manifest. Its paths must stay inside the home."""
    paths = manifest.get("moved")
    return (
        isinstance(manifest.get("sessionId"), str)
        and isinstance(manifest.get("trashedAt"), int)
        and isinstance(paths, list)
        and all(
            isinstance(path, str) and _is_inside(path)
            for path in [*paths, manifest.get("transcript")]
        )
    )


def _is_inside(path: str) -> bool:
    return not os.path.isabs(path) and ".." not in path.split(os.sep)


def _trashed_session(home: ClaudeHome, directory: str, manifest: dict[str, Any]) -> TrashedSession:
    return TrashedSession(
        session_id=manifest["sessionId"],
        summary=manifest.get("summary") or "",
        cwd=manifest.get("cwd"),
        trashed_at=manifest["trashedAt"],
        path=directory,
        original_path=os.path.join(home.root, manifest["transcript"]),
    )
