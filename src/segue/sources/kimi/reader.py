"""Read Kimi Code's sessions: a directory with state.json and a wire for each agent."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from segue.model.event import InfoChanged
from segue.sources import safe_io
from segue.sources.kit import bodies, files
from segue.sources.kit.edit.file_trash import FileTrash, require_outside_trash
from segue.sources.kit.reader import (
    End,
    Item,
    Items,
    Reader,
    Report,
    Resume,
    SessionFacts,
    SessionRef,
    ThreadRef,
    Unreadable,
    collect,
    decode_resume_data,
    encode_resume_data,
    mark_rolled_back,
)
from segue.sources.kit.statuses import FileStatuses

if TYPE_CHECKING:
    from .translator import Translator, WireState

_MAIN = "main"
_WIRE = "wire.jsonl"
PREFIX = "session_"
_UNDO = b'"context.undo"'


class KimiReader(Reader):
    """The sessions of one Kimi Code home."""

    name = "kimi"
    edits = frozenset({"title", "archive", "trash", "delete", "fork"})

    def __init__(self, home: str) -> None:
        self.home = home
        self._trash = FileTrash(home)

    def session_paths(self) -> Sequence[str]:
        """Return the directory of sessions, and the trash."""
        return [_sessions(self.home), self._trash.directory]

    def discover(self, report: Report) -> Iterable[SessionRef]:
        """Return all sessions, by working directory, then those in the trash."""
        for workspace in self._workspaces(report):
            if not workspace.name.startswith("."):
                for entry in files.list_directory(workspace.path, report):
                    path = os.path.join(entry.path, "agents", _MAIN, _WIRE)
                    if not entry.name.startswith(".") and (ref := self.ref(path)):
                        yield ref

    def _workspaces(self, report: Report | None = None) -> Iterator[os.DirEntry[str]]:
        yield from files.list_directory(_sessions(self.home), report)
        for trashed in self._trash.sessions():
            yield from files.list_directory(_sessions(trashed.directory), report)

    def status(self) -> object:
        """Return a digest of the statuses of all wires and states."""
        statuses = FileStatuses()
        for workspace in self._workspaces():
            for name in statuses.enter(workspace.path):
                statuses.add(f"{name}/agents/{_MAIN}/{_WIRE}")
                statuses.add(f"{name}/state.json") or statuses.add(
                    f"{name}/session-meta/state.json"
                )
        return statuses.digest()

    def ref(self, key: str) -> SessionRef | None:
        """Return a session, or the subagent of one, as it is now."""
        status = safe_io.nonempty_file_status(key)
        if status is None:
            return None
        directory, agent = _split(key)
        native_id = os.path.basename(directory)
        if agent != _MAIN:
            return SessionRef(key, f"{native_id}/{agent}", files.fingerprint(status))
        state = safe_io.nonempty_file_status(_state_path(directory))
        others = () if state is None else (state.st_size, state.st_mtime_ns)
        identity = native_id.removeprefix(PREFIX)
        return SessionRef(key, native_id, files.fingerprint(status, *others), identity)

    def find(self, native_id: str) -> SessionRef | None:
        """Return the session with an id."""
        if not native_id or os.path.basename(native_id) != native_id:
            return None
        for workspace in safe_io.list_directory(self.session_paths()[0]):
            path = os.path.join(workspace.path, native_id, "agents", _MAIN, _WIRE)
            if ref := self.ref(path):
                return ref
        return None

    def read(self, ref: SessionRef, resume: Resume | None = None) -> Items:
        """Yield the events of a session's main agent, or of a subagent."""
        from .translator import Translator, WireState  # a list does not need them

        directory, agent = _split(ref.key)
        session = _SessionFile(directory)
        state = decode_resume_data(resume, WireState)
        created_at = bodies.time_of(session.get("createdAt"))
        forked_from = bodies.text(session.get("forkedFrom"))
        translator = Translator(
            ref.key,
            state,
            copied_before=created_at or 0 if forked_from else 0,
            session=None if agent == _MAIN else os.path.basename(directory),
        )
        records = files.Records(ref.key, resume)
        if resume is None and files.contains(ref.key, _UNDO):
            translator.collects_undone = True
            items, _ = collect(_items(translator, records))
            yield from mark_rolled_back(items, translator.undone)
        else:
            yield from _items(translator, records)
        if not state.has_records:
            raise Unreadable("it has no record of a session")
        facts = SessionFacts(
            created_at=created_at or state.created_at,
            updated_at=bodies.time_of(session.get("updatedAt")) or state.updated_at,
            cwd=bodies.text(session.get("cwd")) or self._cwd(directory) or state.cwd or "/",
            title=session.title,
            title_by=session.title_by,
            model=state.model,
            archived_at=session.archived_at(state.updated_at),
            forked_from=forked_from.removeprefix(PREFIX) or None,
            parent=None if agent == _MAIN else os.path.basename(directory),
            open_since=state.open_since,
            threads=_threads(directory, session, state) if agent == _MAIN else (),
            problems=(*session.problems, *records.problems),
            extra=state.extra | session.extra,
            deleted_at=self._trash.deleted_at(ref.key),
        )
        # Without a Resume the next read reports the problems of the state again, or none.
        return End(facts, None if session.problems else records.resume(encode_resume_data(state)))

    def change(self, ref: SessionRef, info: InfoChanged) -> None:
        """Rename or archive a session in its state.json, as Kimi Code does, or move it."""
        from . import edits

        directory = _split(ref.key)[0]
        if info.deleted is False:
            cwd = bodies.text(_SessionFile(directory).get("cwd")) or self._cwd(directory) or "/"
            path = self._trash.restore(ref.key)
            edits.add_restored(self.home, _split(path)[0], cwd)
            return
        require_outside_trash(self._trash.of_path(ref.key))
        if info.deleted is True:
            self._trash.add(ref.native_id, [directory])
            edits.add_deleted(self.home, ref.native_id)
        else:
            edits.change_state(directory, info)

    def delete(self, ref: SessionRef) -> None:
        """Delete the directory of a session, and note it in the index of sessions."""
        from . import edits

        if trashed := self._trash.of_path(ref.key):
            trashed.remove()
            return
        edits.delete_session(self.home, _split(ref.key)[0])

    def fork(
        self, ref: SessionRef, new_id: str, *, at: int | None, cwd: str | None, title: str | None
    ) -> str:
        """Copy a session up to an event, as `kimi fork` does."""
        from . import edits

        directory, _ = _split(ref.key)
        session = _SessionFile(directory)
        cwd = cwd or bodies.text(session.get("cwd")) or self._cwd(directory) or "/"
        native_id = PREFIX + new_id
        edits.fork_session(self.home, directory, native_id, at=at, cwd=cwd, title=title)
        return native_id

    def _cwd(self, directory: str) -> str | None:
        """Return the working directory of a session whose state does not have it."""
        path = os.path.join(self.home, "session_index.jsonl")
        status = safe_io.nonempty_file_status(path)
        if status is None:
            return None
        fields = (status.st_ino, status.st_size, status.st_mtime_ns)
        return _indexed_directories(path, *fields).get(os.path.basename(directory))


