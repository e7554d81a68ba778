"""The session list: paged by cursor, grouped, searched and filtered."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace
from starlette.responses import HTMLResponse, Response

from segue.hub import tools as tool_names
from segue.interfaces.web import rows, templates
from segue.interfaces.web.filters import ACTIVITY_PERIODS, STATE_FILTERS, Filters
from segue.interfaces.web.request import WebRequest
from segue.interfaces.web.rows import Group, Row
from segue.model import clock, ids, search_text
from segue.model.errors import NotFound
from segue.model.query import Query, matches
from segue.model.session import OWN, Session
from segue.render import project_names

from .approvals import has_failed, is_waiting, recent_sessions

if TYPE_CHECKING:
    from markupsafe import Markup

FIRST_PAGE_SIZE = 40  # more than fits on a screen
PAGE_SIZE = 50  # the first page loads the second one at once
SEARCH_PAGE_SIZE = 12  # each result reads its session for a snippet
MAX_SEARCH_PAGES = 20  # read for one page, with a filter that the search does not have
MAX_SCANNED_SESSIONS = 1000  # for the groups by project, and for the facets
MAX_FACET_VALUES = 100
COMPRESSION_LEVEL = 4  # of nine; higher ones take longer for little
# Filters that one click applies: a name, a parameter and its value.
QUICK_FILTERS = (
    ("Waiting", "status", "waiting"),
    ("Running", "status", "running"),
    ("Failed", "status", "failed"),
    ("Pinned", "pinned", "1"),
    ("7 days", "since", "7d"),
)


class SessionList(NamedTuple):
    """A page of the list, and the query string of the next page.

    `corrected` is the text that was searched for, if nothing contained the given one.
    """

    request: WebRequest
    groups: list[Group]
    next_query: str | None
    filters: Filters
    now: int
    corrected: str | None = None

    @property
    def html(self) -> Markup:
        """Return the page as HTML."""
        from markupsafe import Markup

        if not self.groups:
            command = self.request.command("prompt", "new", "What can you do?")
            return Markup(
                templates.render(
                    "empty.html",
                    filters=self.filters,
                    command=command,
                    hint=self.request.command_hint,
                )
            )
        html = "\n".join(rows.render_group(group, self.filters, self.now) for group in self.groups)
        if self.filters.search:
            html = rows.render_search_head(self.filters, self.corrected) + html
        if self.next_query:
            url = f"/{escape(self.next_query)}"
            html += f'\n<a class="more" href="{url}" rel="next">More sessions</a>'
        return Markup(html)


async def read_list(
    request: WebRequest, filters: Filters, cursor: str | None = None
) -> SessionList:
    """Read a page of the list that the filters describe."""
    now = clock.now()
    corrected = None
    query = filters.query(FIRST_PAGE_SIZE if cursor is None else PAGE_SIZE)
    if query.text and search_text.terms(query.text):
        page_rows, next_cursor, corrected = await _search(request, filters, query, cursor)
    elif filters.derived_status or filters["pinned"]:
        sessions = await read_sessions(request, filters, MAX_SCANNED_SESSIONS)
        page_rows, next_cursor = [Row(session) for session in sessions], None
    else:
        # A text without terms (only punctuation) matches every session.
        limit = MAX_SCANNED_SESSIONS if filters.by_project else query.limit
        listed = await request.hub.sessions.list(
            request.principal, replace(query, text=None, limit=limit), cursor, bind_filters=False
        )
        page_rows = [Row(session) for session in listed.sessions]
        next_cursor = listed.next
    pinned = await request.hub.pins.ids(request.principal)
    page_rows = [row._replace(pinned=row.session.id in pinned) for row in page_rows]
    return SessionList(
        request,
        rows.group_rows(page_rows, filters, now, request.utc_offset),
        filters.with_changes(cursor=next_cursor, q=corrected or filters["q"])
        if next_cursor
        else None,
        filters,
        now,
        corrected,
    )


async def _search(
    request: WebRequest, filters: Filters, query: Query, cursor: str | None
) -> tuple[list[Row], str | None, str | None]:
    """Return a page of matches that the filters select, the next cursor, and a corrected text.

    Pins and derived statuses are no part of the query, so pages without a row are skipped.
    """
    pinned = await request.hub.pins.ids(request.principal) if filters["pinned"] else None
    corrected = None
    for _ in range(MAX_SEARCH_PAGES):
        page = await request.hub.sessions.search(
            request.principal, replace(query, limit=SEARCH_PAGE_SIZE), cursor, bind_filters=False
        )
        corrected = corrected or page.corrected
        if page.corrected is not None:  # the cursor belongs to this text
            query = replace(query, text=page.corrected)
        matches = [
            match
            for match in page.matches
            if (pinned is None or match.session.id in pinned)
            and _has_status(match.session, filters)
        ]
        cursor = page.next
        if matches or cursor is None:
            break
    return [rows.row_from_match(match) for match in matches], cursor, corrected


async def read_sessions(request: WebRequest, filters: Filters, count: int) -> list[Session]:
    """Return the newest sessions that the filters select; the search text is ignored.

    Sessions that wait or have failed are searched for among the MAX_SCANNED_SESSIONS newest.
    """
    if filters["pinned"]:
        return (await _read_pinned(request, filters))[:count]
    limit = MAX_SCANNED_SESSIONS if filters.derived_status else count
    query = replace(filters.query(limit), text=None)
    listed = await request.hub.sessions.list(request.principal, query, bind_filters=False)
    return [session for session in listed.sessions if _has_status(session, filters)][:count]


async def _read_pinned(request: WebRequest, filters: Filters) -> list[Session]:
    """Return the pinned sessions that the filters select, the newest first."""
    sessions = []
    for session_id in await request.hub.pins.ids(request.principal):
        with suppress(NotFound):
            session = await request.hub.sessions.get(request.principal, session_id)
            if _is_selected(session, filters):
                sessions.append(session)
    return sorted(sessions, key=lambda session: session.active_at, reverse=True)


def _is_selected(session: Session, filters: Filters) -> bool:
    """Return whether the filters select a session. A search text and pins are ignored."""
    query = replace(filters.query(1), text=None)
    if query.cwd is not None:
        query = replace(query, directories=(query.cwd,))
    return matches(query, session) and _has_status(session, filters)


def _has_status(session: Session, filters: Filters) -> bool:
    match filters.derived_status:
        case "waiting":
            return is_waiting(session)
        case "failed":
            return has_failed(session)
    return True


async def read_first_sessions(request: WebRequest, filters: Filters) -> list[Session]:
    """Return the sessions of the first page, whatever their state.

    A session that was archived or deleted has left the page. A search has none, because its
    results do not change.
    """
    if filters.search:
        return []
    query = filters.query(FIRST_PAGE_SIZE)
    sessions = []
    for states in ({"archived": "include", "trash": False}, {"trash": True}):
        page = await request.hub.sessions.list(
            request.principal, replace(query, **states), bind_filters=False
        )
        sessions += page.sessions
    return sessions


async def page(request: WebRequest) -> Response:
    """GET /rows: a page of rows, for a list that is scrolled or searched."""
    session_list = await read_list(
        request, await filters_of(request), request.param("cursor") or None
    )
    response = HTMLResponse(session_list.html)
    # Other sites cannot send our script's header, so the size of the response reveals nothing.
    if request.from_script and "gzip" in request.http.headers.get("accept-encoding", ""):
        response.body = gzip.compress(response.body, COMPRESSION_LEVEL)
        response.headers["content-length"] = str(len(response.body))
        response.headers["content-encoding"] = "gzip"
    return response


async def facets(request: WebRequest) -> Response:
    """GET /facets: values to filter by, from the sessions that were active last."""
    query = Query(limit=MAX_SCANNED_SESSIONS, archived="include")
    sessions = (await request.hub.sessions.list(request.principal, query)).sessions
    directories = (session.directory for session in sessions)
    html = templates.macros("facets.html").facets(
        projects=project_names.unique_names(
            _most_common(filter(project_names.is_project, directories))
        ),
        tags=_most_common(session.tag for session in sessions if session.tag),
        sources=_most_common(session.source for session in sessions),
        agents=await agent_names(
            request, {session.agent.id for session in sessions if session.agent is not None}
        ),
    )
    return HTMLResponse(str(html))


async def filters_of(request: WebRequest) -> Filters:
    """Return the list's filters. An agent may be given by id or by name."""
    params = dict(request.http.query_params)
    if (name := params.get("cwd", "")) and not name.startswith(("/", "~")) and ":" not in name:
        params["cwd"] = await _project_directory(request, name)
    if source := params.get("source"):
        params["source"] = _source_name(source)
    if agent := params.get("agent"):
        params["agent"] = ids.parse(agent, "agent") or await request.hub.records.agent_named(
            request.principal.workspace, agent
        )
    return Filters(params)


