"""Threads of a session: the primary thread, and those of agents that its agent called.

The latter exist in sessions of sources that record them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args

from msgspec import convert
from starlette.responses import StreamingResponse

from segue.interfaces.rest import paging
from segue.interfaces.rest.events import stream as streaming
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.agent import ThreadAgent
from segue.interfaces.rest.schemas.requests import Out, Page
from segue.interfaces.rest.schemas.session import UsageOut, show_thread, thread_id, usage
from segue.model import clock, ids
from segue.model.errors import InvalidInput, NotFound
from segue.model.lifecycle import STATUSES, Status
from segue.model.session import Session
from segue.model.session import Thread as Other

from . import events


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
    wanted = request.params.values("statuses")
    for name in wanted:
        if name not in get_args(Status):
            raise InvalidInput(f"statuses: {name!r} is not one of {', '.join(STATUSES)}")
    limit = request.params.limit(1000, 1000)
    of, last = f"threads:{session.id}", (-1, "")
    if token := request.params.text("page"):
        last = await paging.decode_page(request, token, of)
    found: list[Thread] = []
    for thread in (None, *await _others(request, session)):
        if (place := _place(thread)) <= last:
            continue
        shown = await _show(request, session, thread)
        if wanted and shown.status not in wanted:
            continue
        if len(found) == limit:
            return Page(data=found, next_page=await paging.encode_page(request, of, *last))
        found.append(shown)
        last = place
    return Page(data=found, next_page=None)


async def retrieve(request: RestRequest) -> Thread:
    return await _show(request, *await _found(request))


async def archive(request: RestRequest) -> Thread:
    await _found(request)
    raise InvalidInput("a thread cannot be archived; archive the session")


async def list_events(request: RestRequest) -> dict[str, Any]:
    session, thread = await _found(request)
    if thread is None:
        return await events.page(request, session)
    limit, of = request.params.limit(1000, 1000), f"events:{session.id}:{thread.id}"
    at = (0, 0)
    if token := request.params.text("page"):
        begin, within = await paging.decode_page(request, token, of)
        at = begin, int(within)
    view = await events.view_from(request, session, session)
    found = list[Any]()
    async for event in request.hub.history.thread_events(request.principal, session.id, thread.id):
        for place, shown in enumerate(await view.show(event)):
            if (event.seq, place) < at:
                continue
            if len(found) == limit:
                following = await paging.encode_page(request, of, event.seq, str(place))
                return {"data": found, "next_page": following}
            found.append(shown)
    return {"data": found, "next_page": None}


async def stream(request: RestRequest) -> StreamingResponse:
    session, thread = await _found(request)
    if thread is not None:
        raise InvalidInput("only the primary thread is streamed; list this one's events")
    return await streaming.respond(request, session)


async def _found(request: RestRequest) -> tuple[Session, Other | None]:
    """The session, and which of its threads is meant; None for the primary one."""
    session = await request.session()
    given = request.path_params["thread_id"]
    if given == thread_id(session.id):
        return session, None
    for thread in await _others(request, session):
        if given == _id(session, thread.id):
            return session, thread
    raise NotFound(f"thread {given} not found")


async def _others(request: RestRequest, session: Session) -> list[Other]:
    """The other threads, in order; each with a parent that is one of them, or with none."""
    found = await request.hub.history.threads(request.principal, session.id)
    known = {thread.id for thread in found}
    return [
        thread if thread.parent in known else thread._replace(parent=None)
        for thread in sorted(found, key=_place)
    ]


def _place(thread: Other | None) -> tuple[int, str]:
    """Where a thread stands among those of its session; the primary one is first."""
    return (0, "") if thread is None else (thread.seq or 0, thread.id)


def _id(session: Session, thread: str | None) -> str:
    if thread is None:
        return thread_id(session.id)
    return ids.format_id("sthr", ids.derived_id(session.id, "thread", thread))


async def _show(request: RestRequest, session: Session, thread: Other | None = None) -> Thread:
    agent = await request.hub.agent_resolver.snapshot(
        request.workspace, session.agent, with_roster=False
    )
    shown = show_thread(session, agent, clock.now())
    if thread is not None:
        begun = thread.created_at or session.created_at
        ended = max(begun, thread.active_at or begun)
        stats = {"active_seconds": 0.0, "startup_seconds": 0.0}
        shown |= {
            "id": _id(session, thread.id),
            "parent_thread_id": _id(session, thread.parent),
            "agent": {**agent, "name": thread.kind or agent["name"], "description": thread.title},
            "status": "idle" if session.archived_at is None else "terminated",
            "stats": {**stats, "duration_seconds": (ended - begun) / 1e6},
            "usage": usage(thread.usage, 0.0),
            "created_at": clock.to_datetime(begun),
            "updated_at": clock.to_datetime(ended),
        }
    return convert(shown, Thread)