class _SessionFile:
    """What state.json says of a session."""

    def __init__(self, directory: str) -> None:
        path = _state_path(directory)
        self._fields = files.read_json(path)
        self.problems: tuple[str, ...] = ()
        if not self._fields and safe_io.nonempty_file_status(path) is not None:
            self.problems = ("its state.json is damaged",)

    def get(self, name: str) -> Any:
        """Return a field."""
        return self._fields.get(name)

    @property
    def title(self) -> str | None:
        """The title; early versions have the one of a person in a field of its own."""
        return bodies.text(self.get("title")) or bodies.text(self.get("customTitle")) or None

    @property
    def title_by(self) -> Literal["person", "agent", "auto"]:
        """Whether a person, a model or the program made the title."""
        if self.get("titleKind") == "custom" or self.get("isCustomTitle") is True:
            return "person"
        if not self.get("title") and self.get("customTitle"):
            return "person"
        return "agent" if self.get("titleKind") == "generated" else "auto"

    def archived_at(self, updated_at: int) -> int | None:
        """Return when the session was archived; None if it is not."""
        if self.get("archived") is not True:
            return None
        times = (self.get("archivedAt"), self.get("updatedAt"))
        return next(filter(None, map(bodies.time_of, times)), updated_at)

    @property
    def agents(self) -> dict[str, dict[str, Any]]:
        """The agents of the session by name."""
        agents = self.get("agents")
        values = agents if isinstance(agents, dict) else {}
        return {name: value for name, value in values.items() if isinstance(value, dict)}

    @property
    def extra(self) -> dict[str, Any]:
        """Fields that no other value of a session holds."""
        names = ("version", "custom", "lastTurnReason", "titleKind")
        return {name: self.get(name) for name in names if self.get(name)}


def _sessions(home: str) -> str:
    return os.path.join(home, "sessions")


def _items(translator: Translator, records: files.Records) -> Generator[Item, None, None]:
    for line in records:
        yield from translator.translate(line)


def _threads(directory: str, session: _SessionFile, state: WireState) -> tuple[ThreadRef, ...]:
    """Return the subagents of a session, which have directories of their own."""
    refs = []
    agents = session.agents
    entries = safe_io.list_directory(os.path.join(directory, "agents"))
    for entry in sorted(entries, key=lambda entry: (len(entry.name), entry.name)):
        path = os.path.join(entry.path, _WIRE)
        if entry.name == _MAIN or safe_io.nonempty_file_status(path) is None:
            continue
        spawn = state.spawns.get(entry.name)
        fields = agents.get(entry.name, {})
        parent = bodies.text(fields.get("parentAgentId"))
        refs.append(
            ThreadRef(
                id=entry.name,
                key=path,
                kind=None if spawn is None else spawn.kind,
                title=(spawn and spawn.title) or bodies.text(fields.get("swarmItem")) or None,
                parent=parent if parent and parent != _MAIN else None,
                call_id=None if spawn is None else spawn.call_id,
            )
        )
    return tuple(refs)


def _state_path(directory: str) -> str:
    """Return the path of a session's state; early versions had it in a directory of its own."""
    path = os.path.join(directory, "state.json")
    old_path = os.path.join(directory, "session-meta", "state.json")
    return old_path if not os.path.lexists(path) and os.path.lexists(old_path) else path


def _split(path: str) -> tuple[str, str]:
    """Return the directory of the session and the agent of a wire."""
    agent_directory = os.path.dirname(path)
    agents, agent = os.path.split(agent_directory)
    return os.path.dirname(agents), agent


@lru_cache(8)
def _indexed_directories(path: str, inode: int, size: int, mtime_ns: int) -> dict[str, str]:
    """Return the working directories of sessions in the index of older versions."""
    directories: dict[str, str] = {}
    try:
        for _, record in files.Records(path):
            id, cwd = record.get("sessionId"), record.get("workDir")
            if isinstance(id, str) and isinstance(cwd, str) and cwd:
                directories[id] = cwd
    except safe_io.UnreadableFile:
        pass  # it was removed a moment ago
    return directories
