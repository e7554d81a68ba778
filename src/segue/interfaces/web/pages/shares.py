"""Share a session by a link that anyone can read it with, and revoke the link."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from segue.interfaces.web import live
from segue.interfaces.web.request import Handler, WebRequest
from segue.model import clock, ids
from segue.model.errors import NotFound
from segue.model.principal import Principal
from segue.model.session import Session
from segue.render.chunks import SessionView

from . import listing, transcript
from .transcript import ViewHandler


async def page(request: WebRequest) -> Response:
    """GET /s/{id}/share: the session's link, and the buttons that create and revoke it."""
    session = await request.session()
    secret = await request.hub.shares.get_secret(request.principal, session.id)
    server_url = str(request.http.base_url).rstrip("/")
    values: dict[str, Any] = {
        "session": session,
        "link": server_url + _shared_path(session, secret) if secret else "",
        "base": f"/s/{session.id}",
    }
    template, values = await listing.with_sidebar(request, "share.html", values)
    return request.render_page(template, **values)


def for_readers(handler: ViewHandler) -> Handler:
    """Return a handler that answers with the session of a share link.

    Readers of the link can change nothing.
    """

    async def handle(request: WebRequest) -> Response:
        return await handler(*await _open(request))

    return handle


async def shared(request: WebRequest, view: SessionView) -> Response:
    """GET {link}: the session's page."""
    values = await transcript.page_values(request, view)
    return request.render_page("shared.html", **values)


async def stream(request: WebRequest, view: SessionView) -> Response:
    """GET {link}/live: the session's changes, until the link is revoked."""

    async def expires_at() -> int:
        await _authenticate(request)  # raises NotFound once the link is revoked
        return clock.now() + clock.DAY

    return await live.shared(request, view, expires_at)


async def _open(request: WebRequest) -> tuple[WebRequest, SessionView]:
    """Return the request as a reader of the link sends it, and the view of the session.

    Raises NotFound if the link is not valid or its session is in the trash.
    """
    principal = await _authenticate(request)
    reader_request = WebRequest(request.context, request.http, request.path_params, principal)
    session = await reader_request.session()
    if session.state == "trashed":
        raise NotFound("this link is not valid; its session was deleted")
    base = _shared_path(session, request.path_params["secret"])
    return reader_request, SessionView(session, base, writable=False)


async def _authenticate(request: WebRequest) -> Principal:
    """Return a principal that may read the session. Raises NotFound if the link is not valid."""
    params = request.path_params
    session_id = ids.parse(params["id"]) or ""
    return await request.hub.shares.authenticate(params["workspace"], session_id, params["secret"])


def _shared_path(session: Session, secret: str) -> str:
    return f"/shared/{session.workspace}/{session.id}/{secret}"
