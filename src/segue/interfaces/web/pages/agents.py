"""What the agents did that a session started: inside the session's page, or on pages of their own.

Their histories may be long, so threads render them while the event loop stays responsive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.responses import HTMLResponse, Response

from segue.interfaces.web import rows, templates
from segue.interfaces.web.request import WebRequest
from segue.model import search_text
from segue.model.errors import NotFound
from segue.model.event import Event
from segue.model.session import Thread
from segue.render import threads
from segue.render.chunks import SessionView
from segue.render.items import build_thread_items
from segue.render.text.markdown import sendable

from . import listing, transcript

PAGE_EVENTS = 200
EVENTS_BEFORE_TARGET = 20  # on a page that begins near a linked event
MAX_MATCHES = 50


class EventWindow(NamedTuple):
    """Events of a thread, and the seqs at which the pages before and after it continue."""

    events: list[Event]
    earlier: int | None
    later: int | None


async def page(request: WebRequest, view: SessionView) -> Response:
    """GET /s/{id}/agent/{thread}: a page of an agent's events; for our script, a fragment."""
    values = await _page_values(request, view)
    if request.http.headers.get("x-segue") == "aside":
        return await threads.render_in_thread(_render_beginning, values)
    template, values = await listing.with_sidebar(request, "agent.html", values)
    return await threads.render_in_thread(partial(request.render_page, template, **values))


async def shared_page(request: WebRequest, view: SessionView) -> Response:
    """GET {link}/agent/{thread}: the same page for a reader of the session's share link."""
    values = await _page_values(request, view)
    if request.from_script:
        return await threads.render_in_thread(_render_beginning, values)
    return await threads.render_in_thread(
        partial(request.render_page, "shared_agent.html", **values)
    )


async def full_text(request: WebRequest, view: SessionView) -> Response:
    """GET {session}/agent/{thread}/whole/{seq}: the full text of an agent's event."""
    event = await _read_event(request, view)
    return await threads.render_in_thread(transcript.event_text, view.session, event)


async def blob(request: WebRequest, view: SessionView) -> Response:
    """GET {session}/agent/{thread}/blob/{seq}/{index}: a picture or a file in an agent's event."""
    return transcript.event_blob(await _read_event(request, view), request.path_number("index"))


async def matches(request: WebRequest, view: SessionView) -> Response:
    """GET {session}/agents: links to the events of the session's agents that match `q`."""
    query = request.param("q")
    if not search_text.terms(query):
        return HTMLResponse("")
    thread_matches = await request.history.find_in_threads(
        request.principal, view.session.id, query, limit=MAX_MATCHES
    )
    events = [
        (thread, match.event, rows.row_from_match(match).snippet)
        for thread, match in thread_matches
    ]
    html = templates.macros("session_bits.html").agent_matches(view, events, MAX_MATCHES)
    return HTMLResponse(str(html))


def _render_beginning(values: Mapping[str, Any]) -> Response:
    render = templates.macros("items.html").thread_beginning
    return HTMLResponse(str(render(values["thread_view"], values["items"], values["later"])))


async def _page_values(request: WebRequest, view: SessionView) -> dict[str, Any]:
    """Return what the template of an agent's page needs."""
    threads = await request.history.threads(request.principal, view.session.id)
    thread = _requested_thread(request, threads)
    # Seqs count the events of the thread, so its links have a base of their own.
    base = f"{view.base}/agent/{quote(sendable(thread.id))}"
    events, earlier, later = await _read_window(request, view, thread)
    return {
        "view": view,
        "thread_view": view._replace(base=base, writable=False, thread=thread.id),
        "session": view.session,
        "thread": thread,
        "items": build_thread_items(view.session, events),
        "earlier": earlier,
        "later": later,
        "started_threads": [other for other in threads if other.parent == thread.id],
    }


def _requested_thread(request: WebRequest, threads: Iterable[Thread]) -> Thread:
    """Return the thread whose id is in the path. Raises NotFound if there is none."""
    thread_id = request.path_params["thread"]
    thread = next((thread for thread in threads if thread.id == thread_id), None)
    if thread is None:
        raise NotFound(f"This session started no agent {thread_id!r}.")
    return thread


async def _read_event(request: WebRequest, view: SessionView) -> Event:
    """Return the event of a thread whose seq is in the path. Raises NotFound if there is none."""
    threads = await request.history.threads(request.principal, view.session.id)
    thread = _requested_thread(request, threads)
    seq = request.path_number("seq")
    async for event in request.history.thread_events(request.principal, view.session.id, thread.id):
        if event.seq == seq:
            return event
    raise NotFound("This agent has no such message.")


async def _read_window(request: WebRequest, view: SessionView, thread: Thread) -> EventWindow:
    """Return a thread's events around the seq `at`, or before the seq `before`."""
    at, before = request.number_param("at"), request.number_param("before")
    target = before if before is not None else at or 0
    preceding: deque[Event] = deque(
        maxlen=PAGE_EVENTS if before is not None else EVENTS_BEFORE_TARGET
    )
    following: list[Event] = []
    later: int | None = None
    has_earlier = False
    async for event in request.history.thread_events(request.principal, view.session.id, thread.id):
        if event.seq < target and not following:
            has_earlier = has_earlier or len(preceding) == preceding.maxlen
            preceding.append(event)
        elif before is not None or len(preceding) + len(following) >= PAGE_EVENTS:
            later = event.seq
            break
        else:
            following.append(event)
    events = [*preceding, *following]
    return EventWindow(events, events[0].seq if has_earlier and events else None, later)
