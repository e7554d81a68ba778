"""Share a session by a link that anyone can read it with, and revoke the link."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from segue.interfaces.web import live
from segue.interfaces.web.request import WebRequest
from segue.model import clock, ids
from segue.model.errors import NotFound
from segue.model.principal import Principal
from segue.model.session import Session
from segue.render.chunks import SessionView

from . import agents, listing, transcript


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
    if request.from_script:
        return request.render_page("share.html", **values)
    sidebar = await listing.sidebar(request, await listing.filters_of(request))
    return request.render_page("app.html", inner="share.html", **sidebar, **values)


async def share(request: WebRequest) -> Response:
    """POST /s/{id}/share: create the link."""
    session = await request.session()
    await request.hub.shares.share(request.principal, session.id)
    return request.redirect(f"/s/{session.id}/share")


async def unshare(request: WebRequest) -> Response:
    """POST /s/{id}/unshare: revoke the link."""
    session = await request.session()
    await request.hub.shares.revoke(request.principal, session.id)
    return request.redirect(f"/s/{session.id}/share")


# The pages of a shared session. Their paths are those of the session's own pages, below the link,
# and their readers can change nothing.


async def shared(request: WebRequest) -> Response:
    """GET the link: the session's page."""
    reader_request, view = await _open(request)
    values = await transcript.page_values(reader_request, view)
    return reader_request.render_page("shared.html", **values)


async def chunks(request: WebRequest) -> Response:
    """GET {link}/chunks"""
    return await transcript.render_requested_chunks(*await _open(request))


async def stream(request: WebRequest) -> Response:
    """GET {link}/live: the session's changes, until the link is revoked."""
    reader_request, view = await _open(request)

    async def expires_at() -> int:
        await _authenticate(request)  # raises NotFound once the link is revoked
        return clock.now() + clock.DAY

    return live.shared(reader_request, view, expires_at)


async def turns(request: WebRequest) -> Response:
    """GET {link}/turns"""
    return await transcript.render_turns(*await _open(request))


async def agent_matches(request: WebRequest) -> Response:
    """GET {link}/agents"""
    return await agents.matches_in(*await _open(request))


async def agent(request: WebRequest) -> Response:
    """GET {link}/agent/{thread}"""
    return await agents.shared_page(*await _open(request))


async def agent_full_text(request: WebRequest) -> Response:
    """GET {link}/agent/{thread}/whole/{seq}"""
    return await agents.full_text_in(*await _open(request))


async def agent_blob(request: WebRequest) -> Response:
    """GET {link}/agent/{thread}/blob/{seq}/{index}"""
    return await agents.blob_in(*await _open(request))


async def full_text(request: WebRequest) -> Response:
    """GET {link}/whole/{seq}"""
    return await transcript.full_text((await _open(request))[0])


async def blob(request: WebRequest) -> Response:
    """GET {link}/blob/{seq}/{index}"""
    return await transcript.blob((await _open(request))[0])


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
