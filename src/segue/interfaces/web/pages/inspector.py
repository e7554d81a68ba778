"""The panes next to a transcript: its outline, the files it changed, what is known about it.

Our script loads a pane into the inspector. Without a script each pane is a page.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Unpack

from starlette.responses import HTMLResponse, Response

from segue.interfaces.web import templates
from segue.interfaces.web.request import WebRequest
from segue.model.errors import InvalidInput, NotFound
from segue.model.event import Event, PlanChanged, UserMessage
from segue.model.query import Query, WindowOptions
from segue.model.session import Session
from segue.render import items, threads, turns
from segue.render.chunks import SessionView
from segue.render.items import Item, build_items
from segue.render.pairing import read_pairs
from segue.render.relative_paths import with_relative_paths
from segue.render.tools.changes import changed_files

from . import listing

MAX_PROMPTS = 200  # in one request
MAX_FAILURES = 200  # on the page of errors
READ_EVENTS = 1000  # at a time
MAX_SCANNED_EVENTS = 20_000  # for the changes and the errors of one session
MAX_MARKS = 200
MAX_CHILDREN = 1000  # sessions that are searched for forks
PANES = {"outline": "Outline", "changes": "Changes", "info": "Info"}
# The events that keys jump to.
_TARGETS = {
    "prompt": ("user_message",),
    "tool": ("tool_call",),
    "error": ("tool_result", "failed"),
    "message": ("user_message", "agent_message"),
}


class Prompts(NamedTuple):
    """Prompts of a session: those after the event `start` and before the event `end`.

    `number` is that of the first one, if it is known. Without `has_earlier` or `has_later`, the
    session has no other prompts on that side.
    """

    events: list[Event]
    start: int
    end: int
    number: int | None
    has_earlier: bool
    has_later: bool


async def outline(request: WebRequest, view: SessionView) -> Response:
    """GET {session}/outline: the prompts, with the number of failures in each turn.

    `at` is an event near which they are wanted, `before` and `after` are where a page ends or
    begins. Without these, it begins with the first prompt.
    """
    session = view.session
    prompts = await _prompts(request, session)
    failures = await _failures(request, session, prompts.start, prompts.end)
    visible_prompts = [event for event in prompts.events if turns.is_prompt(event)]
    lines = []
    for index, event in enumerate(visible_prompts):
        assert isinstance(event.body, UserMessage)
        next_seq = (
            visible_prompts[index + 1].seq if index + 1 < len(visible_prompts) else prompts.end
        )
        errors = sum(event.seq < failure.seq < next_seq for failure in failures)
        number = None if prompts.number is None else prompts.number + index
        lines.append((number, event.seq, items.outline_line(event.body), errors))
    is_first = not (request.param("after") or request.param("before"))
    plan = await _plan(request, session) if is_first else None
    earlier = prompts.events[0].seq if prompts.has_earlier else None
    later = None
    if prompts.has_later:
        number = None if prompts.number is None else prompts.number + len(visible_prompts)
        later = (prompts.events[-1].seq, number or "")
    html = templates.macros("inspector.html").outline(view, lines, earlier, later, plan)
    return await _respond(request, view, "outline", html)


async def _prompts(request: WebRequest, session: Session) -> Prompts:
    """Return the prompts that the request asks for, at most MAX_PROMPTS of them."""
    last = session.last_seq + 1

    async def read(**window: Unpack[WindowOptions]) -> list[Event]:
        window["types"], window["limit"] = ("user_message",), MAX_PROMPTS
        prompts = await request.history.events(request.principal, session.id, **window)
        return list(prompts)

    if before := request.number_param("before"):
        prompts = await read(before=before, backward=True)
        has_earlier = len(prompts) == MAX_PROMPTS
        start = prompts[0].seq - 1 if has_earlier else 0
        number = None if has_earlier else 1
        return Prompts(prompts, start, before, number, has_earlier=has_earlier, has_later=False)
    after = request.number_param("after") or 0
    number = request.number_param("number") if after else 1
    prompts = await read(after=after)
    has_later = len(prompts) == MAX_PROMPTS
    at = request.number_param("at") or 0
    if after or not has_later or at <= prompts[-1].seq:
        end = prompts[-1].seq + 1 if has_later else last
        return Prompts(prompts, after, end, number, has_earlier=False, has_later=has_later)
    half = MAX_PROMPTS // 2
    above = (await read(before=at + 1, backward=True))[-half:]
    below = await read(after=at)
    has_later = len(below) > half
    prompts = above + below[:half]
    end = prompts[-1].seq + 1 if has_later else last
    start = prompts[0].seq - 1
    return Prompts(prompts, start, end, None, has_earlier=True, has_later=has_later)


async def _plan(request: WebRequest, session: Session) -> PlanChanged | None:
    """Return the session's latest plan, unless all of it is done."""
    events = await request.history.events(
        request.principal, session.id, types=("plan_changed",), limit=1, backward=True
    )
    body = events[-1].body if events else None
    if not isinstance(body, PlanChanged):
        return None
    is_done = all(entry.status in ("completed", "cancelled") for entry in body.entries)
    return None if is_done else body


