"""Search all sessions: several matches of each, the best or the newest first, with a preview."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple
from urllib.parse import urlencode

from msgspec.structs import replace
from starlette.responses import HTMLResponse, Response

from segue.hub.sessions.search import SearchMatch
from segue.hub.tools import label
from segue.interfaces.web import rows, templates
from segue.interfaces.web.filters import ACTIVITY_PERIODS
from segue.interfaces.web.request import WebRequest
from segue.model import search_text
from segue.model.event import Created, Foreign
from segue.model.session import Session
from segue.render import items
from segue.render.chunks import SessionView, chunk_number, read_chunks, render_chunks

from . import listing

MAX_SESSIONS = 15
MAX_SESSION_MATCHES = 4  # the first is the one that the session was found by
ORDERS = {"relevance": "Best", "recent": "Newest"}


class Match(NamedTuple):
    """One message that matches: its kind, its snippet as HTML, and the link to it."""

    seq: int
    kind: str
    snippet: str


class Result(NamedTuple):
    """A session that matches, and some of its messages; without any, its title or path does."""

    session: Session
    matches: list[Match]
    has_more: bool


class Results(NamedTuple):
    """The results of a search. `corrected` is the text that was searched for instead."""

    query: str
    results: list[Result]
    corrected: str | None = None

    def link(self, result: Result, seq: int) -> str:
        """Return the address of a message of a result."""
        words = self.corrected or self.query
        pairs = {"at": seq} | ({"q": words} if words else {})
        return f"/s/{result.session.id}?{urlencode(pairs, errors='replace')}#e{seq}"


async def page(request: WebRequest) -> Response:
    """GET /search: the results of `q`; for our script, the results alone."""
    filters = await listing.filters_of(request)
    order = request.param("order", "relevance")
    order = order if order in ORDERS else "relevance"
    values: dict[str, Any] = {
        "found": await _search(request, filters.search, order),
        "order": order,
        "orders": ORDERS,
        "search_filters": filters,
        "periods": ACTIVITY_PERIODS,
        "tool_label": label,
        "query_with": lambda **changes: _query(request, **changes),
    }
    if request.http.headers.get("x-segue") == "results":
        return HTMLResponse(templates.render("search_results.html", **values))
    template, values = await listing.with_sidebar(request, "search.html", values)
    return request.render_page(template, **values)


async def preview(request: WebRequest, view: SessionView) -> Response:
    """GET {session}/preview: the messages around `at`, to read only."""
    session = view.session
    number = chunk_number(session, min(request.number_param("at") or 1, session.last_seq))
    chunks = await read_chunks(request.history, request.principal, session, number, number)
    read_only_view = view._replace(writable=False, prefix="p")
    return HTMLResponse(await render_chunks(read_only_view, chunks))


async def _search(request: WebRequest, text: str, order: str) -> Results:
    filters = await listing.filters_of(request)
    query = filters.query(MAX_SESSIONS)
    if not filters["state"]:
        query = replace(query, archived="include")
    if not search_text.terms(text):
        listed = await request.hub.sessions.list(
            request.principal, replace(query, text=None), bind_filters=False
        )
        return Results("", [Result(session, [], has_more=False) for session in listed.sessions])
    search_page = await request.hub.sessions.search(
        request.principal, query, ranked=order == "relevance"
    )
    words = search_page.corrected or text
    results = await asyncio.gather(
        *(_result(request, match, words) for match in search_page.matches)
    )
    return Results(text, list(results), search_page.corrected)


async def _result(request: WebRequest, match: SearchMatch, words: str) -> Result:
    """Return a session with the message that it was found by, and its newest other matches."""
    others = await request.history.find(
        request.principal, match.session.id, words, limit=MAX_SESSION_MATCHES + 1
    )
    # A fork's copies of its parent's messages are found in the parent.
    fork_seq = 0 if match.session.fork is None else match.session.fork.seq
    messages = [other for other in others if other.event and other.event.seq > fork_seq]
    if match.event is not None:
        messages.insert(0, match)
    matches: dict[int, Match] = {}
    for message in messages:
        event = message.event
        # A title that only a tool's list has is found at the creation; the result begins with it.
        if event is None or isinstance(event.body, Created | Foreign):
            continue
        if event.seq not in matches:
            snippet = rows.row_from_match(message).snippet or ""
            matches[event.seq] = Match(event.seq, items.event_label(event), snippet)
    first_matches = list(matches.values())[:MAX_SESSION_MATCHES]
    return Result(match.session, first_matches, len(matches) > len(first_matches))


def _query(request: WebRequest, **changes: str) -> str:
    """Return the query string of this search with other parameters; empty ones are removed."""
    names = ("q", "order", "since", "cwd", "source")
    values = {name: request.param(name) for name in names} | changes
    pairs = {name: value for name, value in values.items() if value}
    return f"?{urlencode(pairs, errors='replace')}" if pairs else "?"
