"""Write events, and the rows of the sessions that they change.

Each statement that adds events to one session begins with a CTE `s` that names the session, and
`ADD` then adds the events. `write_changes` does so for many sessions in one statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from segue.model import codec, event, search_text
from segue.model.event import Event
from segue.model.session import Session
from segue.model.webhooks.notices import session_notices
from segue.store.query_sql import columns

from .connection import Connection
from .deliveries import notify_arguments, notify_cte
from .tsquery import vectors

LONG_TEXT_CHARACTERS = 20_000  # of an event, which takes milliseconds to split into words
MAX_STATEMENT_BYTES = 16_000_000  # of events
_OVERHEAD_BYTES = 8_000  # counted for an event in addition to its body

Batch = tuple[Any, ...]  # the first nine arguments of each statement

# The id of the writing transaction, see `SessionLists.change_point`.
CHANGE = "pg_current_xact_id()::text::bigint"

ADD = """
    added AS (
      INSERT INTO events (session, seq, id, at, type, version, body)
      SELECT s.pk, e.seq, e.id, e.at, e.type, $6, e.body
      FROM s, unnest($1::int[], $2::text[], $3::bigint[], $4::text[], $5::bytea[])
        AS e (seq, id, at, type, body)
    ),
    indexed AS (
      INSERT INTO search (session, seq, part, words)
      SELECT s.pk, w.seq, w.part, w.words::tsvector
      FROM s, unnest($7::int[], $8::int[], $9::text[]) AS w (seq, part, words)
      ON CONFLICT (session, seq, part) DO UPDATE SET words = excluded.words
    )
"""

# The types of the columns that `columns` returns; asyncpg would look up smallint[] in the database.
_COLUMN_TYPES = {
    "state": "int",
    "status": "text",
    "cwd": "bytea",
    "agent": "text",
    "version": "bigint",
    "deployment": "text",
    "tag": "bytea",
    "source": "text",
    "created_at": "bigint",
    "active_at": "bigint",
    "inactive_since": "bigint",
    "in_turn": "int",
}
# The parameters begin with pk, bytes, row and the columns of each session. Then come the columns of
# `ADD`, each with the pk of an event's or word's session, the finished messages and the notices.
_ROW_TYPES = ["bigint", "bigint", "bytea", *_COLUMN_TYPES.values()]
_FIRST = len(_ROW_TYPES) + 1  # the number of the first parameter after those of the rows


def _parameters(first: int, types: Sequence[str]) -> str:
    return ", ".join(f"${number}::{type}[]" for number, type in enumerate(types, first))


# The condition on $1 with each join is for the planner: without statistics, it would else read
# whole indexes to join them.
_WRITE_CHANGES = f"""
    WITH s AS (
      UPDATE sessions SET change = {CHANGE}, bytes = sessions.bytes + r.more_bytes, row = r.row,
        {", ".join(f"{name} = r.{name}" for name in _COLUMN_TYPES)}
      FROM unnest({_parameters(1, _ROW_TYPES)})
        AS r (pk, more_bytes, row, {", ".join(_COLUMN_TYPES)})
      WHERE sessions.pk = ANY($1) AND sessions.pk = r.pk
      RETURNING sessions.pk, sessions.state, sessions.active_at
    ),
    added AS (
      INSERT INTO events (session, seq, id, at, type, body, version)
      SELECT e.*, {event.BODY_VERSION}
      FROM unnest({_parameters(_FIRST, ["bigint", "int", "text", "bigint", "text", "bytea"])}) AS e
    ),
    indexed AS (
      INSERT INTO search (session, seq, part, words)
      SELECT w.session, w.seq, w.part, w.words::tsvector
      FROM unnest({_parameters(_FIRST + 6, ["bigint", "int", "int", "text"])})
        AS w (session, seq, part, words)
      ON CONFLICT (session, seq, part) DO UPDATE SET words = excluded.words
    ),
    linked AS (
      UPDATE links l SET state = s.state, active_at = s.active_at FROM s
      WHERE l.session = ANY($1) AND l.session = s.pk
        AND (l.state <> s.state OR l.active_at <> s.active_at)
    ),
    finished AS (
      DELETE FROM deltas d USING unnest({_parameters(_FIRST + 10, ["bigint", "text"])})
        AS f (session, message)
      WHERE d.session = ANY(${_FIRST + 10}) AND d.session = f.session AND d.message = f.message
    ),
    {notify_cte(_FIRST + 12)}
    SELECT
