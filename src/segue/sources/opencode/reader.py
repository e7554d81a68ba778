"""Read the sessions of opencode: in its databases, and in the files of versions before 1.2."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import replace

from segue.model.errors import InvalidInput, ReadOnly
from segue.model.event import InfoChanged
from segue.sources.base import Edit, OverlayOnly
from segue.sources.kit import database
from segue.sources.kit.edit.row_trash import RowTrash
from segue.sources.kit.reader import (
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
    collect,
    decode_resume_data,
    encode_resume_data,
)

from . import tables
from .records import Message, SessionInfo
from .stored_files import FileStore
from .tables import DatabaseStore

if TYPE_CHECKING:
    from .program import OpencodeProgram
    from .translator import OpencodeState, Translator


class _Store(Protocol):
    """What reading needs of a database, or of files."""

    def has_session(self, session: SessionInfo, id: str) -> bool: ...
    def children(self, session: SessionInfo) -> list[SessionInfo]: ...
    def origin(self, session: SessionInfo, created_ms: int) -> str | None: ...
    def messages(self, id: str, last_ms: int, last_id: str) -> Iterator[Message]: ...
    def count_messages(self, id: str, last_ms: int, last_id: str) -> int: ...
    def count_parts(self, id: str, last_ms: int, last_id: str) -> int: ...
    def has_newer_messages(self, id: str) -> bool: ...
    def key(self, session: SessionInfo) -> str: ...
    def lines(self, session: SessionInfo) -> list[dict[str, Any]]: ...


class OpencodeReader(Reader):
    """The sessions of one data directory. `path` is the database, if it is not found there."""

    name = "opencode"
    version = 3

    def __init__(self, directory: str, path: str | None = None) -> None:
        self.directory = directory
        self.path = path
        self._trash = RowTrash(directory)
        self._refs: database.UnchangedCache[dict[str, SessionRef]] = database.UnchangedCache()
        self._files = FileStore(os.path.join(directory, "storage"))

    def session_paths(self) -> Sequence[str]:
        """Return the database, the directory of files of older versions, and the trash."""
        return [
            self.path or os.path.join(self.directory, "opencode.db"),
            os.path.join(self.directory, "storage", "session"),
            self._trash.directory,
        ]

    def _databases(self) -> list[str]:
        """Return the existing databases."""
        return tables.find_databases(self.directory, self.path)

    def discover(self, report: Report) -> Iterable[SessionRef]:
        """Return all sessions, subagents included. If an id is in both, the database counts.

        A session that is being imported is left out, and one whose import was killed.
        """
        refs: dict[str, SessionRef] = {}
        self._add_rows(refs, self._databases(), report)
        for id in tables.unfinished_imports(self.directory):
            refs.pop(id, None)
        for ref in self._files.refs():
            refs.setdefault(ref.native_id, ref)
        self._add_rows(refs, [trashed.rows for trashed in self._trash.sessions()], report)
        return refs.values()

    def _add_rows(self, refs: dict[str, SessionRef], paths: list[str], report: Report) -> None:
        """Add the sessions of databases that are not among the others."""
        for path in paths:
            try:
                for id, ref in self._sessions(path).items():
                    refs.setdefault(id, ref)
            except (Unreadable, sqlite3.Error) as error:
                report(path, str(error))

    def status(self) -> object:
        """Return the statuses of all databases and their logs; None if there are files."""
        if os.path.isdir(self.session_paths()[1]):
            return None
        paths = [*self._databases(), *sorted(trashed.rows for trashed in self._trash.sessions())]
        statuses = {path: database.settled_status(path) for path in paths}
        return (
            None
            if None in statuses.values()
            else (statuses, tables.unfinished_imports(self.directory))
        )

    def _sessions(self, path: str) -> dict[str, SessionRef]:
        return self._refs.get(path, lambda: tables.session_refs(path))

    def ref(self, key: str) -> SessionRef | None:
        """Return a session as it is now."""
        path, native_id = database.split_key(key)
        if not path:
            return self._files.ref(key)
        if path not in self._databases() and self._trash.of_rows(path) is None:
            return None
        return self._sessions(path).get(native_id)

    def find(self, native_id: str) -> SessionRef | None:
        """Return the session with an id."""
        for path in self._databases():
            if ref := self._sessions(path).get(native_id):
                return ref
        return super().find(native_id)

    @property
    def edits(self) -> frozenset[Edit]:
        """The edits that opencode's program can make; the trash can always be emptied."""
        from . import program

        if program.find(self.directory, self.path) is not None and self._databases():
            return frozenset({"title", "archive", "trash", "delete", "fork"})
        has_trash = next(self._trash.sessions(), None) is not None
        return frozenset({"trash", "delete"}) if has_trash else frozenset()

    def change(self, ref: SessionRef, info: InfoChanged) -> None:
        """Rename or archive a session, or move it to the trash or back."""
        from . import edits, program

        trashed = self._trash.of_rows(database.split_key(ref.key)[0])
        if trashed is not None:
            if info.deleted is not False:
                raise InvalidInput("a session in the trash cannot be changed; restore it first")
            edits.restore(program.require(self.directory, self.path), trashed, self._databases)
            return
        opencode, session, path = self._changeable(ref)
        if info.title is None:
            raise OverlayOnly("opencode removes no titles")
        edits.change(
            opencode,
            session,
            title=info.title if isinstance(info.title, str) else None,
            archived=info.archived if isinstance(info.archived, bool) else None,
        )
        if info.deleted is True:
            _, end = collect(self.read(ref))
            subagents = [thread.id for thread in end.facts.threads] if end.facts else []
            edits.trash(opencode, self._trash, path, session, subagents)

    def _changeable(self, ref: SessionRef) -> tuple[OpencodeProgram, SessionInfo, str]:
        """Return the program, a session and its database.

        Raises OverlayOnly if there is no program, or if the session is in a file: only versions
        that are older than the program's database have those.
        """
        from . import program

        opencode, path = program.find(self.directory, self.path), database.split_key(ref.key)[0]
        if opencode is None or path not in self._databases():
            raise OverlayOnly("opencode's program is not installed, or does not have the session")
        with self._opened(ref) as (_, session):
            return opencode, session, path

    def delete(self, ref: SessionRef) -> None:
        """Delete a session with opencode's program, or from the trash."""
        from . import edits, program

        trashed = self._trash.of_rows(database.split_key(ref.key)[0])
        if trashed is not None:
            trashed.remove()
            return
        program.require(self.directory, self.path)
        try:
            opencode, session, _ = self._changeable(ref)
            edits.delete(opencode, session)
        except OverlayOnly as error:
            raise ReadOnly(f"segue cannot delete it permanently: {error}") from None

    def fork(
        self, ref: SessionRef, new_id: str, *, at: int | None, cwd: str | None, title: str | None
    ) -> str:
        """Import a copy of a session up to the event `at`."""
        from . import edits

        opencode, session, _ = self._changeable(ref)
        records = None
        if at is not None:
            items, _ = collect(self.read(ref))
            records = {item.record for item in items if item.seq <= at}
        return edits.fork(opencode, session, records, cwd=cwd, title=title)

    @contextmanager
    def _opened(self, ref: SessionRef) -> Iterator[tuple[_Store, SessionInfo]]:
        """Open the database or the files of a session."""
        path, _ = database.split_key(ref.key)
        if not path:
            stored = self._files.session_at(ref.key)
            if stored is None:
                raise Unreadable("its file is damaged")
            yield self._files, stored
            return
        with database.open_database(path) as connection:
            store = DatabaseStore(path, connection)
            session = store.session(ref.native_id)
            if session is None:
                raise FileNotFoundError(f"session {ref.native_id} was deleted")
            yield store, session

    def read(self, ref: SessionRef, resume: Resume | None = None) -> Items:
        """Yield the events of a session that are complete."""
        from .translator import OpencodeState, Translator  # a list does not need them

        state = decode_resume_data(resume, OpencodeState)
        with self._opened(ref) as (store, session):
            revert = repr(session.revert)
            if resume is not None:
                _check_state(store, session, state, revert)
            state.revert = revert
            translator = Translator(state, session)
            messages = store.messages(session.id, state.last_ms, state.last_id)
            if resume is None:
                messages = _note_origin(store, session, state, messages)
            yield from translator.translate(messages)
            facts = _facts(store, session, translator)
            if trashed := self._trash.of_rows(database.split_key(ref.key)[0]):
                facts = replace(facts, deleted_at=trashed.deleted_at)
            if not state.messages and store.has_newer_messages(session.id):
                # Some versions write both tables, this one a moment later: read everything again.
                problem = "its messages are in a format of a newer opencode"
                return End(replace(facts, problems=(*facts.problems, problem)))
        return End(facts, Resume(data=encode_resume_data(state)))

    def original_lines(self, ref: SessionRef) -> Iterable[bytes]:
        """Return the session, its messages and its parts as JSON."""
        with self._opened(ref) as (store, session):
            return [msgspec.json.encode(line) + b"\n" for line in store.lines(session)]


