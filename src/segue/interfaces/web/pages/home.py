"""The home page: the session list without an open session."""

from __future__ import annotations

from starlette.responses import Response

from segue.interfaces.web import templates
from segue.interfaces.web.request import WebRequest
from segue.model import ids
from segue.model.errors import NotFound

from . import listing


async def home(request: WebRequest) -> Response:
    """GET /: the list, with an undo button for the session that was deleted last."""
    if request.http.headers.get("x-segue") == "list":
        return request.render_page("sessions.html", **await listing.sidebar(request))
    notice = await _undo_notice(request)
    template, values = await listing.with_sidebar(request, "welcome.html", {"notice": notice})
    return request.render_page(template, **values)


async def _undo_notice(request: WebRequest) -> str:
    """Return a notice that can restore the session `deleted`; "" if it is not in the trash."""
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
