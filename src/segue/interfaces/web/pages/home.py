"""The home page, an inbox: sessions that wait for a person, that run, and that were active last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from starlette.responses import Response

from segue.hub.tools import label
from segue.interfaces.web import templates
from segue.interfaces.web.filters import Filters
from segue.interfaces.web.request import WebRequest
from segue.model import clock, ids
from segue.model.ansi import one_line
from segue.model.content import plain_text
from segue.model.errors import NotFound
from segue.model.event import AgentMessage
from segue.model.session import OWN, Session
from segue.render import project_names

from . import approvals, listing, starting, transcript
from .approvals import WaitingSession

MAX_RECENT = 50  # rows of the table
MAX_SHOWN = 20  # sessions that wait or run


class RunningSession(NamedTuple):
    """A session whose agent works: the last line that it wrote, and since when it works."""

    session: Session
    line: str
    elapsed: int


# The columns by which the table can be sorted, and whether the largest value comes first.
SORT_KEYS: dict[str, tuple[Callable[[Session], Any], bool]] = {
    "title": (lambda session: (session.title or "").casefold(), False),
    "project": (lambda session: project_names.project_name(session.directory).casefold(), False),
    "tool": (lambda session: label(session.source).casefold(), False),
    "model": (lambda session: next(reversed(session.models), "").casefold(), False),
    "turns": (lambda session: session.turns, True),
    "cost": (lambda session: session.usage.cost or 0, True),
    "age": (lambda session: session.active_at, True),
}
# What undoes an action on several sessions, and how a page names the action.
UNDO = {
    "archive": ("unarchive", "Archived"),
    "unarchive": ("archive", "Unarchived"),
    "pin": ("unpin", "Pinned"),
    "unpin": ("pin", "Unpinned"),
    "delete": ("restore", "Moved to the trash"),
    "restore": ("delete", "Restored"),
    "tag": ("retag", "Tagged"),
    "retag": ("", "Tagged as before"),
    "purge": ("", "Deleted for good"),
}


async def home(request: WebRequest) -> Response:
    """GET / and /activity: the inbox; for our script, also the list or what happens now alone."""
    match request.http.headers.get("x-segue"):
        case "list":
            return request.render_page("sessions.html", **await listing.sidebar(request))
        case "now":
            sessions = await approvals.recent_sessions(request)
            return request.render_page("now.html", **await _now(request, sessions))
    filters = await listing.filters_of(request)
    values = await _inbox(request, filters) | {"notice": await _notice(request)}
    if request.http.url.path == "/activity":
        values["activity"] = True
    template, values = await listing.with_sidebar(request, "home.html", values)
    return request.render_page(template, **values)


async def _inbox(request: WebRequest, filters: Filters) -> dict[str, Any]:
    sessions = await approvals.recent_sessions(request)
    # Until segue has a session of its own, the page says what was found, and what to do first.
    is_first_run = all(session.owner != OWN for session in sessions)
    return (
        await _now(request, sessions)
        | {
            "recent": await _recent(request, filters),
            "list_filters": filters,
            "sort": request.param("sort", "age"),
            "reverse": request.param("order") == "reverse",
            "state": filters["state"],
            "tools": await request.hub.diagnostics.tools(request.principal.workspace)
            if is_first_run and request.principal.local
            else [],
            "is_first_run": is_first_run and not filters.has_filter_or_search,
            "is_empty": not sessions and not filters.has_filter_or_search,
            "tool_label": label,
        }
        | (await starting.model_choice(request) if is_first_run else {})
    )


async def _now(request: WebRequest, sessions: Sequence[Session]) -> dict[str, Any]:
    """Return the sessions that wait for a person, and those whose agents work."""
    waiting = [session for session in sessions if approvals.is_waiting(session)]
    running = [session for session in sessions if approvals.is_running(session)]
    return {
        "waiting": [await _waiting(request, session) for session in waiting[:MAX_SHOWN]],
        "running": [await _running(request, session) for session in running[:MAX_SHOWN]],
    }


async def _waiting(request: WebRequest, session: Session) -> WaitingSession:
    view = await transcript.view_of(request, session)
    command = await transcript.resume_command(request, view) if view.owner_label else ""
    return WaitingSession(view, await approvals.open_requests(request, session), command)


async def _running(request: WebRequest, session: Session) -> RunningSession:
    events = await request.hub.history.events(
        request.principal, session.id, types=("agent_message",), limit=1, backward=True
    )
    body = events[-1].body if events else None
    line = one_line(plain_text(body.content)) if isinstance(body, AgentMessage) else ""
    since = session.running_since or session.active_at
    return RunningSession(session, line, max(0, clock.now() - since))


async def _recent(request: WebRequest, filters: Filters) -> list[Session]:
    """Return the rows of the table, sorted by the requested column."""
    sessions = (await listing.read_sessions(request, filters, MAX_RECENT))[:MAX_RECENT]
    key, descending = SORT_KEYS.get(request.param("sort", "age"), SORT_KEYS["age"])
    if request.param("order") == "reverse":
        descending = not descending
    return sorted(sessions, key=key, reverse=descending)


async def _notice(request: WebRequest) -> str:
    """Return a notice about the last change, with a button that undoes it; "" without a change."""
    done = request.param("did")
    if done in UNDO:
        session_ids = [id for id in request.param("ids").split(" ") if ids.parse(id)]
        undo, sentence = UNDO[done]
        render = templates.macros("home_bits.html").undo
        was = request.http.query_params.getlist("was")
        return render(session_ids, undo, sentence, request.csrf, was)  # type: ignore[no-any-return]  # a macro returns Markup
    session_id = ids.parse(request.param("deleted"))
    if session_id is None:
        return ""
    try:
        session = await request.hub.sessions.get(request.principal, session_id)
    except NotFound:
        return ""
    if session.state != "trashed":
        return ""
    return templates.macros("session_bits.html").undo(session, request.csrf)  # type: ignore[no-any-return]  # a macro returns Markup