async def _read(
    request: WebRequest, session: Session, types: Sequence[str], after: int, before: int
) -> tuple[list[Event], bool]:
    """Return the events of some types, and whether these are all: at most MAX_SCANNED_EVENTS."""
    events: list[Event] = []
    while len(events) < MAX_SCANNED_EVENTS:
        page = await request.history.events(
            request.principal,
            session.id,
            after=after,
            before=before,
            types=types,
            limit=READ_EVENTS,
        )
        events += page
        if len(page) < READ_EVENTS:
            return events, True
        after = page[-1].seq
    return events, False


async def _failures(request: WebRequest, session: Session, after: int, before: int) -> list[Event]:
    events, _ = await _read(request, session, _TARGETS["error"], after, before)
    return [event for event in events if turns.is_failure(event)]


async def changes(request: WebRequest, view: SessionView) -> Response:
    """GET {session}/changes: the files that the session changed, each with one diff."""
    session = view.session
    types = ("tool_call", "tool_call_changed", "tool_result")
    events, complete = await _read(request, session, types, 0, session.last_seq + 1)
    shortened = [with_relative_paths(event, session) for event in events]

    def render() -> str:
        files = changed_files(shortened)
        return str(templates.macros("inspector.html").changes(view, files, complete))

    return await _respond(request, view, "changes", await threads.render_in_thread(render))


async def info(request: WebRequest, view: SessionView) -> Response:
    """GET {session}/info: the session's costs, its forks, its ids and its changes of settings."""
    session = view.session
    marks = await request.history.events(
        request.principal,
        session.id,
        types=("created", "info_changed", "config_changed"),
        limit=MAX_MARKS,
    )
    lines = [(event.at, items.change_text(event)) for event in marks if items.change_text(event)]
    children = await _forks_of(request, session) if view.writable else []
    parent = await _parent_of(request, session) if view.writable else None
    html = templates.macros("inspector.html").info(view, lines, children, parent)
    return await _respond(request, view, "info", html)


async def _forks_of(request: WebRequest, session: Session) -> list[Session]:
    """Return the forks of a session among the sessions that were active last."""
    query = Query(limit=MAX_CHILDREN, archived="include")
    listed = await request.hub.sessions.list(request.principal, query)
    return [other for other in listed.sessions if other.fork and other.fork.session == session.id]


async def _parent_of(request: WebRequest, session: Session) -> Session | None:
    """Return the session that a session was forked from, if it still exists."""
    if session.fork is None:
        return None
    try:
        return await request.hub.sessions.get(request.principal, session.fork.session)
    except NotFound:
        return None


async def errors(request: WebRequest, view: SessionView) -> Response:
    """GET {session}/errors: what failed in the session, with links to the transcript."""
    session = view.session
    failures = await _failures(request, session, 0, session.last_seq + 1)
    last_failures = failures[-MAX_FAILURES:]
    failure_items: list[Item] = []
    if last_failures:
        after, before = last_failures[0].seq - 1, last_failures[-1].seq + 1
        pairs = await read_pairs(
            request.history, request.principal, session, last_failures, after=after, before=before
        )
        calls, _ = await _read(request, session, ("tool_call",), max(0, after - 200), before)
        ids = {getattr(event.body, "call_id", None) for event in last_failures} - {None}
        openings = [event for event in calls if getattr(event.body, "call_id", "") in ids]
        events = sorted([*openings, *last_failures], key=lambda event: event.seq)
        failure_items = build_items(session, events, pairs)
    render = templates.macros("inspector.html").errors
    html = str(await threads.render_in_thread(render, view, failure_items, len(failures)))
    return await _respond(request, view, "errors", html)


async def next_target(request: WebRequest, view: SessionView) -> Response:
    """GET {session}/next: the seq of the next prompt, tool, error or message after `after`.

    With `before` it is the previous one before that seq. The answer is JSON; `seq` may be null.
    """
    kind = request.param("kind")
    if kind not in _TARGETS:
        raise InvalidInput(f"kind must be one of {', '.join(_TARGETS)}, not {kind!r}")
    session = view.session
    before, after = request.number_param("before"), request.number_param("after") or 0
    backward = before is not None
    end = session.last_seq + 1 if before is None else before
    scanned = 0
    while scanned < MAX_SCANNED_EVENTS:
        page = await request.history.events(
            request.principal,
            session.id,
            after=after,
            before=end,
            types=_TARGETS[kind],
            limit=READ_EVENTS,
            backward=backward,
        )
        for event in reversed(page) if backward else page:
            if _is_target(event, kind):
                return _seq(event.seq)
        if len(page) < READ_EVENTS:
            break
        scanned += len(page)
        after, end = (after, page[0].seq) if backward else (page[-1].seq, end)
    return _seq(None)


def _is_target(event: Event, kind: str) -> bool:
    if kind == "error":
        return turns.is_failure(event)
    return kind != "prompt" or turns.is_prompt(event)


def _seq(seq: int | None) -> Response:
    return Response(json.dumps({"seq": seq}), media_type="application/json")


async def _respond(request: WebRequest, view: SessionView, pane: str, html: str) -> Response:
    """Return a pane for our script, or a page with it."""
    if request.http.headers.get("x-segue") == "pane":
        return HTMLResponse(str(html))
    values: dict[str, Any] = {
        "view": view,
        "session": view.session,
        "pane": str(html),
        "pane_name": pane,
        "panes": PANES,
    }
    if not view.writable:
        return request.render_page("shared_pane.html", **values)
    template, values = await listing.with_sidebar(request, "pane.html", values)
    return request.render_page(template, **values)
