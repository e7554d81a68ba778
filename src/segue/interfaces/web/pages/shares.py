"""A session to be read by whoever has its link, and making and revoking that link."""

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
    """Where one sees whether a session is shared, and changes it."""
    session = await request.session()
    secret = await request.hub.shares.get_secret(request.principal, session.id)
    base = str(request.http.base_url).rstrip("/")
    link = base + _base(session, secret) if secret else ""
    values: dict[str, Any] = {"session": session, "link": link, "base": f"/s/{session.id}"}
    if request.from_script:
        return request.render_page("share.html", **values)
    filters = await listing.filters_of(request)
    return request.render_page(
        "app.html", inner="share.html", **await listing.sidebar(request, filters), **values
    )


async def share(request: WebRequest) -> Response:
    session = await request.session()
    await request.hub.shares.share(request.principal, session.id)
    return request.redirect(f"/s/{session.id}/share")


async def unshare(request: WebRequest) -> Response:
    session = await request.session()
    await request.hub.shares.revoke(request.principal, session.id)
    return request.redirect(f"/s/{session.id}/share")


# What a reader sees: the same parts, read by the link's right, and nothing to change.


async def shared(request: WebRequest) -> Response:
    reading, view = await _open(request)
    return reading.render_page("shared.html", **await transcript.main(reading, view))


async def part(request: WebRequest) -> Response:
    return await transcript.parts_of(*await _open(request))


async def stream(request: WebRequest) -> Response:
    reading, view = await _open(request)

    async def ends() -> int:
        await _reader(request)  # NotFound once the link is revoked
        return clock.now() + clock.DAY

    return live.shared(reading, view, ends)


async def turns(request: WebRequest) -> Response:
    reading, view = await _open(request)
    return await transcript.turns_of(reading, view)


async def agents_found(request: WebRequest) -> Response:
    return await agents.found_in(*await _open(request))


async def agent(request: WebRequest) -> Response:
    return await agents.shared_page(*await _open(request))


async def agent_whole(request: WebRequest) -> Response:
    return await agents.whole_in(*await _open(request))


async def agent_blob(request: WebRequest) -> Response:
    return await agents.blob_in(*await _open(request))


async def whole(request: WebRequest) -> Response:
    return await transcript.whole((await _open(request))[0])


async def blob(request: WebRequest) -> Response:
    return await transcript.blob((await _open(request))[0])


async def _open(request: WebRequest) -> tuple[WebRequest, SessionView]:
    """The request as its link allows it: as somebody who may read the one session."""
    reading = WebRequest(request.app, request.http, request.path_params, await _reader(request))
    session = await reading.session()
    if session.state == "trashed":
        raise NotFound("this link is not valid; its session was deleted")
    return reading, SessionView(
        session, _base(session, request.path_params["secret"]), writable=False
    )


async def _reader(request: WebRequest) -> Principal:
    id = ids.parse(request.path_params["id"]) or ""
    return await request.hub.shares.authenticate(
        request.path_params["workspace"], id, request.path_params["secret"]
    )


def _base(session: Session, secret: str) -> str:
    return f"/shared/{session.workspace}/{session.id}/{secret}"
