"""Read the JSON files in which opencode kept its sessions before version 1.2.

storage/session/PROJECT/SESSION.json, storage/message/SESSION/MESSAGE.json and
storage/part/MESSAGE/PART.json
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from segue.sources import safe_io
from segue.sources.kit import bodies, database, files
from segue.sources.kit.reader import SessionRef

from .records import (
    MAX_RECORD_CHARS,
    Message,
    Part,
    SessionInfo,
    decode,
    millis,
    text_or_none,
)

_SUFFIX = ".json"
_PARTS_PER_MESSAGE = 4  # an estimate
_FORK = re.compile(r" \(fork #\d+\)$")


class FileStore:
    """The sessions below one directory `storage`."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def refs(self) -> Iterator[SessionRef]:
        """Return all sessions."""
        for entry in files.walk_files(self._path("session"), _SUFFIX, depth=1):
            if ref := self.ref(entry.path):
                yield ref

    def ref(self, path: str) -> SessionRef | None:
        """Return a session as it is now; None if it is gone.

        The statuses of its file, of its last message and of that message's parts are compared.
        """
        directory, name = os.path.split(path)
        in_storage = os.path.dirname(directory) == self._path("session")
        status = safe_io.nonempty_file_status(path) if in_storage else None
        if status is None or not name.endswith(_SUFFIX):
            return None
        id = name.removesuffix(_SUFFIX)
        messages = self._names("message", id)
        watched = [self._path("message", id)]
        if messages:
            watched += [self._path("message", id, f"{messages[-1]}{_SUFFIX}")]
            watched += [
                self._path("part", messages[-1], f"{part}{_SUFFIX}")
                for part in self._names("part", messages[-1])
            ]
        statuses = [_status(file) for file in watched]
        fingerprint = database.row_fingerprint(
            rows=len(messages) * _PARTS_PER_MESSAGE,
            updated_ns=max(status.st_mtime_ns, *(written for _, written in statuses)),
            last_row=status.st_ino,
            others=files.digest_of(status.st_mtime_ns, status.st_size, statuses),
        )
        return SessionRef(path, id, fingerprint)

    def _path(self, *names: str) -> str:
        return os.path.join(self._directory, *names)

    def _names(self, *directory: str) -> list[str]:
        """Return the ids of the files in a directory, in their order."""
        names = (entry.name for entry in safe_io.list_directory(self._path(*directory)))
        return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))

    def _read(self, *names: str) -> dict[str, Any] | None:
        """Return the record of a file; None if it is gone or damaged."""
        try:
            with safe_io.open_for_reading(f"{self._path(*names)}{_SUFFIX}") as (file, status):
                is_long = status.st_size > MAX_RECORD_CHARS
                return None if is_long else decode(safe_io.read_at(file, 0, status.st_size))
        except safe_io.UnreadableFile:
            return None

    def session_at(self, path: str) -> SessionInfo | None:
        """Return the session of a file; None if the file is damaged."""
        project, name = os.path.split(path)
        return self._session(os.path.basename(project), name.removesuffix(_SUFFIX))

    def _session(self, project: str, id: str) -> SessionInfo | None:
        record = self._read("session", project, id)
        if record is None:
            return None
        time = record.get("time")
        times = time if isinstance(time, dict) else {}
        revert = record.get("revert")
        revert = revert if isinstance(revert, dict) else None
        extra = {"version": record.get("version"), "slug": record.get("slug"), "revert": revert}
        extra |= {"project_id": project}
        return SessionInfo(
            id=id,
            project=project,
            parent=text_or_none(record.get("parentID")),
            directory=bodies.text(record.get("directory")),
            title=bodies.text(record.get("title")),
            created_ms=millis(times.get("created")),
            updated_ms=millis(times.get("updated")),
            archived_ms=millis(times.get("archived")) or None,
            revert=revert,
            model=None,
            agent=None,
            branch=None,
            extra={name: value for name, value in extra.items() if value},
        )

    def children(self, session: SessionInfo) -> list[SessionInfo]:
        """Return the subagents of a session, in the order of their start."""
        siblings = self._siblings(session)
        children = [sibling for sibling in siblings if sibling.parent == session.id]
        return sorted(children, key=lambda child: child.created_ms)

    def has_session(self, session: SessionInfo, id: str) -> bool:
        """Return whether the project of a session has another one."""
        path = self._path("session", session.project, f"{id}{_SUFFIX}")
        return safe_io.nonempty_file_status(path) is not None

    def _siblings(self, session: SessionInfo) -> Iterator[SessionInfo]:
        """Return the sessions of the same project."""
        for id in self._names("session", session.project):
            sibling = self._session(session.project, id)
            if sibling is not None and sibling.id != session.id:
                yield sibling

    def messages(self, id: str, last_ms: int = 0, last_id: str = "") -> Iterator[Message]:
        """Return the messages of a session after another one, in order, with their parts."""
        for name in self._names("message", id):
            if name > last_id:
                data = self._read("message", id, name)
                yield Message(name, _created_ms(data), data, list(self._parts(name)))

    def count_messages(self, id: str, last_ms: int, last_id: str) -> int:
        """Return how many messages a session has up to one of them."""
        return sum(name <= last_id for name in self._names("message", id))

    def count_parts(self, id: str, last_ms: int, last_id: str) -> int:
        """Return how many parts the messages of a session have up to one of them."""
        names = (name for name in self._names("message", id) if name <= last_id)
        return sum(len(self._names("part", name)) for name in names)

    def has_newer_messages(self, id: str) -> bool:
        """Return False: newer versions do not write files."""
        return False

    def _parts(self, message: str) -> Iterator[Part]:
        for name in self._names("part", message):
            _, written_ns = _status(self._path("part", message, f"{name}{_SUFFIX}"))
            yield Part(name, written_ns // 1_000_000, self._read("part", message, name))

    def origin(self, session: SessionInfo, created_ms: int) -> str | None:
        """Return the older session that a fork copied: it has the title and a message's time."""
        title = _FORK.sub("", session.title)
        for sibling in sorted(self._siblings(session), key=lambda sibling: sibling.created_ms):
            if sibling.created_ms > session.created_ms or _FORK.sub("", sibling.title) != title:
                continue
            for name in self._names("message", sibling.id)[:1]:
                if _created_ms(self._read("message", sibling.id, name)) == created_ms:
                    return sibling.id
        return None

    def key(self, session: SessionInfo) -> str:
        """Return the key of a session."""
        return self._path("session", session.project, f"{session.id}{_SUFFIX}")

    def lines(self, session: SessionInfo) -> list[dict[str, Any]]:
        """Return the records of a session, its messages and parts."""
        record = self._read("session", session.project, session.id)
        lines = [{"table": "session", **(record or {})}]
        for message in self.messages(session.id):
            lines.append({"table": "message", **(message.data or {})})
            lines += [{"table": "part", **(part.data or {})} for part in message.parts]
        return lines


def _status(path: str) -> tuple[int, int]:
    """Return the size of a file and the time of its last write; zeros if it is gone."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def _created_ms(data: dict[str, Any] | None) -> int:
    time = None if data is None else data.get("time")
    return millis(time.get("created")) if isinstance(time, dict) else 0
