"""Threads of a session: the primary thread, and the threads of subagents.

Only sessions of sources that record subagents have the latter.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Raw, convert
from msgspec.structs import replace
from starlette.responses import StreamingResponse

from segue.interfaces.rest import paging
from segue.interfaces.rest.events.event_encoder import encoder_with_state
from segue.interfaces.rest.events.event_page import (
    MAX_PAGE_SIZE,
    EventFilter,
    EventPosition,
    read_page,
)
from segue.interfaces.rest.events.stream import stream_session
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas import events as schemas
from segue.interfaces.rest.schemas.requests import Out, Page
from segue.interfaces.rest.schemas.session import UsageOut, show, status, thread_id, usage
from segue.model import clock, ids
from segue.model.anthropic.agents import ThreadAgent
from segue.model.errors import InvalidInput, NotFound
from segue.model.lifecycle import Status
from segue.model.session import Session
from segue.model.session import Thread as Subagent


class ThreadStats(Out, frozen=True):
    active_seconds: float
    duration_seconds: float
    startup_seconds: float


class Thread(Out, frozen=True, tag_field="type", tag="session_thread"):
    id: str
    session_id: str
    parent_thread_id: str | None
    workflow_run_id: None
    agent: ThreadAgent
    status: Status
    stats: ThreadStats
    usage: UsageOut
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None


async def list_(request: RestRequest) -> Page[Thread]:
    session = await request.session()
    statuses = request.params.statuses()
    limit = request.params.limit(MAX_PAGE_SIZE, MAX_PAGE_SIZE)
    list_name, last = f"threads:{session.id}", (-1, "")
    if token := request.params.text("page"):
        last = await paging.decode_page(request, token, list_name)
    threads: list[Thread] = []
    for subagent in (None, *await _subagents(request, session)):
        position = _position(subagent)
        if position <= last:
            continue
        thread = await _show(request, session, subagent)
        if statuses and thread.status not in statuses:
            continue
        if len(threads) == limit:
            next_page = await paging.encode_page(request, list_name, *last)
            return Page(data=threads, next_page=next_page)
        threads.append(thread)
        last = position
    return Page(data=threads, next_page=None)


async def retrieve(request: RestRequest) -> Thread:
    return await _show(request, *await _find(request))


async def archive(request: RestRequest) -> Thread:
    await _find(request)
    raise InvalidInput("a thread cannot be archived; archive the session")


async def list_events(request: RestRequest) -> schemas.EventPage:
    session, subagent = await _find(request)
    if subagent is None:
        return await read_page(request, session, EventFilter())
    limit = request.params.limit(MAX_PAGE_SIZE, MAX_PAGE_SIZE)
    list_name = f"events:{session.id}:{subagent.id}"
    start = EventPosition(0, 0)
    if token := request.params.text("page"):
        seq, text = await paging.decode_page(request, token, list_name)
        start = EventPosition(seq, int(text))
    encoder = await encoder_with_state(request, session, session)
    events: list[schemas.Event] = []
    async for stored in request.hub.history.thread_events(
        request.principal, session.id, subagent.id
    ):
        for part, event in enumerate(await encoder.encode(stored)):
            if (stored.seq, part) < start:
                continue
            if len(events) == limit:
                next_page = await paging.encode_page(request, list_name, stored.seq, str(part))
                return schemas.EventPage(data=events, next_page=next_page)
            events.append(event)
    return schemas.EventPage(data=events, next_page=None)


async def stream(request: RestRequest) -> StreamingResponse:
    session, subagent = await _find(request)
    if subagent is not None:
        raise InvalidInput("only the primary thread can be streamed; list this thread's events")
    return await stream_session(request, session)


async def _find(request: RestRequest) -> tuple[Session, Subagent | None]:
    """Return the session and subagent of the thread in the path; None for the primary thread."""
    session = await request.session()
    name = request.path_params["thread_id"]
    if name == thread_id(session.id):
        return session, None
    for subagent in await _subagents(request, session):
        if name == _subagent_thread_id(session, subagent.id):
            return session, subagent
    raise NotFound(f"thread {name} not found")


async def _subagents(request: RestRequest, session: Session) -> list[Subagent]:
    """Return the subagents of a session in order. An unknown parent is replaced by None."""
    subagents = await request.hub.history.threads(request.principal, session.id)
    known = {subagent.id for subagent in subagents}
    return [
        subagent if subagent.parent in known else subagent._replace(parent=None)
        for subagent in sorted(subagents, key=_position)
    ]


def _position(subagent: Subagent | None) -> tuple[int, str]:
    """Return the position of a thread in the list; the primary thread is the first."""
    return (0, "") if subagent is None else (subagent.seq or 0, subagent.id)


def _subagent_thread_id(session: Session, subagent_id: str | None) -> str:
    """Return the id of a subagent's thread; None stands for the primary thread."""
    if subagent_id is None:
        return thread_id(session.id)
    return ids.format_id("sthr", ids.derived_id(session.id, "thread", subagent_id))


async def _show(request: RestRequest, session: Session, subagent: Subagent | None) -> Thread:
    snapshot = await request.hub.agent_resolver.snapshot(
        request.workspace, session.agent, with_roster=False
    )
    agent = convert(snapshot, ThreadAgent)
    shown = show(session, Raw(b"null"), session.id, clock.now())
    primary = Thread(
        id=thread_id(session.id),
        session_id=shown.id,
        parent_thread_id=None,
        workflow_run_id=None,
        agent=agent,
        status=status(session),
        stats=ThreadStats(
            active_seconds=shown.stats.active_seconds,
            duration_seconds=shown.stats.duration_seconds,
            startup_seconds=0.0,
        ),
        usage=shown.usage,
        created_at=shown.created_at,
        updated_at=shown.updated_at,
        archived_at=shown.archived_at,
    )
    return primary if subagent is None else _show_subagent(primary, session, subagent)


def _show_subagent(primary: Thread, session: Session, subagent: Subagent) -> Thread:
    started = subagent.created_at or session.created_at
    ended = max(started, subagent.active_at or started)
    name = subagent.kind or primary.agent.name
    return replace(
        primary,
        id=_subagent_thread_id(session, subagent.id),
        parent_thread_id=_subagent_thread_id(session, subagent.parent),
        agent=replace(primary.agent, name=name, description=subagent.title),
        status="idle" if session.archived_at is None else "terminated",
        stats=ThreadStats(
            active_seconds=0.0, duration_seconds=(ended - started) / 1e6, startup_seconds=0.0
        ),
        usage=usage(subagent.usage, 0.0),
        created_at=clock.to_datetime(started),
        updated_at=clock.to_datetime(ended),
    )
