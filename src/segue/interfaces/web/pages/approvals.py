"""Permission requests that wait for an answer: in their session, and all of them in one inbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from segue.interfaces.web.request import WebRequest
from segue.model import clock
from segue.model.event import Event, PermissionAsked
from segue.model.query import Query
from segue.model.session import OWN, Session
from segue.model.tools.changes import with_changes
from segue.render.chunks import SessionView
from segue.render.items import Item, build_items
from segue.render.pairing import MAX_PAIR_DISTANCE, Pairs, find_openings

MAX_RUNNING_TIME = clock.DAY  # of another tool's session without a new event
MAX_INBOX_SESSIONS = 200  # the last active ones, of which the waiting and running are shown


class WaitingSession(NamedTuple):
    """A session that waits for a person: the view of it, and its open requests.

    `command` opens it in the program in which it waits; "" if this server runs its turns.
    """

    view: SessionView
    requests: list[Item]
    command: str = ""


async def open_requests(request: WebRequest, session: Session) -> list[Item]:
    """Return the open permission requests of a session, each with the call that it is about."""
    if not session.open_asks:
        return []

    async def read(type: str) -> Sequence[Event]:
        return await request.hub.history.events(
            request.principal, session.id, types=(type,), limit=MAX_PAIR_DISTANCE, backward=True
        )

    asked = [
        event
        for event in await read("permission_asked")
        if isinstance(event.body, PermissionAsked) and event.body.ask_id in session.open_asks
    ]
    # A call may have more changes than are read.
    events = [*await read("tool_call"), *await read("tool_call_changed")]
    calls = with_changes(sorted(events, key=lambda event: event.seq))
    return build_items(session, asked, Pairs({}, find_openings(calls)))


async def recent_sessions(request: WebRequest) -> list[Session]:
    """Return the sessions that were active last."""
    query = Query(limit=MAX_INBOX_SESSIONS)
    listed = await request.hub.sessions.list(request.principal, query, bind_filters=False)
    return list(listed.sessions)


def is_waiting(session: Session) -> bool:
    """Return whether a session's turn needs an answer from a person."""
    return bool(session.open_asks) and session.state == "active"


def is_running(session: Session) -> bool:
    """Return whether a session's agent works.

    Another tool's session that was left in the middle of a turn has the status "running" for ever.
    """
    if session.status not in ("running", "rescheduling") or session.open_asks:
        return False
    return session.owner == OWN or session.active_at > clock.now() - MAX_RUNNING_TIME


def has_failed(session: Session) -> bool:
    """Return whether a session's last turn ended with an error."""
    return session.stop_reason == "error" and session.status == "idle"
