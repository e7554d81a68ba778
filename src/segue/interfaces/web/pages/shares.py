"""Share a session by a link that anyone can read it with, and revoke the link."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from segue.http.hosts import is_loopback
from segue.hub.access.shares import Reader
from segue.hub.history.redacted import Redaction
from segue.interfaces.web import live
from segue.interfaces.web.request import Handler, WebRequest
from segue.model import clock, ids
from segue.model.errors import InvalidInput, NotFound
from segue.model.session import Session
from segue.render import threads
from segue.render.chunks import SessionView
from segue.secrets.events import SecretCounter, mask_events

from . import listing, transcript
from .transcript import ViewHandler

# How long a link can be valid, in days; 0 is until it is revoked.
EXPIRY_DAYS = {1: "1 day", 7: "7 days", 30: "30 days", 0: "until I revoke it"}
DEFAULT_EXPIRY_DAYS = 7
MAX_SEARCHED_EVENTS = 5000  # for secrets to count; masks are put everywhere


async def page(request: WebRequest) -> Response:
    """GET /s/{id}/share: the session's link, and what its readers see."""
    session = await request.session()
    share = await request.hub.shares.get(request.principal, session.id)
    if share is not None and share.has_expired:
        share = None
    server_url = str(request.http.base_url).rstrip("/")
    values: dict[str, Any] = {
        "session": session,
        "share": share,
        "link": server_url + _shared_path(session, share.secret) if share else "",
        "base": f"/s/{session.id}",
        "expiries": EXPIRY_DAYS,
        "default_expiry": DEFAULT_EXPIRY_DAYS,
        "secrets": await _count_secrets(request, session),
        "max_searched": MAX_SEARCHED_EVENTS,
        "is_local_address": is_loopback(request.http.url.hostname or ""),
    }
    template, values = await listing.with_sidebar(request, "share.html", values)
    return request.render_page(template, **values)


async def _count_secrets(request: WebRequest, session: Session) -> int:
    """Return how many secrets the first events of a session seem to have."""
    events = await request.hub.history.events(
        request.principal, session.id, limit=MAX_SEARCHED_EVENTS
    )
    counter = SecretCounter()
    await threads.render_in_thread(mask_events, events, counter)
    return counter.secrets


async def share(request: WebRequest) -> Response:
    """POST /s/{id}/share: create the link, or change its expiry and what it shows."""
    session = await request.session()
    form = await request.form()
    days = form.get("days", str(DEFAULT_EXPIRY_DAYS))
    if days not in map(str, EXPIRY_DAYS):
        raise InvalidInput(f"days must be one of {', '.join(map(str, EXPIRY_DAYS))}, not {days!r}")
    redaction = Redaction(
        hide_tool_output=form.get("tools") == "hidden", mask_secrets=form.get("secrets") != "shown"
    )
    await request.hub.shares.share(
        request.principal, session.id, days=int(days) or None, redaction=redaction
    )
    return request.redirect(f"/s/{session.id}/share")


def for_readers(handler: ViewHandler) -> Handler:
    """Return a handler that answers with the session of a share link.

    Readers of the link can change nothing.
    """

    async def handle(request: WebRequest) -> Response:
        return await handler(*await _open(request))

    return handle


async def shared(request: WebRequest, view: SessionView) -> Response:
    """GET {link}: the session's page, from its beginning."""
    values = await transcript.page_values(request, view, at_end=False)
    return request.render_page("shared.html", **values, redaction=request.redaction)


async def stream(request: WebRequest, view: SessionView) -> Response:
    """GET {link}/live: the session's changes, until the link expires or is revoked."""

    async def expires_at() -> int:
        reader = await _authenticate(request)  # raises NotFound once the link is not valid
        tomorrow = clock.now() + clock.DAY
        return min(tomorrow, reader.share.expires_at or tomorrow)

    return await live.shared(request, view, expires_at)


async def _open(request: WebRequest) -> tuple[WebRequest, SessionView]:
    """Return the request as a reader of the link sends it, and the view of the session.

    Raises NotFound if the link is not valid or its session is in the trash.
    """
    principal, share = await _authenticate(request)
    reader_request = WebRequest(
        request.context, request.http, request.path_params, principal, redaction=share.redaction
    )
    session = share.redaction.session(await reader_request.session())
    if session.state == "trashed":
        raise NotFound("this link is not valid; its session was deleted")
    base = _shared_path(session, request.path_params["secret"])
    return reader_request, SessionView(session, base, writable=False)


async def _authenticate(request: WebRequest) -> Reader:
    """Return the reader of the session. Raises NotFound if the link is not valid."""
    params = request.path_params
    session_id = ids.parse(params["id"]) or ""
    return await request.hub.shares.authenticate(params["workspace"], session_id, params["secret"])


def _shared_path(session: Session, secret: str) -> str:
    return f"/shared/{session.workspace}/{session.id}/{secret}"
