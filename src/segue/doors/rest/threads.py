"""Threads: a session has one, its primary thread, which is the session seen from inside."""

from __future__ import annotations

from typing import Any, get_args

from starlette.responses import StreamingResponse

from ...model import clock
from ...model.errors import InvalidInput, NotFound
from ...model.lifecycle import STATUSES, Status
from ...model.session import Session
from . import events, paging
from . import stream as streaming
from .call import Call
from .session_out import show_thread, thread_id


async def list_(call: Call) -> dict[str, Any]:
    session = await call.session()
    call.params.limit(1000, 1000)
    wanted = call.params.many("statuses")
    for name in wanted:
        if name not in get_args(Status):
            raise InvalidInput(f"statuses: {name!r} is not one of {', '.join(STATUSES)}")
    if token := call.params.text("page"):
        paging.parse(token, "threads")
        return {"data": [], "next_page": None}
    shown = await _show(call, session)
    found = [shown] if not wanted or shown["status"] in wanted else []
    return {"data": found, "next_page": None}


async def retrieve(call: Call) -> dict[str, Any]:
    return await _show(call, await _session(call))


async def archive(call: Call) -> dict[str, Any]:
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


async def _show(call: Call, session: Session) -> dict[str, Any]:
    agent = await call.door.agents.snapshot(call.workspace, session.agent, roster=False)
    return show_thread(session, agent, clock.now())
