"""A session to be read by whoever has its link, and making and revoking that link."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from segue.interfaces.web import live
from segue.interfaces.web.request import Call
from segue.model import clock, ids
from segue.model.errors import NotFound
from segue.model.principal import Principal
from segue.model.session import Session
from segue.render.chunks import View

from . import agents, listing, transcript


async def page(call: Call) -> Response:
    """Where one sees whether a session is shared, and changes it."""
    session = await call.session()
    secret = await call.hub.shares.secret(call.principal, session.id)
    base = str(call.request.base_url).rstrip("/")
    link = base + _base(session, secret) if secret else ""
    values: dict[str, Any] = {"session": session, "link": link, "base": f"/s/{session.id}"}
    if call.scripted:
        return call.page("share.html", **values)
    filters = await listing.filters_of(call)
    return call.page(
        "app.html", inner="share.html", **await listing.sidebar(call, filters), **values
    )


async def share(call: Call) -> Response:
    session = await call.session()
    await call.hub.shares.share(call.principal, session.id)
    return call.went(f"/s/{session.id}/share")


async def unshare(call: Call) -> Response:
    session = await call.session()
    await call.hub.shares.revoke(call.principal, session.id)
    return call.went(f"/s/{session.id}/share")


# What a reader sees: the same parts, read by the link's right, and nothing to change.


async def shared(call: Call) -> Response:
    reading, view = await _open(call)
    return reading.page("shared.html", **await transcript.main(reading, view))


async def part(call: Call) -> Response:
    return await transcript.parts_of(*await _open(call))


async def stream(call: Call) -> Response:
    reading, view = await _open(call)

    async def ends() -> int:
        await _reader(call)  # NotFound once the link is revoked
        return clock.now() + clock.DAY

    return live.shared(reading, view, ends)


async def turns(call: Call) -> Response:
    reading, view = await _open(call)
    return await transcript.turns_of(reading, view)


async def agents_found(call: Call) -> Response:
    return await agents.found_in(*await _open(call))


async def agent(call: Call) -> Response:
    return await agents.shared_page(*await _open(call))


async def agent_whole(call: Call) -> Response:
    return await agents.whole_in(*await _open(call))


async def agent_blob(call: Call) -> Response:
    return await agents.blob_in(*await _open(call))


async def whole(call: Call) -> Response:
    return await transcript.whole((await _open(call))[0])


async def blob(call: Call) -> Response:
    return await transcript.blob((await _open(call))[0])


async def _open(call: Call) -> tuple[Call, View]:
    """The request as its link allows it: as somebody who may read the one session."""
    reading = Call(call.door, call.request, call.path, await _reader(call))
    session = await reading.session()
    if session.state == "trashed":
        raise NotFound("this link leads nowhere; its session was deleted")
    return reading, View(session, _base(session, call.path["secret"]), False)


async def _reader(call: Call) -> Principal:
    id = ids.parse(call.path["id"]) or ""
    return await call.hub.shares.reader(call.path["workspace"], id, call.path["secret"])


def _base(session: Session, secret: str) -> str:
    return f"/shared/{session.workspace}/{session.id}/{secret}"
