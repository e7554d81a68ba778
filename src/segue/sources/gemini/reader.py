"""Read Gemini's sessions: journals, older files with one object, and subagents."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from segue.model.event import InfoChanged
from segue.sources import safe_io
from segue.sources.kit import files
from segue.sources.kit.edit.file_trash import FileTrash, require_outside_trash
from segue.sources.kit.reader import (
    FIRST_SEQ,
    End,
    Items,
    Reader,
    Report,
    Resume,
    Rewritten,
    SessionFacts,
    SessionRef,
    ThreadRef,
    Unreadable,
    decode_resume_data,
    encode_resume_data,
)
from segue.sources.kit.statuses import FileStatuses

from . import chats
from .chats import SessionFiles

if TYPE_CHECKING:
    from .translator import SessionState, Translator


class GeminiRef(SessionRef):
    """A session whose id is read from its file when it is needed: lists compare paths only.

    The second field has the paths of its earlier files.
    """

    __slots__ = ()

    @property
    def native_id(self) -> str:
        """The id of the session."""
        return chats.session_id(self.key)

    @property
    def older(self) -> tuple[str, ...]:
        """The earlier files of the session."""
        return tuple(filter(None, self[1].split("\0")))


class GeminiReader(Reader):
    """The sessions of one Gemini home."""

    name = "gemini"
    version = 4
    edits = frozenset({"title", "trash", "delete"})

    def __init__(self, home: str) -> None:
        self.home = home
        self._trash = FileTrash(home)

    def session_paths(self) -> Sequence[str]:
        """Return the directory with the projects, and the trash."""
        return [chats.projects_directory(self.home), self._trash.directory]

    def _homes(self) -> list[str]:
        """Return the home, and the directories of sessions in the trash, which look like one."""
        return [self.home, *(trashed.directory for trashed in self._trash.sessions())]

    def _home_of(self, path: str) -> str:
        trashed = self._trash.of_path(path)
        return self.home if trashed is None else trashed.directory

    def discover(self, report: Report) -> Iterable[SessionRef]:
        """Return all sessions, without subagents."""
        for home in self._homes():
            for session in chats.all_sessions(home, report):
                if ref := _ref(session):
                    yield ref

    def status(self) -> object:
        """Return a digest of the statuses of all files of sessions and subagents."""
        statuses = FileStatuses()
        for home in self._homes():
            for project in safe_io.list_directory(chats.projects_directory(home)):
                _add_statuses(statuses, os.path.join(project.path, "chats"))
        return statuses.digest()

    def ref(self, key: str) -> SessionRef | None:
        """Return a session or a subagent as it is now."""
        if not key.startswith(tuple(os.path.join(path, "") for path in self.session_paths())):
            return None
        if chats.parent_of(key) is not None:
            return _ref(SessionFiles(key))
        session = chats.session_of(self._home_of(key), key)
        return session and _ref(session)

    def find(self, native_id: str) -> SessionRef | None:
        """Return the session with an id."""
        session = chats.session_with_id(self.home, native_id)
        return session and _ref(session)

    def read(self, ref: SessionRef, resume: Resume | None = None) -> Items:
        """Yield the events of a session, from all its files."""
        from .translator import SessionState, Translator  # a list does not need them

        older = ref.older if isinstance(ref, GeminiRef) else ()
        older_digest = _digest_of_files(older)
        problems: list[str] = []
        state = decode_resume_data(resume, SessionState)
        translator = Translator(state, is_whole=resume is None)
        if resume is None:
            state.before, state.older = FIRST_SEQ, older_digest
            for path in older:
                state.before = self._read_older(translator, path, problems)
        elif state.older != older_digest:
            raise Rewritten("an earlier file of the session has changed")
        end: Resume | None = None
        if ref.key.endswith(".json"):
            translator.add_session(state.before, chats.read_object(ref.key))
        else:
            records = files.Records(ref.key, resume)
            for line in records:
                translator.add_record(state.before + line.offset, line.record)
            problems += records.problems
            end = records.resume()
        if not state.session:
            raise Unreadable("it does not begin as a session of Gemini does")
        if problems and not state.has_content:
            raise Unreadable(problems[0])
        yield from translator.finish()
        if end is not None:
            end = _with_data(end, encode_resume_data(state))
        return End(self._facts(ref.key, state, tuple(problems)), end)

    def _read_older(self, translator: Translator, path: str, problems: list[str]) -> int:
        """Add the records of an earlier file, and return the seq after it."""
        before = translator.state.before
        try:
            if path.endswith(".json"):
                return translator.add_session(before, chats.read_object(path))
            records = files.Records(path)
            for line in records:
                translator.add_record(before + line.offset, line.record)
            problems += records.problems
            return before + records.resume().offset + 1
        except (safe_io.UnreadableFile, Unreadable, OSError) as error:
            problems.append(f"its earlier file {path} cannot be read: {error}")
            return before

    def _facts(
        self, path: str, state: SessionState, problems: tuple[str, ...]
    ) -> SessionFacts | None:
        if not state.has_content:
            return None  # Gemini does not list it either
        from . import projects  # a list does not need it

        project = chats.project_of(self._trash.original(path))
        cwd = projects.working_directory(self.home, project, state.project_hash)
        parent = chats.parent_of(path)
        if parent is None and state.kind == "subagent":
            parent = ""
        if cwd is None and state.directories:
            cwd = state.directories[0]
        extra: dict[str, Any] = {"project_hash": state.project_hash}
        if len(state.directories) > 1:
            extra["directories"] = state.directories
        return SessionFacts(
            created_at=state.created_at or state.updated_at,
            updated_at=state.updated_at,
            cwd=cwd or "/",
            title=state.summary or (state.first_text if state.has_command else None),
            title_by="agent" if state.summary else "auto",
            model=state.model,
            parent=parent,
            open_since=state.open_since,
            threads=tuple(_threads(path, state)),
            problems=problems,
            extra=extra,
            deleted_at=self._trash.deleted_at(path),
        )

    # Changes.

    def change(self, ref: SessionRef, info: InfoChanged) -> None:
        """Rename a session, whose summary Gemini shows as its title, or move it to the trash."""
        from . import edits  # a list does not need it

        if info.deleted is False:
            self._trash.restore(ref.key)
            return
        require_outside_trash(self._trash.of_path(ref.key))
        if info.deleted is True:
            paths = edits.files_of(self.home, ref.key, ref.native_id)
            self._trash.add(ref.native_id, paths)
            return
        if info.title is not UNSET:
            edits.rename(ref.key, info.title)

    def delete(self, ref: SessionRef) -> None:
        """Delete all files of a session."""
        from . import edits  # a list does not need it

        edits.delete(self._home_of(ref.key), ref.key, ref.native_id)
        if trashed := self._trash.of_path(ref.key):
            trashed.remove()


def _add_statuses(statuses: FileStatuses, directory: str) -> None:
    """Add the statuses of a project's sessions and of their subagents."""
    others = []
    for name in statuses.enter(directory):
        if name.startswith("session-"):
            statuses.add(name)
        else:
            others.append(os.path.join(directory, name))
    for agents in others:
        for name in statuses.enter(agents):
            statuses.add(name)