async def _project_directory(request: WebRequest, name: str) -> str:
    """Return the directory of a project that is given by its name, as the list shows it.

    A name that no project has becomes a path that no session has.
    """
    query = Query(limit=MAX_SCANNED_SESSIONS, archived="include")
    sessions = (await request.hub.sessions.list(request.principal, query)).sessions
    directories = _most_common(session.directory for session in sessions)
    unique_names = project_names.unique_names(directories)
    folded_name = name.casefold()
    for matches_name in (str.__eq__, str.__contains__):
        for directory in directories:
            names = (project_names.project_name(directory), unique_names[directory])
            if any(matches_name(known.casefold(), folded_name) for known in names):
                return directory
    return f"/{name}"


def _source_name(text: str) -> str:
    """Return the name of a source that is given by its name or label, in any case."""
    folded_name = text.casefold()
    known = (tool_names.names(), map(tool_names.label, tool_names.names()))
    for name, tool_label in zip(*known, strict=True):
        if folded_name in (name.casefold(), tool_label.casefold()):
            return name
    return OWN if folded_name == OWN else text


async def agent_names(request: WebRequest, agents: Iterable[str]) -> dict[str, str]:
    """Return the names of agents by their ids."""
    return await request.hub.records.agent_names(request.principal.workspace, agents)


