"""The page that is about all sessions: the list alone."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from segue.interfaces.web import templates
from segue.interfaces.web.request import Call
from segue.model import ids
from segue.model.errors import NotFound

from . import listing


async def home(call: Call) -> Response:
    """The list; a session that was just deleted can be had back from here."""
    filters = await listing.filters_of(call)
    if call.request.headers.get("x-segue") == "list":
        return call.page("sessions.html", **await listing.sidebar(call, filters))
    values: dict[str, Any] = {"notice": await _deleted(call)}
    if call.scripted:
        return call.page("welcome.html", **values)
    return call.page(
        "app.html", inner="welcome.html", **await listing.sidebar(call, filters), **values
    )


async def _deleted(call: Call) -> str:
    id = ids.parse(call.param("deleted"))
    if id is None:
        return ""
    try:
        session = await call.hub.get(call.principal, id)
    except NotFound:
        return ""
    if session.state != "trashed":
        return ""
    return templates.macros("session_bits.html").undo(session, call.csrf)  # type: ignore[no-any-return]  # Markup, says the template
