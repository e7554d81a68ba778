"""Read the sessions in Goose's database, in older files and in the trash."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
from msgspec import UnsetType
from msgspec.structs import replace

from segue.model import clock
from segue.model.errors import InvalidInput, ReadOnly
from segue.model.event import InfoChanged
from segue.sources.base import Edit, OverlayOnly
from segue.sources.kit import bodies, database
from segue.sources.kit.edit.row_trash import RowTrash, TrashedSession
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
from .session_files import SessionFiles
from .tables import SessionRow
from .translator import GooseState, Row, Translator

if TYPE_CHECKING:
    from .edits import GooseProgram

_HIDDEN = "hidden"  # the type of sessions that Goose starts for itself
# The names of sessions that neither a person nor a model has named.
_DEFAULT_NAMES = frozenset({"cli session", "acp session", "new session", "new chat"})
_ABANDONED_SECONDS = 60  # after the last write of an open turn
_EXTRA = ("session_type", "provider_name", "goose_mode", "schedule_id", "project_id")


class GooseReader(Reader):
    """The sessions of one directory: in its database, in older files and in the trash."""

    name = "goose"

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, "sessions.db")
        self._directory = directory
        self._files = SessionFiles(directory)
        self._trash = RowTrash(directory)
        self._refs: database.UnchangedCache[dict[str, SessionRef]] = database.UnchangedCache()

    def session_paths(self) -> Sequence[str]:
        """Return the database, and the directory of older files and of the trash."""
        return [self.path, self._directory]

    def discover(self, report: Report) -> Iterable[SessionRef]:
        """Return all sessions, subagents included. A session that Goose still has counts first."""
        refs: dict[str, SessionRef] = {}
        for path in (self.path, *(trashed.rows for trashed in self._trash.sessions())):
            try:
                for identity, ref in self._sessions(path).items():
                    refs.setdefault(identity, ref)
            except (Unreadable, sqlite3.Error) as error:
                report(path, str(error))
        imported = {ref.native_id for ref in refs.values()}
        older = [ref for ref in self._files.refs() if ref.native_id not in imported]
        return [*refs.values(), *older]

    def status(self) -> object:
        """Return the status of the database, its log and the trash; None if there are files."""
        status = database.settled_status(self.path)
        trashed = sorted(trashed.directory for trashed in self._trash.sessions())
        return None if status is None or self._files.exist() else (status, trashed)

    def _sessions(self, path: str) -> dict[str, SessionRef]:
        if not os.path.exists(path):
            return {}
        return self._refs.get(path, lambda: tables.session_refs(path))

    def ref(self, key: str) -> SessionRef | None:
        """Return a session as it is now."""
        path, identity = database.split_key(key)
        if not path:
            return self._files.ref(key)
        if path != self.path and self._trash.of_rows(path) is None:
            return None
        return self._sessions(path).get(identity)

    @property
    def edits(self) -> frozenset[Edit]:
        """The edits that Goose's program can make; the trash can always be emptied."""
        from . import edits

        program = edits.find_program(self._directory)
        if program is not None and os.path.exists(self.path):
            return frozenset({"title", "archive", "trash", "delete", "fork"})
        has_trash = next(self._trash.sessions(), None) is not None
        return frozenset({"trash", "delete"}) if has_trash else frozenset()

    def change(self, ref: SessionRef, info: InfoChanged) -> str | None:
        """Rename or archive a session, or move it to the trash or back: it then gets a new id."""
        from . import edits

        trashed = self._trashed(ref)
        if trashed is not None:
            if info.deleted is not False:
                raise InvalidInput("a session in the trash cannot be changed; restore it first")
            return edits.restore(edits.require_program(self._directory), trashed, self.path)
        program = self._program_for(ref)
        if not isinstance(info.title, UnsetType):
            program.rename(ref.native_id, info.title)
        if not isinstance(info.archived, UnsetType):
            program.set_archived(ref.native_id, archived=info.archived)
        if info.deleted is True:
            _, end = collect(self.read(ref))
            subagents = [thread.id for thread in end.facts.threads] if end.facts else []
            edits.trash(program, self._trash, self.path, ref.native_id, subagents)
        return None

    def _trashed(self, ref: SessionRef) -> TrashedSession | None:
        return self._trash.of_rows(database.split_key(ref.key)[0])

    def _program_for(self, ref: SessionRef) -> GooseProgram:
        """Return the program that can change a session; raises OverlayOnly if there is none."""
        from . import edits

        program = edits.find_program(self._directory)
        if program is None or database.split_key(ref.key)[0] != self.path:
            raise OverlayOnly("Goose's program is not installed, or does not have the session")
        return program

    def delete(self, ref: SessionRef) -> None:
        """Delete a session with Goose's program, or from the trash, or its older file."""
        from . import edits

        trashed = self._trashed(ref)
        if trashed is not None:
            trashed.remove()
        elif database.split_key(ref.key)[0]:
            try:
                edits.require_program(self._directory).delete(ref.native_id)
            except OverlayOnly as error:
                raise ReadOnly(f"segue cannot delete it permanently: {error}") from None
        else:
            os.unlink(ref.key)

    def fork(
        self, ref: SessionRef, new_id: str, *, at: int | None, cwd: str | None, title: str | None
    ) -> str:
        """Import a copy of a session up to the message with the event `at`."""
        from . import edits

        program = self._program_for(ref)
        messages = self._messages_until(ref, at)
        return edits.fork(program, ref.native_id, messages=messages, cwd=cwd, title=title)

    def _messages_until(self, ref: SessionRef, seq: int | None) -> int:
        """Return the number of messages up to the one with an event."""
        with database.open_database(self.path) as connection:
            row = _require_row(connection, ref)
            translator = Translator(GooseState(), row.created_at, row.model)
            for message, following in _pairs(tables.messages_after(connection, row.id)):
                items = list(translator.message(message, following))
                if seq is not None and items and items[0].seq > seq:
                    return translator.state.rows - 1
            return translator.state.rows

    def read(self, ref: SessionRef, resume: Resume | None = None) -> Items:
        """Yield the events of a session, in the order in which Goose shows them."""
        if not database.split_key(ref.key)[0]:
            return (yield from self._files.read(ref))
        state = decode_resume_data(resume, GooseState)
        path, _ = database.split_key(ref.key)
        with database.open_database(path) as connection:
            row = _require_row(connection, ref)
            if resume is not None:
                _check_state(connection, row, state)
            translator = Translator(state, row.created_at, row.model)
            messages = tables.messages_after(connection, row.id, state.last_row)
            for message, following in _pairs(messages):
                if resume is not None and message["created_timestamp"] < state.last_time:
                    raise Rewritten("a message was inserted before others")
                if state.rows == 0:
                    _find_origin(connection, row, translator, bodies.text(message["message_id"]))
                yield from translator.message(message, following)
            if _is_settled(connection, row, state):
                total = tables.total_usage(connection, row)
                yield from translator.rest_of_usage(total, max(state.last_at, row.created_at))
            threads = _threads(connection, path, row, state)
        if state.rows and state.damaged == state.rows:
            raise Unreadable(translator.problems[0] if translator.problems else "it is damaged")
        if not state.rows or row.type == _HIDDEN:
            return End(None, Resume(data=encode_resume_data(state)))
        facts = _facts(row, state, threads, tuple(translator.problems))
        if trashed := self._trash.of_rows(path):
            facts = replace(facts, deleted_at=trashed.deleted_at)
        return End(facts, Resume(data=encode_resume_data(state)))

    def original_lines(self, ref: SessionRef) -> Iterable[bytes] | None:
        """Return the row of the session and its messages as JSON, or the lines of its file."""
        if not database.split_key(ref.key)[0]:
            return None
        with database.open_database(database.split_key(ref.key)[0]) as connection:
            row = _require_row(connection, ref)
            rows = [row.fields, *tables.messages_after(connection, row.id)]
        return [msgspec.json.encode(fields) + b"\n" for fields in rows]


