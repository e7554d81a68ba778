"""Read Qwen's sessions and their subagents."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from segue.model.errors import Busy
from segue.model.event import InfoChanged
from segue.sources import safe_io
from segue.sources.kit import bodies, files
from segue.sources.kit.edit.file_trash import FileTrash, require_outside_trash
from segue.sources.kit.reader import (
    End,
    Items,
    Reader,
    Report,
    Resume,
    SessionFacts,
    SessionRef,
    ThreadRef,
    Unreadable,
    decode_resume_data,
    encode_resume_data,
)
from segue.sources.kit.statuses import FileStatuses

from . import chats
from .chats import ChatFile

if TYPE_CHECKING:
    from .translator import SessionState


class QwenReader(Reader):
    """The sessions of one Qwen home. `settings` is the directory of the settings."""

    name = "qwen"
    version = 2
    edits = frozenset({"title", "archive", "trash", "delete", "fork"})

    def __init__(self, home: str, settings: str | None = None) -> None:
        self.home = home
        self.settings = settings or home

    def session_paths(self) -> Sequence[str]:
        """Return the directories with the projects, and their trash."""
        roots = self._roots()
        projects = [chats.projects_directory(root) for root in roots]
        return [*projects, *(FileTrash(root).directory for root in roots)]

    def _roots(self) -> list[str]:
        return chats.roots(self.home, self.settings)

    def _all_roots(self) -> list[str]:
        """Return the directories with sessions, then those of sessions in the trash."""
        roots = self._roots()
        trashed = [session.directory for root in roots for session in FileTrash(root).sessions()]
        return roots + trashed

    def _trash_of(self, path: str) -> FileTrash:
        """Return the trash of the directory that a session is in."""
        roots = (root for root in self._roots() if path.startswith(os.path.join(root, "")))
        return FileTrash(next(roots, self.home))

    def discover(self, report: Report) -> Iterable[SessionRef]:
        """Return all sessions, without subagents."""
        seen: set[str] = set()
        for root in self._all_roots():
            for chat in chats.list_chats(root, report):
                # An interrupted move to the archive leaves two files.
                if chat.id not in seen and (ref := _ref(chat)):
                    seen.add(chat.id)
                    yield ref

    def status(self) -> object:
        """Return a digest of the statuses of all files of sessions and subagents."""
        statuses = FileStatuses()
        for root in self._all_roots():
            for project in safe_io.list_directory(chats.projects_directory(root)):
                chats.add_statuses(statuses, project.path)
        return statuses.digest()

    def ref(self, key: str) -> SessionRef | None:
        """Return a session or a subagent as it is now."""
        if not key.startswith(tuple(os.path.join(path, "") for path in self.session_paths())):
            return None
        agent = chats.agent_of(key)
        if agent is not None:
            status = safe_io.nonempty_file_status(key)
            return status and SessionRef(key, agent, files.fingerprint(status))
        chat = chats.chat_of(key)
        return chat and _ref(chat)

    def find(self, native_id: str) -> SessionRef | None:
        """Return the session with an id."""
        refs = self.discover(lambda path, reason: None)
        return next((ref for ref in refs if ref.native_id == native_id), None)

    def is_running(self, ref: SessionRef) -> bool | None:
        """Return whether a process has the session open; None if only its writes may say so."""
        return chats.is_open(self.settings, ref.native_id)

    def read(self, ref: SessionRef, resume: Resume | None = None) -> Items:
        """Yield the events of a session or a subagent."""
        from .translator import SessionState, Translator  # a list does not need them

        state = decode_resume_data(resume, SessionState)
        is_agent = chats.agent_of(ref.key) is not None
        translator = Translator(state, is_whole=resume is None, is_agent=is_agent)
        records = files.Records(ref.key, resume)
        for line in records:
            translator.add_record(line)
        if not state.created_at:
            raise Unreadable("it has no record of a session of Qwen Code")
        yield from translator.finish()
        problems = (*records.problems, *translator.problems)
        facts = _facts(ref, state, problems, is_agent=is_agent)
        facts = replace(facts, deleted_at=self._trash_of(ref.key).deleted_at(ref.key))
        return End(facts, replace(records.resume(), data=encode_resume_data(state)))

    # Changes.

    def change(self, ref: SessionRef, info: InfoChanged) -> None:
        """Rename a session, or move it into or out of the archive or the trash."""
        from . import edits  # a list does not need it

        trash = self._trash_of(ref.key)
        if info.deleted is False:
            trash.restore(ref.key)
            return
        require_outside_trash(trash.of_path(ref.key))
        self._require_closed(ref)
        if info.deleted is True:
            trash.add(ref.native_id, edits.files_of(ref.key))
            return
        if info.title is not UNSET:
            edits.rename(ref.key, info.title)
        if info.archived is not UNSET:
            edits.move(ref.key, to_archive=info.archived)

    def delete(self, ref: SessionRef) -> None:
        """Delete a session and all that belongs to it."""
        from . import edits  # a list does not need it

        self._require_closed(ref)
        edits.delete(ref.key, self.settings)
        if trashed := self._trash_of(ref.key).of_path(ref.key):
            trashed.remove()

    def fork(
        self, ref: SessionRef, new_id: str, *, at: int | None, cwd: str | None, title: str | None
    ) -> str:
        """Write a session with the history up to an event."""
        from . import edits  # a list does not need it

        native_id = chats.native_id(new_id)
        edits.fork(ref.key, native_id, last_seq=at, cwd=cwd, title=title)
        return native_id

    def _require_closed(self, ref: SessionRef) -> None:
        """Raise Busy while a process has the session open: it would stop writing to it."""
        if self.is_running(ref):
            raise Busy(
                f"Qwen Code has session {ref.native_id} open; close it first",
                session=ref.native_id,
            )


def _ref(chat: ChatFile) -> SessionRef | None:
    status = safe_io.nonempty_file_status(chat.path)
    if status is None:
        return None
    agents = (
        () if chat.agents is None else [_status(file) for file in chats.list_agents(chat.agents)]
    )
    return SessionRef(chat.path, chat.id, files.fingerprint(status, *agents))


def _status(entry: os.DirEntry[str]) -> tuple[str, int, int]:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return entry.path, 0, 0
    return entry.path, status.st_size, status.st_mtime_ns


def _facts(
    ref: SessionRef, state: SessionState, problems: tuple[str, ...], *, is_agent: bool
) -> SessionFacts:
    archived_at = None
    if chats.is_archived(ref.key):
        status = safe_io.nonempty_file_status(ref.key)
        archived_at = state.updated_at if status is None else status.st_ctime_ns // 1000
    is_automatic = state.title is None or state.title_is_automatic
    return SessionFacts(
        created_at=state.created_at,
        updated_at=state.updated_at,
        cwd=state.cwd or "/",
        title=state.title or state.typed_title,
        title_by=("agent" if state.title else "auto") if is_automatic else "person",
        model=state.model,
        git_branch=state.git_branch,
        archived_at=archived_at,
        forked_from=state.forked_from,
        parent=os.path.basename(os.path.dirname(ref.key)) if is_agent else None,
        open_since=state.open_since,
        threads=() if is_agent else tuple(_threads(ref.key)),
        problems=problems,
        extra=state.extra,
    )


def _threads(path: str) -> Iterator[ThreadRef]:
    """Return the subagents of a session. A file next to the transcript says what started each."""
    chat = chats.chat_of(path)
    entries = [] if chat is None or chat.agents is None else chats.list_agents(chat.agents)
    metas = {
        entry.path: files.read_json(f"{entry.path[: -len('.jsonl')]}.meta.json")
        for entry in entries
    }
    ids = {bodies.text(meta.get("agentId")): chats.agent_of(path) for path, meta in metas.items()}
    for path, meta in metas.items():
        parent = bodies.text(meta.get("parentAgentId"))
        yield ThreadRef(
            id=chats.agent_of(path) or path,
            key=path,
            kind=bodies.text(meta.get("agentType")) or None,
            title=bodies.text(meta.get("description")) or None,
            parent=ids.get(parent) if parent else None,
            call_id=bodies.text(meta.get("toolUseId")) or None,
        )