def _ref(session: SessionFiles) -> SessionRef | None:
    status = safe_io.nonempty_file_status(session.main)
    if status is None:
        return None
    others: list[object] = []
    if session.older:
        others.append(_digest_of_files(session.older))
    for directory in session.agents:
        others += sorted(_status(entry) for entry in safe_io.list_directory(directory))
    return GeminiRef(session.main, "\0".join(session.older), files.fingerprint(status, *others))


def _status(entry: os.DirEntry[str]) -> tuple[str, int, int]:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return entry.path, 0, 0
    return entry.path, status.st_size, status.st_mtime_ns


def _digest_of_files(paths: Sequence[str]) -> int:
    if not paths:
        return 0
    statuses = [safe_io.nonempty_file_status(path) for path in paths]
    return files.digest_of(*paths, *(status and files.fingerprint(status) for status in statuses))


def _with_data(end: Resume, data: dict[str, Any]) -> Resume:
    return Resume(inode=end.inode, offset=end.offset, tail_hash=end.tail_hash, data=data)


def _threads(path: str, state: SessionState) -> Iterable[ThreadRef]:
    """Return the subagents of a session, and theirs."""
    directory = os.path.dirname(path)
    if chats.parent_of(path) is not None:
        directory = os.path.dirname(directory)
    parents = [state.session]
    known = {state.session}
    while parents:
        parent = parents.pop(0)
        for entry in safe_io.list_directory(os.path.join(directory, parent)):
            id = entry.name.removesuffix(".jsonl")
            if id == entry.name or id in known or not safe_io.is_regular_file(entry):
                continue
            known.add(id)
            parents.append(id)
            call_id, kind = state.agents.get(id, ["", ""])
            yield ThreadRef(
                id=id,
                key=entry.path,
                kind=kind or None,
                parent=None if parent == state.session else parent,
                call_id=call_id or None,
            )