"""


class Change(NamedTuple):
    """What one transaction adds to a session.

    `before` and `session` are the rows before and after `events`. The deltas of `finished` messages
    are deleted.
    """

    pk: int
    before: Session
    session: Session
    events: Sequence[Event]
    finished: Sequence[str] = ()


async def write_changes(connection: Connection, changes: Sequence[Change]) -> None:
    """Write the rows and events of sessions, each of which is locked and occurs once."""
    if any(_is_long(added) for change in changes for added in change.events):
        batches = await asyncio.to_thread(_batches_of, changes)
    else:
        batches = _batches_of(changes)
    for start, end in _statements([batch_bytes(first) for first, *_ in batches]):
        firsts = [first for first, *_ in batches[start:end]]
        await connection.fetch(_WRITE_CHANGES, *_arguments(changes[start:end], firsts))
    for change, (_, *further) in zip(changes, batches, strict=True):
        await add_batches(connection, change.pk, further)


def _batches_of(changes: Sequence[Change]) -> list[list[Batch]]:
    batches = [list(encode_batches(change.events)) for change in changes]
    for change, change_batches in zip(changes, batches, strict=True):
        first = change_batches[0]
        change_batches[0] = with_row_words(first, change.session, before=change.before)
    return batches


def _statements(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of changes that fit into one statement each."""
    start = total = 0
    for index, size in enumerate(sizes):
        if total and total + size > MAX_STATEMENT_BYTES:
            yield start, index
            start, total = index, 0
        total += size
    yield start, len(sizes)


def _arguments(changes: Sequence[Change], batches: Sequence[Batch]) -> list[Any]:
    """Return the parameters of `_WRITE_CHANGES`."""
    rows = [
        (
            change.pk,
            batch_bytes(batch),
            codec.encode(change.session),
            *columns(change.session).values(),
        )
        for change, batch in zip(changes, batches, strict=True)
    ]
    sessions = [change.pk for change in changes]
    events = [
        (pk, *values)
        for pk, batch in zip(sessions, batches, strict=True)
        for values in zip(*batch[:5], strict=True)
    ]
    words = [
        (pk, *values)
        for pk, batch in zip(sessions, batches, strict=True)
        for values in zip(*batch[6:], strict=True)
    ]
    finished = [(change.pk, message) for change in changes for message in change.finished]
    notices = (
        (change.session.workspace, notice)
        for change in changes
        for notice in session_notices(change.before, change.session, change.events)
    )
    return [
        *_transposed(rows, len(_ROW_TYPES)),
        *_transposed(events, 6),
        *_transposed(words, 4),
        *_transposed(finished, 2),
        *notify_arguments(notices),
    ]


def _transposed(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [[row[index] for row in rows] for index in range(width)]


async def add_batches(connection: Connection, pk: int, batches: Iterable[Batch]) -> None:
    """Add the events that did not fit into the first statement."""
    update = "UPDATE sessions SET bytes = bytes + $11 WHERE pk = $10 RETURNING pk"
    sql = f"WITH s AS ({update}), {ADD} SELECT"
    for batch in batches:
        await connection.fetch(sql, *batch, pk, batch_bytes(batch))


def encode_batches(events: Iterable[Event]) -> Iterator[Batch]:
    """Yield events and their words as the arguments of `ADD`, column by column."""
    batch: list[tuple[Event, bytes]] = []
    free_bytes = 0
    for added in events:
        body = codec.encode(added.body)
        if len(body) > free_bytes:
            if batch:
                yield _columns(batch)
            batch, free_bytes = [], MAX_STATEMENT_BYTES
        batch.append((added, body))
        free_bytes -= len(body) + _OVERHEAD_BYTES
    if batch:
        yield _columns(batch)


def with_row_words(batch: Batch, session: Session, *, before: Session | None = None) -> Batch:
    """Return a batch that also indexes the text of the session's row, unless it has not changed.

    Its words have the seq 0, which no event has. They always fit into one part.
    """
    text = search_text.searchable_row(session)
    if before is not None and text == search_text.searchable_row(before):
        return batch
    *columns, seqs, parts, words = batch
    (vector,) = vectors(search_text.tokens(text))
    return (*columns, [0, *seqs], [0, *parts], [vector, *words])


def batch_bytes(batch: Batch) -> int:
    """Return the number of bytes of a batch's events."""
    bodies: list[bytes] = batch[4]
    return sum(map(len, bodies))


def _is_long(added: Event) -> bool:
    """Return True if it takes long to split an event's text into words."""
    content = getattr(added.body, "content", ())
    return sum(len(getattr(block, "text", None) or "") for block in content) > LONG_TEXT_CHARACTERS


def _columns(batch: Sequence[tuple[Event, bytes]]) -> Batch:
    words = [
        (added.seq, part, vector)
        for added, _ in batch
        if (text := search_text.searchable_text(added.body))
        for part, vector in enumerate(vectors(search_text.tokens(text)))
    ]
    return (
        [added.seq for added, _ in batch],
        [added.id for added, _ in batch],
        [added.at for added, _ in batch],
        [added.type for added, _ in batch],
        [body for _, body in batch],
        event.BODY_VERSION,
        [seq for seq, _, _ in words],
        [part for _, part, _ in words],
        [vector for _, _, vector in words],
    )
