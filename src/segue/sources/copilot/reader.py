"""Read Copilot's sessions: a directory with events.jsonl and workspace.yaml for each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import UnsetType

from segue.model.errors import Busy
from segue.model.event import InfoChanged
from segue.sources import safe_io
from segue.sources.kit import bodies, files, processes
from segue.sources.kit.edit.file_trash import FileTrash, require_outside_trash
from segue.sources.kit.reader import (
    End,
    Items,
    Reader,
    Report,
    Resume,
    SessionFacts,
    SessionRef,
    Unreadable,
    decode_resume_data,
    encode_resume_data,
)
from segue.sources.kit.statuses import FileStatuses

if TYPE_CHECKING:
    from .translator import SessionState
from .workspace import read_workspace, rename

EVENTS = "events.jsonl"
WORKSPACE = "workspace.yaml"
_SUFFIX = ".jsonl"  # of the sessions of early versions, which have no directory
_LOCK = re.compile(r"inuse\.(\d+)\.lock")
_FORKED = b"Forked from "


class CopilotReader(Reader):
    """The sessions of one Copilot home."""

    name = "copilot"
    version = 2
    edits = frozenset({"title", "trash", "delete", "fork"})

    def __init__(self, home: str) -> None:
        self.home = home
        self._trash = FileTrash(home)

    def session_paths(self) -> Sequence[str]:
        """Return the directory of sessions, and the trash."""
        return [sessions_directory(self.home), self._trash.directory]

    def discover(self, report: Report) -> Iterable[SessionRef]:
        """Return all sessions: the directories that have events, and older files."""
        yield from self._sessions(self.session_paths()[0], report)
        for trashed in self._trash.sessions():
            yield from self._sessions(sessions_directory(trashed.directory), report)

    def _sessions(self, directory: str, report: Report) -> Iterator[SessionRef]:
        native_ids = set()
        older = []
        for entry in files.list_directory(directory, report):
            if entry.name.startswith("."):
                continue
            if entry.name.endswith(_SUFFIX):
                older.append(entry.path)
            elif ref := self._ref(os.path.join(entry.path, EVENTS), entry.name):
                native_ids.add(entry.name)
                yield ref
        for path in older:
            native_id = _native_id(path)
            if native_id not in native_ids and (ref := self._ref(path, native_id)):
                yield ref

    def status(self) -> object:
        """Return a digest of the statuses of all events and workspaces."""
        statuses = FileStatuses()
        homes = [self.home, *(trashed.directory for trashed in self._trash.sessions())]
        for home in homes:
            for name in statuses.enter(sessions_directory(home)):
                if name.endswith(_SUFFIX):
                    statuses.add(name)
                else:
                    statuses.add(f"{name}/{EVENTS}")
                    statuses.add(f"{name}/{WORKSPACE}")
        return statuses.digest()

    def ref(self, key: str) -> SessionRef | None:
        """Return a session as it is now."""
        return self._ref(key, _native_id(key))

    def _ref(self, path: str, native_id: str) -> SessionRef | None:
        status = safe_io.nonempty_file_status(path)
        if status is None:
            return None
        workspace = safe_io.nonempty_file_status(_workspace_path(path))
        others = () if workspace is None else (workspace.st_size, workspace.st_mtime_ns)
        return SessionRef(path, native_id, files.fingerprint(status, *others))

    def find(self, native_id: str) -> SessionRef | None:
        """Return the session with an id."""
        if not native_id or os.path.basename(native_id) != native_id:
            return None
        directory = os.path.join(self.session_paths()[0], native_id)
        return self.ref(os.path.join(directory, EVENTS)) or self.ref(directory + _SUFFIX)

    def is_running(self, ref: SessionRef) -> bool | None:
        """Return whether the process that a lock file of the session names is a running Copilot.

        None for a session of an older version, which has no locks.
        """
        if os.path.basename(ref.key) != EVENTS:
            return None
        entries = safe_io.list_directory(os.path.dirname(ref.key))
        matches = (_LOCK.fullmatch(entry.name) for entry in entries)
        process_ids = [int(match[1]) for match in matches if match]
        return any(processes.is_alive(number, "copilot") for number in process_ids)

    def read(self, ref: SessionRef, resume: Resume | None = None) -> Items:
        """Yield the events of a session."""
        from .translator import SessionState, Translator  # a list does not need them

        if resume is None:
            state = SessionState(id=ref.native_id, fork_end=_fork_end(ref.key))
        else:
            state = decode_resume_data(resume, SessionState)
        translator = Translator(ref.key, state, continues=resume is not None)
        records = files.Records(ref.key, resume)
        for line in records:
            yield from translator.translate(line)
        if not state.has_events:
            raise Unreadable("it has no event of a session")
        facts = self._facts(ref, state, tuple(records.problems))
        return End(facts, records.resume(encode_resume_data(state)))

    def change(self, ref: SessionRef, info: InfoChanged) -> None:
        """Rename a session in its workspace file, as Copilot does, or move it to the trash."""
        if info.deleted is False:
            self._trash.restore(ref.key)
            return
        require_outside_trash(self._trash.of_path(ref.key))
        self._require_closed(ref)
        if info.deleted is True:
            self._trash.add(ref.native_id, [_session_path(ref.key)])
            return
        if not isinstance(info.title, UnsetType):
            rename(_workspace_path(ref.key), info.title)

    def delete(self, ref: SessionRef) -> None:
        """Delete the directory of a session, as Copilot does."""
        if trashed := self._trash.of_path(ref.key):
            trashed.remove()
            return
        self._require_closed(ref)
        path = _session_path(ref.key)
        if path == ref.key:
            os.unlink(path)
        else:
            import shutil  # a list does not need it

            shutil.rmtree(path)

    def fork(
        self, ref: SessionRef, new_id: str, *, at: int | None, cwd: str | None, title: str | None
    ) -> str:
        """Copy a session up to an event, as Copilot does."""
        from .fork import fork_session

        fork_session(
            ref.key,
            _workspace_path(ref.key),
            os.path.join(self.session_paths()[0], new_id),
            parent=ref.native_id,
            at=at,
            cwd=cwd,
            title=title,
        )
        return new_id

    def _require_closed(self, ref: SessionRef) -> None:
        if self.is_running(ref):
            raise Busy(f"Copilot has session {ref.native_id} open; close it there first")

    def _facts(
        self, ref: SessionRef, state: SessionState, problems: tuple[str, ...]
    ) -> SessionFacts:
        workspace = read_workspace(_workspace_path(ref.key))
        name = workspace.get("name") or workspace.get("summary")
        extra = dict(state.extra)
        if client := workspace.get("client_name"):
            extra["clientName"] = client
        return SessionFacts(
            created_at=bodies.time_of(workspace.get("created_at")) or state.created_at,
            updated_at=state.updated_at,
            cwd=workspace.get("cwd") or state.cwd or "/",
            title=name,
            title_by="person" if workspace.get("user_named") == "true" else "auto",
            model=state.model,
            git_branch=workspace.get("branch") or state.git_branch,
            forked_from=state.forked_from,
            open_since=state.open_since,
            threads=tuple(state.threads.values()),
            problems=problems,
            extra=extra,
            deleted_at=self._trash.deleted_at(ref.key),
        )


def sessions_directory(home: str) -> str:
    """Return the directory with one directory for each session."""
    return os.path.join(home, "session-state")


def _native_id(path: str) -> str:
    directory, name = os.path.split(path)
    return os.path.basename(directory) if name == EVENTS else name.removesuffix(_SUFFIX)


def _session_path(path: str) -> str:
    """Return the directory of a session, or the file of an early version."""
    return os.path.dirname(path) if os.path.basename(path) == EVENTS else path


def _workspace_path(path: str) -> str:
    return os.path.join(os.path.dirname(path), WORKSPACE)


def _fork_end(path: str) -> int:
    """Return the offset of the line that says that this session is a fork; -1 if it is none."""
    if not files.contains(path, _FORKED):
        return -1
    from .translator import fork_parent

    end = -1
    for line in files.Records(path):
        data = line.record.get("data")
        if isinstance(data, dict) and fork_parent(data) is not None:
            end = line.offset
    return end
