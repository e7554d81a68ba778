"""Live updates of a page: the open session as it grows, and changed rows of the session list.

A page has one event stream for both, because a browser opens only six connections to a server. A
hidden page closes its stream, and later continues after the last seq that it has. An imported
session has other seqs than in its source, so its page is reloaded. A stream ends with the sign-in
or the share link that opened it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from starlette.responses import Response

from segue.http import sse
from segue.http.sse import AccessResult, EventStreamResponse, encode_frame, merge_frames
from segue.model import clock, ids
from segue.model.errors import NotFound, Unauthorized
from segue.model.event import Delta, Event, ThreadStarted, ToolCall
from segue.model.principal import Principal
from segue.model.session import Session
from segue.render import format, threads, turns
from segue.render.chunks import SessionView, chunk_number, read_chunks
from segue.render.items import build_items
from segue.render.pairing import Pairs, PairTracker, find_outcomes
from segue.render.text.markdown import markdown

from . import rows, templates
from .filters import Filters
from .pages import approvals, listing, transcript
from .request import WebRequest, parse_number

ViewOf = Callable[[Session], Awaitable[SessionView]]
ExpiresAt = Callable[[], Awaitable[int]]

LOGIN_CHECK_SECONDS = 15.0
SHARE_CHECK_SECONDS = 1.0  # each check reads one record
EXPIRY_WARNING = 10 * 60 * clock.SECOND  # before a sign-in expires, its page says so
DELTA_PAUSE_SECONDS = 0.06  # between two renderings of an unfinished message
MISSED_HEARTBEATS = 2.5  # after so many, a page opens a new stream
# Events after which the head of the page (title, status, composer) is sent again.
_HEAD_EVENTS = frozenset(
    {"info_changed", "status_changed", "model_called", "permission_asked", "permission_answered"}
    | {"user_message", "agent_message", "config_changed"}
)


class ExpiringAccess:
    """Ends a stream when its sign-in or share link expires or is revoked, and warns before.

    `expires_at` raises Unauthorized or NotFound once the access is revoked. It is called every
    `check_seconds`.
    """

    def __init__(self, expires_at: ExpiresAt, check_seconds: float) -> None:
        self._expires_at = expires_at
        self._check_seconds = check_seconds
        self._valid_until = 0
        self._checked_at = float("-inf")
        self._warned = False

    def seconds_until_due(self) -> float:
        until_expiry = (self._valid_until - clock.now()) / clock.SECOND
        until_check = self._check_seconds - (time.monotonic() - self._checked_at)
        return min(until_expiry, until_check)

    async def check(self) -> AccessResult:
        try:
            self._valid_until = await self._expires_at()
        except (Unauthorized, NotFound) as error:
            return AccessResult(
                (encode_frame("signed_out", {"message": error.remote_message}),), allowed=False
            )
        self._checked_at = time.monotonic()
        remaining = self._valid_until - clock.now()
        if self._warned or not 0 < remaining <= EXPIRY_WARNING:
            return AccessResult((), allowed=True)
        self._warned = True
        minutes = max(1, round(remaining / (60 * clock.SECOND)))
        return AccessResult((encode_frame("expires_soon", {"minutes": minutes}),), allowed=True)


async def stream(request: WebRequest) -> Response:
    """GET /live: the session list and the open session of a page."""
    filters = await listing.filters_of(request)
    parts = [_rows(request, filters, request.number_param("as-of") or 0)]
    if session_id := ids.parse(request.param("session")):
        session = await request.hub.sessions.get(request.principal, session_id)
        view_of = partial(transcript.view_of, request)
        parts.append(_session(request, session, _last_seq(request), view_of))
    expires_at = partial(request.hub.logins.expires_at, request.token)
    access = ExpiringAccess(expires_at, LOGIN_CHECK_SECONDS)
    return await _respond(request, request.principal, parts, access)


async def shared(request: WebRequest, view: SessionView, expires_at: ExpiresAt) -> Response:
    """Stream one session to the readers of its share link."""

    async def view_of(session: Session) -> SessionView:
        if session.state == "trashed":
            raise NotFound("its session was deleted")
        return view._replace(session=request.redaction.session(session))

    part = _session(request, view.session, _last_seq(request), view_of)
    readers = Principal(workspace=view.session.workspace)
    return await _respond(request, readers, [part], ExpiringAccess(expires_at, SHARE_CHECK_SECONDS))


def _last_seq(request: WebRequest) -> int:
    """Return the seq of the last event that a page has."""
    last_event_id = request.http.headers.get("last-event-id")
    if last_event_id:
        return parse_number(last_event_id, f"last-event-id {last_event_id!r} is not a seq")
    return request.number_param("after") or 0


async def _respond(
    request: WebRequest,
    principal: Principal,
    parts: list[AsyncIterator[bytes]],
    access: ExpiringAccess,
) -> Response:
    """Return a stream, which counts as one of the principal's workspace."""
    on_end = await request.hub.quotas.open_stream(principal)
    max_silence_ms = round(MISSED_HEARTBEATS * sse.HEARTBEAT_SECONDS * 1000)
    return EventStreamResponse(
        merge_frames(*parts),
        closing=request.context.closing,
        greeting=b"retry: 1000\n" + encode_frame("hello", {"max_silence_ms": max_silence_ms}),
        heartbeat=encode_frame("heartbeat", {}),
        access=access,
        on_end=on_end,
    )


