"""The page that is about all sessions: the list alone."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from segue.interfaces.web import templates
from segue.interfaces.web.request import WebRequest
from segue.model import ids
from segue.model.errors import NotFound

from . import listing


async def home(request: WebRequest) -> Response:
    """The list; a session that was just deleted can be had back from here."""
    filters = await listing.filters_of(request)
    if request.http.headers.get("x-segue") == "list":
        return request.render_page("sessions.html", **await listing.sidebar(request, filters))
    values: dict[str, Any] = {"notice": await _deleted(request)}
    if request.from_script:
        return request.render_page("welcome.html", **values)
    return request.render_page(
        "app.html", inner="welcome.html", **await listing.sidebar(request, filters), **values
    )


async def _deleted(request: WebRequest) -> str:
    id = ids.parse(request.param("deleted"))
    if id is None:
        return ""
    try:
        session = await request.hub.sessions.get(request.principal, id)
    except NotFound:
        return ""
    if session.state != "trashed":
        return ""
    return templates.macros("session_bits.html").undo(session, request.csrf)  # type: ignore[no-any-return]  # Markup, says the template
