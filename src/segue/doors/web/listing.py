"""The list of sessions: pages by cursor, grouped, searched, filtered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace
from starlette.responses import HTMLResponse, Response

from ...hub.reading import Found
from ...model import clock, text
from ...model.principal import Principal
from ...model.query import Query, matches
from ...model.session import Session
from . import templates
from .call import Call
from .filters import NAMES, SHELVES, SINCE, Filters
from .markdown import sendable

if TYPE_CHECKING:
    from markupsafe import Markup

FIRST = 40  # sessions of the first page: more than a screen holds
LATER = 100
FOUND = 20  # results of a search: each costs a look into its session
SEEN = 1000  # sessions whose directories, tags and sources are offered as filters


class Row(NamedTuple):
    """A session in the list; `snippet` and `seq` say where a search found it."""

    session: Session
    snippet: Markup | None = None
    seq: int | None = None


class Group(NamedTuple):
    key: str
    label: str
    rows: list[Row]


class Listed(NamedTuple):
    """A page of the list, as the template wants it."""

    groups: list[Group]
    next: str | None
    filters: Filters


async def listed(call: Call, filters: Filters, cursor: str | None = None) -> Listed:
    """A page of the list that the filters describe."""
    query = filters.query(LATER if cursor else FIRST)
    if query.text and text.terms(query.text):
        found = await call.hub.search(call.principal, replace(query, limit=FOUND), cursor)
        rows, following = [_row(each) for each in found.found], found.next
    else:
        # Only punctuation, so far: that finds everything.
        query = replace(query, text=None)
        page = await call.hub.list(call.principal, query, cursor, bind_filters=False)
        rows, following = [Row(session) for session in page.sessions], page.next
    after = filters.address(cursor=following) if following else None
    return Listed(grouped(rows, filters), after, filters)


async def first(call: Call, filters: Filters) -> list[Session]:
    """The sessions that a list begins with; none for a search, which is as it was asked for."""
    if filters.words:
        return []
    page = await call.hub.list(call.principal, filters.query(FIRST), bind_filters=False)
    return page.sessions


async def rows(call: Call) -> Response:
    """A further page, for a list that is being scrolled."""
    made = await listed(call, filters_of(call), call.param("cursor") or None)
    return HTMLResponse(str(templates.macros("list.html").rows(made)))


async def facets(call: Call) -> Response:
    """Values to filter by, taken from the sessions that were active last."""
    page = await call.hub.list(call.principal, Query(limit=SEEN, archived="include"))
    agents = {session.agent.id for session in page.sessions if session.agent is not None}
    made = templates.macros("list.html").facets(
        directories=_common(session.directory for session in page.sessions),
        tags=_common(session.tag for session in page.sessions if session.tag),
        sources=_common(session.source for session in page.sessions),
        agents=await agent_names(call, agents),
    )
    return HTMLResponse(str(made))


def filters_of(call: Call) -> Filters:
    return Filters({name: call.param(name) for name in NAMES})


async def agent_names(call: Call, agents: Iterable[str]) -> dict[str, str]:
    """What the agents of these ids are called."""
    return await call.hub.records.agent_names(call.principal.workspace, agents)


async def sidebar(call: Call, filters: Filters) -> dict[str, Any]:
    """All that the sidebar's template needs."""
    agent = filters["agent"]
    now = clock.now()
    return {
        "now": now,
        "list": await listed(call, filters, call.param("cursor") or None),
        "chips": filters.chips(await agent_names(call, [agent]) if agent else {}),
        "shelves": SHELVES,
        "since": SINCE,
    }


def row_of(principal: Principal, session: Session, filters: Filters) -> str | None:
    """A session's row, if it belongs in a list with these filters; for lists that update."""
    if filters.words or session.workspace != principal.workspace:
        return None
    query = filters.query(1)
    if query.cwd is not None:
        query = replace(query, directories=(query.cwd,))
    if not matches(query, session):
        return None
    made = templates.macros("list.html").row(Row(session), filters)
    return str(made)


def group_of(session: Session, filters: Filters, now: int | None = None) -> tuple[str, str]:
    """The group that a session stands in: its key and its heading."""
    if filters.by_project:
        return session.directory, templates.project(session.directory)
    label = _recency(session.active_at // clock.DAY, (now or clock.now()) // clock.DAY)
    return label, label


@lru_cache(maxsize=1024)
def _recency(day: int, today: int) -> str:
    for days, label in ((0, "Today"), (1, "Yesterday"), (7, "Last 7 days"), (30, "Last 30 days")):
        if today - day <= days:
            return label
    return f"{datetime.fromtimestamp(day * 86_400, UTC):%B %Y}"


def grouped(rows: Sequence[Row], filters: Filters) -> list[Group]:
    now = clock.now()
    found: dict[str, Group] = {}
    for row in rows:
        key, label = group_of(row.session, filters, now)
        found.setdefault(key, Group(key, label, [])).rows.append(row)
    return list(found.values())


def _row(found: Found) -> Row:
    from markupsafe import Markup, escape

    words = sendable(found.snippet)
    pieces: list[str] = []
    end = 0
    for mark in found.marks:
        pieces += (escape(words[end : mark.start]), "<mark>", escape(words[mark.start : mark.stop]))
        pieces.append("</mark>")
        end = mark.stop
    pieces.append(escape(words[end:]))
    snippet = Markup("".join(pieces))
    return Row(found.session, snippet, None if found.event is None else found.event.seq)


def _common(values: Iterable[str]) -> list[str]:
    """The values, the most frequent first."""
    from collections import Counter

    return [value for value, _ in Counter(values).most_common(100)]