def _check_state(store: _Store, session: SessionInfo, state: OpencodeState, revert: str) -> None:
    """Raise Rewritten if the messages that were read are no longer as they were."""
    if state.has_partial:
        raise Rewritten("a text was not complete")
    if state.revert != revert:
        raise Rewritten("messages were hidden, or shown again")
    last = (state.last_ms, state.last_id)
    if store.count_messages(session.id, *last) != state.messages:
        raise Rewritten("messages were removed")
    if store.count_parts(session.id, *last) != state.parts:
        raise Rewritten("parts were added to a message, or removed")


def _note_origin(
    store: _Store, session: SessionInfo, state: OpencodeState, messages: Iterator[Message]
) -> Iterator[Message]:
    """Note which session this one is a fork of, if its first message is older than itself."""
    first = next(messages, None)
    if first is None:
        return
    if first.created_ms < session.created_ms:
        state.forked_from = store.origin(session, first.created_ms)
    yield from chain((first,), messages)


def _facts(store: _Store, session: SessionInfo, translator: Translator) -> SessionFacts:
    state = translator.state
    if state.messages and state.damaged == state.messages and not state.is_open:
        raise Unreadable(translator.problems[0])
    parent = session.parent
    return SessionFacts(
        created_at=session.created_ms * 1000,
        updated_at=session.updated_ms * 1000,
        cwd=session.directory or "/",
        # The first prompt is shown instead of a title that only has the time.
        title=None if session.is_untitled and state.has_prompt else session.title or None,
        title_by="agent",
        model=state.model or session.model,
        git_branch=session.branch,
        archived_at=session.archived_ms and session.archived_ms * 1000,
        forked_from=state.forked_from,
        parent=parent if parent is not None and store.has_session(session, parent) else None,
        open_since=state.prompted_at * 1000 if state.is_open else None,
        threads=tuple(_threads(store, session, state)),
        problems=tuple(translator.problems),
        extra=session.extra,
    )


def _threads(store: _Store, session: SessionInfo, state: OpencodeState) -> Iterator[ThreadRef]:
    """Return the subagents of a session, and theirs."""
    known = {session.id}
    parents: list[tuple[SessionInfo, str | None]] = [(session, None)]
    while parents:
        parent, parent_id = parents.pop(0)
        for child in store.children(parent):
            if child.id in known:
                continue
            known.add(child.id)
            parents.append((child, child.id))
            yield ThreadRef(
                id=child.id,
                key=store.key(child),
                kind=child.agent,
                title=child.title or None,
                parent=parent_id,
                call_id=state.spawns.get(child.id),
            )