async def _session(
    request: WebRequest, session: Session, after: int, view_of: ViewOf
) -> AsyncIterator[bytes]:
    """Yield the changes of the open session."""
    page_owner = request.param("page-owner", session.owner)
    if session.owner != page_owner:
        yield encode_frame("moved", {"session": session.id})
        return
    after = min(after, session.last_seq)
    agent = await transcript.agent_name(request, session)
    pairs = PairTracker(request.history, request.principal, session.id)
    unfinished_texts: dict[str, str] = {}
    async for received in request.history.follow(request.principal, session.id, after, deltas=True):
        if isinstance(received, Delta) and received.thread is not None:
            continue
        if isinstance(received, Delta):
            started = time.monotonic()
            frame = await _unfinished_message(received, unfinished_texts)
            # A text that is costly to render is rendered less often.
            pause = max(DELTA_PAUSE_SECONDS, 2 * (time.monotonic() - started))
            yield frame
            await asyncio.sleep(pause)
            continue
        unfinished_texts.pop(received.id, None)
        try:
            session = await request.hub.sessions.get(request.principal, session.id)
            view = await view_of(session)
        except NotFound:
            break
        if session.owner != page_owner:
            yield encode_frame("moved", {"session": session.id})
            return
        if isinstance(received.body, ThreadStarted):
            yield await _with_thread(request, view, received.body, received.seq)
        elif received.body.thread is None:
            yield await _item(view, received, pairs, await _turn_end(request, view, received))
        if received.type in _HEAD_EVENTS:
            head = await _head(request, view, agent) if view.writable else _shared_head(view)
            yield encode_frame("head", head)
    yield encode_frame("gone", {"session": session.id})


async def _unfinished_message(delta: Delta, texts: dict[str, str]) -> bytes:
    """Add a delta to its message's text, and return the rendered text so far."""
    text = texts[delta.message] = texts.get(delta.message, "") + delta.text
    html = str(await threads.render(markdown, text))
    data = {"message": delta.message, "kind": delta.kind, "html": html}
    return encode_frame("writing", data)


async def _turn_end(request: WebRequest, view: SessionView, event: Event) -> str:
    """Return the line at the end of a turn, if an event is the last one of it; else ""."""
    if not turns.ends_turn(event) or event.seq < view.session.last_seq:
        return ""
    turn = await turns.last_turn(request.history, request.principal, view.session)
    return str(templates.macros("items.html").turn_end(view, turn)) if turn else ""


