"""The list of sessions: pages by cursor, grouped, searched, filtered."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace
from starlette.responses import HTMLResponse, Response

from segue.interfaces.web import rows, templates
from segue.interfaces.web.filters import SHELVES, SINCE, Filters
from segue.interfaces.web.request import WebRequest
from segue.interfaces.web.rows import Group, Row
from segue.model import clock, ids, search_text
from segue.model.principal import Principal
from segue.model.query import Query, matches
from segue.model.session import Session
from segue.render import project_names

if TYPE_CHECKING:
    from markupsafe import Markup

FIRST = 40  # sessions of the first page: more than a screen holds
LATER = 100
FOUND = 12  # results of a search, which are taller: each costs a look into its session
SEEN = 1000  # sessions whose directories, tags and sources are offered as filters


class Listed(NamedTuple):
    """A page of the list, and the address of the next."""

    request: WebRequest
    groups: list[Group]
    next: str | None
    filters: Filters
    now: int

    @property
    def html(self) -> Markup:
        from markupsafe import Markup

        made = "\n".join(rows.section(group, self.filters, self.now) for group in self.groups)
        if not self.groups:
            begin = self.request.command("prompt", "new", "What can you do?")
            return Markup(
                templates.render(
                    "empty.html",
                    filters=self.filters,
                    command=begin,
                    hint=self.request.command_hint,
                )
            )
        if self.next:
            made += f'\n<a class="more" href="/{escape(self.next)}" rel="next">More sessions</a>'
        return Markup(made)


async def read(request: WebRequest, filters: Filters, cursor: str | None = None) -> Listed:
    """A page of the list that the filters describe."""
    now = clock.now()
    query = filters.query(FIRST if cursor is None else LATER)
    if query.text and search_text.terms(query.text):
        results = await request.hub.sessions.search(
            request.principal, replace(query, limit=FOUND), cursor
        )
        made, following = [rows.found(each) for each in results.matches], results.next
    else:
        # Only punctuation, so far: that finds everything.
        query = replace(query, text=None, limit=SEEN if filters.by_project else query.limit)
        listed = await request.hub.sessions.list(
            request.principal, query, cursor, bind_filters=False
        )
        made, following = [Row(session) for session in listed.sessions], listed.next
    after = filters.address(cursor=following) if following else None
    return Listed(
        request, rows.grouped(made, filters, now, request.utc_offset), after, filters, now
    )


async def first(request: WebRequest, filters: Filters) -> list[Session]:
    """The sessions that a list begins with; none for a search, which is as it was asked for."""
    if filters.words:
        return []
    page = await request.hub.sessions.list(
        request.principal, filters.query(FIRST), bind_filters=False
    )
    return page.sessions


async def page(request: WebRequest) -> Response:
    """Rows alone, for a list that is scrolled or searched."""
    made = await read(request, await filters_of(request), request.param("cursor") or None)
    return HTMLResponse(made.html)


async def facets(request: WebRequest) -> Response:
    """Values to filter by, taken from the sessions that were active last."""
    page = await request.hub.sessions.list(request.principal, Query(limit=SEEN, archived="include"))
    agents = {session.agent.id for session in page.sessions if session.agent is not None}
    made = templates.macros("facets.html").facets(
        directories=_common(
            session.directory
            for session in page.sessions
            if project_names.is_project(session.directory)
        ),
        tags=_common(session.tag for session in page.sessions if session.tag),
        sources=_common(session.source for session in page.sessions),
        agents=await agent_names(request, agents),
    )
    return HTMLResponse(str(made))


async def filters_of(request: WebRequest) -> Filters:
    """The list's filters, the agent by its id, however it was named."""
    params = dict(request.http.query_params)
    if agent := params.get("agent"):
        found = ids.parse(agent, "agent")
        params["agent"] = found or await request.hub.records.agent_named(
            request.principal.workspace, agent
        )
    return Filters(params)


async def agent_names(request: WebRequest, agents: Iterable[str]) -> dict[str, str]:
    """What the agents of these ids are called."""
    return await request.hub.records.agent_names(request.principal.workspace, agents)


async def sidebar(request: WebRequest, filters: Filters) -> dict[str, Any]:
    """All that the sidebar's template needs."""
    agent = filters["agent"]
    return {
        "list": await read(request, filters, request.param("cursor") or None),
        "chips": filters.chips(await agent_names(request, [agent]) if agent else {}),
        "shelves": SHELVES,
        "since": SINCE,
    }


def row_of(principal: Principal, session: Session, filters: Filters) -> str | None:
    """A session's row, if it belongs in a list with these filters, whatever its words are."""
    if session.workspace != principal.workspace:
        return None
    query = filters.query(1)
    if query.cwd is not None:
        query = replace(query, directories=(query.cwd,))
    return rows.row(Row(session), filters, clock.now()) if matches(query, session) else None


def _common(values: Iterable[str]) -> list[str]:
    """The values, the most frequent first."""
    from collections import Counter

    return [value for value, _ in Counter(values).most_common(100)]
