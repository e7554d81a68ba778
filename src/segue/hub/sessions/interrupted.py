"""Show a session whose process died as interrupted, before another process closes its turn.

Reads do not write: the events that recovery will store are computed and applied to the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from segue.model import ids
from segue.model.event import AnyBody, Body, Draft, Event
from segue.model.lifecycle import RUNNING_STATUSES, Status
from segue.model.query import Query, matches
from segue.model.session import Session
from segue.store.base import Store, append_drafts


class EndedSession(NamedTuple):
    """A session's row after its open turn has ended, and the events that end it.

    The events are not stored. There are none if the session's process has not died.
    """

    session: Session
    events: Sequence[Event] = ()


async def as_read(store: Store, sessions: Sequence[Session]) -> list[Session]:
    """Return rows of the store as clients see them.

    A session whose process died is idle. Its position in lists and its last event stay as they are
    stored. Costs nothing if no session runs.
    """
    dead = await _with_dead_process(store, sessions)
    if not dead:
        return list(sessions)
    return [
        await _ended_row(store, session) if session.id in dead else session for session in sessions
    ]


async def ended(store: Store, session: Session) -> EndedSession:
    """Return a stored session with the events that end its turn, if its process died."""
    while session.id in await _with_dead_process(store, [session]):
        from segue.hub.turns.recovery import end_of_dead_turn, unstored_events

        drafts = [
            *await unstored_events(store, session),
            *await end_of_dead_turn(store, session),
        ]
        current = await store.get(session.workspace, session.id)
        if current is None or current.last_seq == session.last_seq:
            return EndedSession(*append_drafts(session, _with_ids(session, drafts), _end(session)))
        session = current  # recovery or an edit has stored events meanwhile
    return EndedSession(session)


def stored_query(query: Query) -> Query:
    """Return the query that also selects the rows that may read as its statuses."""
    if "idle" not in query.statuses:
        return query
    added: list[Status] = [name for name in RUNNING_STATUSES if name not in query.statuses]
    return replace(query, statuses=(*query.statuses, *added))


async def select(store: Store, query: Query, rows: Sequence[Session]) -> list[Session]:
    """Return as clients see them the rows of `stored_query` that match the query."""
    sessions = await as_read(store, rows)
    if not query.statuses or not _any_runs(rows):
        return sessions
    return [
        session
        for session, row in zip(sessions, rows, strict=True)
        if row.status not in RUNNING_STATUSES or matches(query, session)
    ]


def _any_runs(sessions: Sequence[Session]) -> bool:
    return not {session.status for session in sessions}.isdisjoint(RUNNING_STATUSES)


async def _with_dead_process(store: Store, sessions: Sequence[Session]) -> set[str]:
    if not _any_runs(sessions):
        return set()
    from segue.hub.turns.holder import interrupted_sessions

    return await interrupted_sessions(store, sessions)


async def _ended_row(store: Store, session: Session) -> Session:
    from segue.hub.turns.recovery import end_of_dead_turn

    drafts = await end_of_dead_turn(store, session)
    row, _ = append_drafts(session, drafts, _end(session))
    return replace(row, last_seq=session.last_seq, active_at=session.active_at)


def _end(session: Session) -> int:
    """Return the last time at which the process of a session is known to have run."""
    return session.updated_at


def _with_ids(session: Session, drafts: Sequence[AnyBody | Draft]) -> list[Draft]:
    """Return drafts with ids that are the same at every read."""
    named: list[Draft] = []
    for draft in drafts:
        if isinstance(draft, Body):
            draft = Draft(body=draft)
        seq = session.last_seq + len(named) + 1
        id = draft.id or ids.derived_id("segue", "ended", session.id, str(seq))
        named.append(replace(draft, id=id))
    return named