def _require_row(connection: sqlite3.Connection, ref: SessionRef) -> SessionRow:
    """Return the row of a session; raises FileNotFoundError if it is gone."""
    row = tables.find_session(connection, ref.native_id)
    if row is None or row.identity != ref.identity:
        raise FileNotFoundError(f"session {ref.native_id} was deleted")
    return row


def _check_state(connection: sqlite3.Connection, row: SessionRow, state: GooseState) -> None:
    """Raise Rewritten if the messages that were read are no longer the first ones."""
    if tables.count_until(connection, row.id, state.last_row) != state.rows:
        raise Rewritten("messages were replaced")
    rest = tables.total_usage(connection, row) - state.counted
    if rest.tokens < state.rest.tokens:
        raise Rewritten("a message has tokens that were counted before")


def _find_origin(
    connection: sqlite3.Connection, row: SessionRow, translator: Translator, message_id: str
) -> None:
    """Note which session this one is a fork of, if its first message is a copy."""
    origin = tables.find_origin(connection, row, message_id) if message_id else None
    if origin is not None:
        translator.state.forked_from = origin.identity
        translator.copied_ids = tables.message_ids(connection, origin.id)


def _is_settled(connection: sqlite3.Connection, row: SessionRow, state: GooseState) -> bool:
    """Return whether no message will come that has tokens of the session's total.

    Goose stores a message of the agent after its tools have finished.
    """
    age = clock.now() - row.updated_at
    is_open = state.open_since is not None and age < _ABANDONED_SECONDS * clock.SECOND
    return not is_open or not tables.has_ledger(connection)