async def _with_thread(
    request: WebRequest, view: SessionView, body: ThreadStarted, seq: int
) -> bytes:
    """Return the frame that adds a link to a thread to the tool call that started it."""
    chunks = await read_chunks(
        request.history,
        request.principal,
        view.session,
        max(0, chunk_number(view.session, seq) - 1),
        chunk_number(view.session, seq),
    )
    shown = [item for chunk in chunks for item in chunk.items if item.threads]
    data: dict[str, Any] = {"seq": seq, "message": "", "html": ""}
    for item in shown:
        if isinstance(item.event.body, ToolCall) and item.event.body.call_id == body.call_id:
            render_item = templates.macros("items.html").render_item
            html = str(await threads.render(render_item, view, item))
            data |= {"of": item.event.seq, "message": item.event.id, "html": html}
    return encode_frame("item", data, str(seq))


async def _item(view: SessionView, event: Event, pairs: PairTracker, turn_end: str) -> bytes:
    """Return the frame that adds an event to the page, or changes the item that it completes."""
    data: dict[str, Any] = {"seq": event.seq, "message": event.id, "html": ""}
    opening = await pairs.find_opening(event)
    if opening is None:
        items = build_items(view.session, [event], Pairs({}, await pairs.find_call(event)))
    else:
        openings = await pairs.find_call(opening)
        items = build_items(view.session, [opening], Pairs(find_outcomes([event]), openings))
        data["of"] = opening.seq
    render_item = templates.macros("items.html").render_item
    for item in items:
        data["html"] += str(await threads.render(render_item, view, item))
    data["html"] += turn_end
    return encode_frame("item", data, str(event.seq))


async def _head(request: WebRequest, view: SessionView, agent: str) -> dict[str, Any]:
    macros = templates.macros("session_bits.html")
    session = view.session
    return {
        "title": format.title(session),
        "meta": str(macros.meta(view, agent, session.usage.tokens)),
        "notices": str(macros.notices(view)),
        "composer": str(
            macros.composer(
                view,
                await approvals.open_requests(request, session),
                await transcript.answering(request, session),
            )
        ),
        "state_actions": str(macros.state_actions(view)),
        "tag": session.tag or "",
        "status": session.status,
        "queued": await transcript.queued_messages(request, view),
    }


def _shared_head(view: SessionView) -> dict[str, Any]:
    meta = templates.macros("session_bits.html").shared_meta(view.session)
    return {"title": format.title(view.session), "meta": str(meta)}


async def _rows(request: WebRequest, filters: Filters, since: int) -> AsyncIterator[bytes]:
    """Yield the list's rows that changed since a time, then those that change."""
    changes = request.hub.history.changes(request.principal)
    next_change = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)  # subscribes to changes before the list is read, so none is missed
    try:
        if since:
            for session in await listing.read_first_sessions(request, filters):
                if session.updated_at >= since:
                    yield await _row(request, session, filters)
        while True:
            change = await next_change
            next_change = asyncio.ensure_future(anext(changes))
            if change.gone:
                yield encode_frame("row", {"session": change.session, "html": None})
                continue
            try:
                session = await request.hub.sessions.get(request.principal, change.session)
            except NotFound:
                continue
            yield await _row(request, session, filters)
    finally:
        next_change.cancel()
        await asyncio.gather(next_change, return_exceptions=True)


async def _row(request: WebRequest, session: Session, filters: Filters) -> bytes:
    group, label = rows.group_of(session, filters, clock.now(), request.utc_offset)
    html = await listing.render_matching_row(request, session, filters)
    data = {
        "session": session.id,
        "html": html,
        "group": group,
        "label": label,
        "title": format.title(session),
        "waiting": approvals.is_waiting(session),
    }
    return encode_frame("row", data)