async def with_sidebar(
    request: WebRequest, template: str, values: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return the template of a page and its values, with the session list next to it.

    Our script has the list already, so it gets the page's own template and values.
    """
    if request.from_script:
        return template, values
    return "app.html", {"inner": template, **await sidebar(request), **values}


async def sidebar(request: WebRequest) -> dict[str, Any]:
    """Return what the sidebar's template needs."""
    filters = await filters_of(request)
    agent = filters["agent"]
    waiting = [session.id for session in await recent_sessions(request) if is_waiting(session)]
    return {
        "waiting_ids": waiting,
        "quick_filters": QUICK_FILTERS,
        "session_list": await read_list(request, filters, request.param("cursor") or None),
        "chips": filters.chips(await agent_names(request, [agent]) if agent else {}),
        "state_filters": STATE_FILTERS,
        "activity_periods": ACTIVITY_PERIODS,
    }


async def render_matching_row(
    request: WebRequest, session: Session, filters: Filters
) -> str | None:
    """Return a session's row as HTML; None if the filters exclude it. A search text is ignored."""
    if session.workspace != request.principal.workspace or not _is_selected(session, filters):
        return None
    pinned = session.id in await request.hub.pins.ids(request.principal)
    if filters["pinned"] and not pinned:
        return None
    return rows.render_row(Row(session, pinned=pinned), filters, clock.now())


def _most_common(values: Iterable[str]) -> list[str]:
    """Return the distinct values, the most frequent first."""
    from collections import Counter

    return [value for value, _ in Counter(values).most_common(MAX_FACET_VALUES)]
