"""Threads of a session: the primary thread, and those of agents that work was delegated to.

The latter ran in turns of segue, or were imported from a tool that records subagents.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

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
from segue.model import clock
from segue.model.anthropic.agents import ADVISOR_NAME, Advisor, InlineAgent, ThreadAgent
from segue.model.errors import InvalidInput, NotFound
from segue.model.lifecycle import Status
from segue.model.requests import Usage
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
    agent: ThreadAgent | Advisor | InlineAgent
    status: Status
    stats: ThreadStats
    usage: UsageOut | None
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
    subagents = await _subagents(request, session)
    for subagent in (None, *subagents):
        position = _position(subagent)
        if position <= last:
            continue
        thread = await _show(request, session, subagent, subagents)
        if statuses and thread.status not in statuses:
            continue
        if len(threads) == limit:
            next_page = await paging.encode_page(request, list_name, *last)
            return Page(data=threads, next_page=next_page)
        threads.append(thread)
        last = position
    return Page(data=threads, next_page=None)


async def retrieve(request: RestRequest) -> Thread:
    session, subagent = await _find(request)
    subagents = [] if subagent else await _subagents(request, session)
    return await _show(request, session, subagent, subagents)


async def archive(request: RestRequest) -> Thread:
    session, subagent = await _find(request)
    if subagent is None:
        raise InvalidInput("the primary thread cannot be archived; archive the session")
    if not subagent.is_own:
        raise InvalidInput(
            f"{request.path_params['thread_id']} was imported, and is never prompted again; archive"
            " the session"
        )
    await request.hub.turns.archive_thread(request.principal, session.id, subagent)
    return await retrieve(request)


async def list_events(request: RestRequest) -> schemas.EventPage:
    session, subagent = await _find(request)
    if subagent is None or subagent.is_own:
        thread = None if subagent is None else subagent.id
        return await read_page(request, session, EventFilter(), thread=thread)
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
        stored = replace(stored, body=replace(stored.body, thread=None))
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
    if subagent is None:
        return await stream_session(request, session)
    if not subagent.is_own:
        raise InvalidInput(
            f"{request.path_params['thread_id']} was imported, and has no stream; list its events"
        )
    return await stream_session(request, session, subagent.id)


async def _find(request: RestRequest) -> tuple[Session, Subagent | None]:
    """Return the session and subagent of the thread in the path; None for the primary thread."""
    session = await request.session()
    name = request.path_params["thread_id"]
    if name == thread_id(session.id):
        return session, None
    for subagent in await _subagents(request, session):
        if name == thread_id(session.id, subagent.id):
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


async def _show(
    request: RestRequest, session: Session, subagent: Subagent | None, subagents: list[Subagent]
) -> Thread:
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
        usage=usage(_primary_usage(session, subagents), shown.stats.active_seconds),
        created_at=shown.created_at,
        updated_at=shown.updated_at,
        archived_at=shown.archived_at,
    )
    if subagent is None:
        return primary
    shown_thread = _show_subagent(primary, session, subagent)
    if not subagent.is_own:
        return shown_thread
    own_agent = await _thread_agent(request, session, subagent, snapshot)
    return replace(shown_thread, agent=own_agent)


def _primary_usage(session: Session, subagents: list[Subagent]) -> Usage:
    """Return the usage of the session without that of the threads that segue ran."""
    total = session.usage
    for subagent in subagents:
        if subagent.is_own:
            total -= subagent.usage
    return total


async def _thread_agent(
    request: RestRequest, session: Session, thread: Subagent, snapshot: dict[str, Any]
) -> ThreadAgent | Advisor | InlineAgent:
    """Return the agent of a thread, as it was when the thread started."""
    if thread.agent is not None:
        resolver = request.hub.agent_resolver
        settings = await resolver.snapshot(request.workspace, thread.agent, with_roster=False)
        return convert(settings, ThreadAgent)
    if thread.kind == ADVISOR_NAME:
        return Advisor(model=str(thread.definition.get("model")))
    system = thread.definition.get("system")
    fields = {
        **snapshot,
        "type": "inline",
        "name": thread.kind,
        "description": None,
        "system": system if isinstance(system, str) else None,
    }
    return convert(fields, InlineAgent)


def _show_subagent(primary: Thread, session: Session, subagent: Subagent) -> Thread:
    assert isinstance(primary.agent, ThreadAgent)
    started = subagent.created_at or session.created_at
    changed = max(started, subagent.active_at or started)
    archived = subagent.archived_at or session.archived_at
    now = clock.now()
    since = subagent.running_since
    active = (subagent.running_time + (0 if since is None else max(0, now - since))) / 1e6
    ended = (archived or now) if subagent.is_own else changed
    has_rested = not subagent.is_own or subagent.stop_reason is not None or archived is not None
    return replace(
        primary,
        id=thread_id(session.id, subagent.id),
        parent_thread_id=thread_id(session.id, subagent.parent),
        agent=replace(
            primary.agent, name=subagent.kind or primary.agent.name, description=subagent.title
        ),
        status=subagent.status if archived is None else "terminated",
        stats=ThreadStats(
            active_seconds=active,
            duration_seconds=max(0, ended - started) / 1e6,
            startup_seconds=0.0,
        ),
        usage=usage(subagent.usage, active) if has_rested or subagent.usage.tokens else None,
        created_at=clock.to_datetime(started),
        updated_at=clock.to_datetime(changed),
        archived_at=None if archived is None else clock.to_datetime(archived),
    )