def _pairs(rows: Iterator[Row]) -> Iterator[tuple[Row, Row | None]]:
    """Return each row with the next one."""
    previous: Row | None = None
    for row in chain(rows, (None,)):
        if previous is not None:
            yield previous, row
        previous = row


def _threads(
    connection: sqlite3.Connection, path: str, row: SessionRow, state: GooseState
) -> tuple[ThreadRef, ...]:
    """Return the subagents of a session, and theirs."""
    refs: dict[str, ThreadRef] = {}

    def add(child: SessionRow, parent: str | None) -> None:
        if child.id in refs or child.id == row.id:
            return
        refs[child.id] = ThreadRef(
            id=child.id,
            key=database.row_key(path, child.identity),
            kind=child.type,
            title=bodies.text(child.fields["name"]) or None,
            parent=parent,
            call_id=state.spawns.get(child.id),
        )
        for grandchild in tables.subagents(connection, child.id):
            add(grandchild, child.id)

    for child in tables.subagents(connection, row.id):
        add(child, None)
    for native_id in state.spawns:  # before 1.50 only the result of the call names the subagent
        spawned = tables.find_session(connection, native_id)
        if spawned is not None and _is_subagent(connection, spawned, row):
            add(spawned, None)
    return tuple(refs.values())


def _is_subagent(connection: sqlite3.Connection, spawned: SessionRow, row: SessionRow) -> bool:
    """Return whether a session that another has started is still its subagent.

    A session that was restored has a new id, which the rows of its subagents do not have.
    """
    parent = spawned.parent
    if parent is None or parent in ("", row.id):
        return parent is not None
    return tables.find_session(connection, parent) is None


def _facts(
    row: SessionRow,
    state: GooseState,
    threads: tuple[ThreadRef, ...],
    problems: tuple[str, ...],
) -> SessionFacts:
    name = bodies.text(row.fields["name"]) or bodies.text(row.fields["description"])
    is_named = bool(row.fields["user_set_name"])
    if not is_named and name.lower() in _DEFAULT_NAMES:
        name = ""
    return SessionFacts(
        created_at=row.created_at,
        updated_at=row.updated_at,
        cwd=bodies.text(row.fields["working_dir"]) or "/",
        title=name or None,
        title_by="person" if is_named else "agent",
        model=state.model or row.model,
        archived_at=bodies.time_of(row.fields["archived_at"]),
        forked_from=state.forked_from,
        parent=row.parent,
        open_since=state.open_since,
        threads=threads,
        problems=problems,
        extra={name: value for name in _EXTRA if (value := bodies.text(row.fields[name]))},
    )
