"""Read the sessions in Goose's database."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from segue.model import clock
from segue.sources.kit import bodies, database
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
)

from . import tables
from .tables import SessionRow
from .translator import GooseState, Row, Translator

_HIDDEN = "hidden"  # the type of sessions that Goose starts for itself
# The names of sessions that neither a person nor a model has named.
_DEFAULT_NAMES = frozenset({"cli session", "acp session", "new session", "new chat"})
_ABANDONED_SECONDS = 60  # after the last write of an open turn
_EXTRA = ("session_type", "provider_name", "goose_mode", "schedule_id", "project_id")


class GooseReader(Reader):
    """The sessions of one database."""

    name = "goose"

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, "sessions.db")
        self._refs: database.UnchangedCache[dict[str, SessionRef]] = database.UnchangedCache()

    def places(self) -> Sequence[str]:
        """Return the database."""
        return [self.path]

    def discover(self, report: Report) -> Iterable[SessionRef]:
        """Return all sessions, subagents included."""
        try:
            return list(self._sessions().values())
        except (Unreadable, sqlite3.Error) as error:
            report(self.path, str(error))
            return []

    def status(self) -> object:
        """Return the status of the database and its log."""
        return database.settled_status(self.path)

    def _sessions(self) -> dict[str, SessionRef]:
        if not os.path.exists(self.path):
            return {}
        return self._refs.get(self.path, lambda: tables.session_refs(self.path))

    def ref(self, key: str) -> SessionRef | None:
        """Return a session as it is now."""
        path, identity = database.split_key(key)
        return self._sessions().get(identity) if path == self.path else None

    def read(self, ref: SessionRef, resume: Resume | None = None) -> Items:
        """Yield the events of a session, in the order in which Goose shows them."""
        state = GooseState() if resume is None else GooseState.decode(resume.data)
        with database.open_database(self.path) as connection:
            row = tables.find_session(connection, ref.native_id)
            if row is None or row.identity != ref.identity:
                raise FileNotFoundError(f"session {ref.native_id} was deleted")
            if resume is not None:
                _check_state(connection, row, state)
            translator = Translator(state, row.created_at, row.model)
            messages = tables.messages_after(connection, row.id, state.last_row)
            for message, following in _pairs(messages):
                if message["created_timestamp"] < state.last_time:
                    raise Rewritten("a message was inserted before others")
                if state.rows == 0:
                    _find_origin(connection, row, translator, bodies.text(message["message_id"]))
                yield from translator.message(message, following)
            if _is_settled(connection, row, state):
                total = tables.total_usage(connection, row)
                yield from translator.rest_of_usage(total, max(state.last_at, row.created_at))
            threads = _threads(connection, self.path, row, state)
        if state.rows and state.damaged == state.rows:
            raise Unreadable(translator.problems[0] if translator.problems else "it is damaged")
        if not state.rows or row.type == _HIDDEN:
            return End(None, Resume(data=state.encode()))
        facts = _facts(row, state, threads, tuple(translator.problems))
        return End(facts, Resume(data=state.encode()))

    def original_lines(self, ref: SessionRef) -> Iterable[bytes]:
        """Return the row of the session and its messages as JSON."""
        with database.open_database(self.path) as connection:
            row = tables.find_session(connection, ref.native_id)
            if row is None or row.identity != ref.identity:
                raise FileNotFoundError(f"session {ref.native_id} was deleted")
            rows = [row.fields, *tables.messages_after(connection, row.id)]
        return [msgspec.json.encode(fields) + b"\n" for fields in rows]


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
        if spawned is not None and spawned.parent in ("", row.id):
            add(spawned, None)
    return tuple(refs.values())


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
