"""What the agents did that a session started: folded into the session, or on pages of their own.

It may be much, so pages of it are made beside the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from starlette.responses import HTMLResponse, Response

from segue.interfaces.web import rows, templates
from segue.interfaces.web.request import WebRequest
from segue.model import search_text
from segue.model.errors import NotFound
from segue.model.event import Event
from segue.model.session import Thread
from segue.render.chunks import SessionView
from segue.render.items import build_items
from segue.render.markdown import sendable
from segue.render.pairing import pair_events

from . import listing, transcript

PAGE = 200  # events on one page
BEFORE = 20  # of them ahead of the one that a link leads to
FOUND = 50


async def page(request: WebRequest) -> Response:
    """A page of what one of them did; for our script, that alone."""
    view = await transcript.view_of(request, await request.session())
    values = await _values(request, view)
    if request.http.headers.get("x-segue") == "aside":
        return await asyncio.to_thread(_inside, values)
    if request.from_script:
        return await asyncio.to_thread(request.render_page, "agent.html", **values)
    filters = await listing.filters_of(request)
    sidebar = await listing.sidebar(request, filters)
    return await asyncio.to_thread(
        request.render_page, "app.html", inner="agent.html", **sidebar, **values
    )


async def shared_page(request: WebRequest, view: SessionView) -> Response:
    """The same for whoever has a link to the session."""
    values = await _values(request, view)
    if request.from_script:
        return await asyncio.to_thread(_inside, values)
    return await asyncio.to_thread(request.render_page, "shared_agent.html", **values)


async def whole(request: WebRequest) -> Response:
    """All of what a page has the beginning of."""
    return await whole_in(request, await transcript.view_of(request, await request.session()))


async def whole_in(request: WebRequest, view: SessionView) -> Response:
    return transcript.text_of(view.session, await _event(request, view))


async def blob(request: WebRequest) -> Response:
    return await blob_in(request, await transcript.view_of(request, await request.session()))


async def blob_in(request: WebRequest, view: SessionView) -> Response:
    return transcript.blob_of(await _event(request, view), request.path_number("index"))


async def found(request: WebRequest) -> Response:
    """Where they have the words that are looked for."""
    return await found_in(request, await transcript.view_of(request, await request.session()))


async def found_in(request: WebRequest, view: SessionView) -> Response:
    words = request.param("q")
    if not search_text.terms(words):
        return HTMLResponse("")
    hits = await request.hub.history.find_in_threads(
        request.principal, view.session.id, words, limit=FOUND
    )
    made = [(thread, hit.event, rows.found(hit).snippet) for thread, hit in hits]
    return HTMLResponse(str(templates.macros("session_bits.html").elsewhere(view, made, FOUND)))


def _inside(values: Mapping[str, Any]) -> Response:
    show = templates.macros("items.html").thread_beginning
    return HTMLResponse(str(show(values["own"], values["items"], values["later"])))


async def _values(request: WebRequest, view: SessionView) -> dict[str, Any]:
    threads = await request.hub.history.threads(request.principal, view.session.id)
    thread = _named(request, threads)
    base = f"{view.base}/agent/{quote(sendable(thread.id))}"  # its places are none of the session's
    events, earlier, later = await _window(request, view, thread)
    return {
        "view": view,
        "own": view._replace(base=base, writable=False, thread=thread.id),
        "session": view.session,
        "thread": thread,
        "items": build_items(view.session, events, pair_events(events)),
        "earlier": earlier,
        "later": later,
        "others": [each for each in threads if each.parent == thread.id],
    }


def _named(request: WebRequest, threads: Iterable[Thread]) -> Thread:
    name = request.path_params["thread"]
    thread = next((each for each in threads if each.id == name), None)
    if thread is None:
        raise NotFound("This session started no such agent.")
    return thread


async def _event(request: WebRequest, view: SessionView) -> Event:
    thread = _named(request, await request.hub.history.threads(request.principal, view.session.id))
    seq = request.path_number("seq")
    async for event in request.hub.history.thread_events(
        request.principal, view.session.id, thread.id
    ):
        if event.seq == seq:
            return event
    raise NotFound("There is no such message.")


async def _window(
    request: WebRequest, view: SessionView, thread: Thread
) -> tuple[list[Event], int | None, int | None]:
    """Some of its events around `at` or before `before`, and the seqs that lead on from there."""
    at, before = request.number_param("at"), request.number_param("before")
    held: deque[Event] = deque(maxlen=PAGE if before is not None else BEFORE)
    shown: list[Event] = []
    later: int | None = None
    dropped = False
    async for event in request.hub.history.thread_events(
        request.principal, view.session.id, thread.id
    ):
        ahead = event.seq < (before if before is not None else at or 0)
        if ahead and not shown:
            dropped = dropped or len(held) == held.maxlen
            held.append(event)
        elif before is not None or len(held) + len(shown) >= PAGE:
            later = event.seq
            break
        else:
            shown.append(event)
    window = [*held, *shown]
    return window, window[0].seq if dropped and window else None, later
