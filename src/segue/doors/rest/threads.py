"""Threads: a session has one, its primary thread, which is the session seen from inside."""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args

from msgspec import convert
from starlette.responses import StreamingResponse

from ...model import clock
from ...model.errors import InvalidInput, NotFound
from ...model.lifecycle import STATUSES, Status
from ...model.session import Session
from . import events, paging
from . import stream as streaming
from .agent_out import ThreadAgent
from .bodies import Out, Page
from .call import Call
from .session_out import UsageOut, show_thread, thread_id


class ThreadStats(Out, frozen=True):
    active_seconds: float
    duration_seconds: float
    startup_seconds: float


class Thread(Out, frozen=True, tag_field="type", tag="session_thread"):
    id: str
    session_id: str
    parent_thread_id: None
    workflow_run_id: None
    agent: ThreadAgent
    status: Status
    stats: ThreadStats
    usage: UsageOut
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None


async def list_(call: Call) -> Page[Thread]:
    session = await call.session()
    call.params.limit(1000, 1000)
    wanted = call.params.many("statuses")
    for name in wanted:
        if name not in get_args(Status):
            raise InvalidInput(f"statuses: {name!r} is not one of {', '.join(STATUSES)}")
    if token := call.params.text("page"):
        await paging.parse(call, token, f"threads:{session.id}")
        return Page(data=[], next_page=None)
    shown = await _show(call, session)
    found = [shown] if not wanted or shown.status in wanted else []
    return Page(data=found, next_page=None)


async def retrieve(call: Call) -> Thread:
    return await _show(call, await _session(call))


async def archive(call: Call) -> Thread:
    await _session(call)
    raise InvalidInput("the primary thread cannot be archived; archive the session")


async def list_events(call: Call) -> dict[str, Any]:
    return await events.page(call, await _session(call))


async def stream(call: Call) -> StreamingResponse:
    return await streaming.respond(call, await _session(call))


async def _session(call: Call) -> Session:
    session = await call.session()
    given = call.path["thread_id"]
    if given != thread_id(session.id):
        raise NotFound(f"thread {given} not found")
    return session


async def _show(call: Call, session: Session) -> Thread:
    agent = await call.door.agents.snapshot(call.workspace, session.agent, roster=False)
    return convert(show_thread(session, agent, clock.now()), Thread)
