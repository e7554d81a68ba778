"""One stream a page: the session that is open, as it grows, and the rows of the list that change.

One and not two, because a browser opens only six connections to a server; and a page that nobody
looks at closes its stream. What was missed meanwhile comes after the seq that the page had last.
A session that was taken into the store has other seqs than where it was: the page is told to begin
anew. A stream lasts no longer than the login and the key that opened it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from starlette.responses import Response, StreamingResponse

from segue.model import clock, codec, ids
from segue.model.errors import NotFound, Unauthorized
from segue.model.event import Delta, Event
from segue.model.session import Session
from segue.render import format
from segue.render.chunks import SessionView
from segue.render.items import build_items
from segue.render.markdown import markdown
from segue.render.pairing import Pairs, PairTracker, find_outcomes

from . import rows, templates
from .filters import Filters
from .pages import listing, transcript
from .request import WebRequest, parse_number

log = logging.getLogger("segue.web")

ViewOf = Callable[[Session], Awaitable[SessionView]]
PING_SECONDS = 15.0
SHARED_SECONDS = 1.0  # between two looks whether a link still holds, each at one record
SOON = 10 * 60 * clock.SECOND  # before a login ends by itself, its page says so
# A message that is being written is rendered anew at most this often.
PAUSE_SECONDS = 0.06
_END = object()
_HEAD = frozenset(
    {"info_changed", "status_changed", "model_called", "permission_asked", "permission_answered"}
    | {"user_message", "agent_message", "config_changed"}
)


async def stream(request: WebRequest) -> Response:
    """What a page shows: the list, and the session that is open."""
    filters = await listing.filters_of(request)
    parts = [_rows(request, filters, request.number_param("as-of") or 0)]
    if id := ids.parse(request.param("session")):
        session = await request.hub.get(request.principal, id)
        parts.append(
            _session(request, session, _after(request), partial(transcript.view_of, request))
        )
    return _streaming(request, parts, partial(request.hub.visits.ends, request.token), PING_SECONDS)


def shared(request: WebRequest, view: SessionView, ends: Callable[[], Awaitable[int]]) -> Response:
    """One session, for whoever has its link."""

    async def as_shared(session: Session) -> SessionView:
        if session.state == "trashed":
            raise NotFound("its session was deleted")
        return view._replace(session=session)

    part = _session(request, view.session, _after(request), as_shared)
    return _streaming(request, [part], ends, SHARED_SECONDS)


def _after(request: WebRequest) -> int:
    """The seq that a page has."""
    last = request.http.headers.get("last-event-id")
    return (
        parse_number(last, "that is no event's number")
        if last
        else request.number_param("after") or 0
    )


def _streaming(
    request: WebRequest,
    parts: Sequence[AsyncIterator[bytes]],
    ends: Callable[[], Awaitable[int]],
    every: float,
) -> Response:
    return StreamingResponse(
        _frames(request, parts, ends, every),
        media_type="text/event-stream",
        headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
    )


async def _frames(
    request: WebRequest,
    parts: Sequence[AsyncIterator[bytes]],
    ends: Callable[[], Awaitable[int]],
    every: float,
) -> AsyncIterator[bytes]:
    """Frames of all parts as they come. `ends` says until when whoever asks may see them.

    It is asked again every so many seconds.
    """
    # Bounded, so that a slow browser holds back its own stream and not the server's memory.
    queue: asyncio.Queue[Any] = asyncio.Queue(16)
    pumps = [asyncio.create_task(_pump(part, queue)) for part in parts]
    closing = asyncio.create_task(request.app.closing.wait())
    getting: asyncio.Task[Any] = asyncio.create_task(queue.get())
    try:
        yield b"retry: 1000\nevent: hello\ndata: {}\n\n"
        until = checked = 0.0
        warned = False
        while True:
            if clock.now() >= until or time.monotonic() - checked >= every:
                try:
                    until = await ends()
                except (Unauthorized, NotFound) as error:
                    yield _frame("out", {"words": error.message})
                    return
                checked = time.monotonic()
                if not warned and 0 < (soon := until - clock.now()) <= SOON:
                    warned = True
                    yield _frame("soon", {"minutes": max(1, round(soon / (60 * clock.SECOND)))})
            left = min(every, (until - clock.now()) / clock.SECOND)
            await asyncio.wait(
                [getting, closing], timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            if closing.done():
                return
            if not getting.done():
                yield b": still here\n\n"
                continue
            frame = getting.result()
            if frame is _END:
                return
            yield frame
            getting = asyncio.create_task(queue.get())
    finally:
        for task in (*pumps, getting, closing):
            task.cancel()
        await asyncio.gather(*pumps, getting, closing, return_exceptions=True)


async def _pump(frames: AsyncIterator[bytes], queue: asyncio.Queue[Any]) -> None:
    try:
        async for frame in frames:
            await queue.put(frame)
    except Exception:
        log.exception("a stream broke off")
        await queue.put(_END)  # the browser comes back, and goes on after what it has


async def _session(
    request: WebRequest, session: Session, after: int, view_of: ViewOf
) -> AsyncIterator[bytes]:
    """What happens to the session that is open."""
    kept_by = request.param("kept-by", session.source)
    if session.source != kept_by:
        yield _frame("moved", {"session": session.id})
        return
    after = min(after, session.last_seq)
    agent = await transcript.agent_name(request, session)
    pairs = PairTracker(request.hub, request.principal, session.id)
    writing: dict[str, str] = {}
    async for thing in request.hub.follow(request.principal, session.id, after, deltas=True):
        if isinstance(thing, Delta):
            text = writing.get(thing.message, "") + thing.text
            writing[thing.message] = text
            html = str(markdown(text))
            yield _frame("writing", {"message": thing.message, "kind": thing.kind, "html": html})
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        writing.pop(thing.id, None)
        try:
            session = await request.hub.get(request.principal, session.id)
            view = await view_of(session)
        except NotFound:
            break
        if session.source != kept_by:
            yield _frame("moved", {"session": session.id})
            return
        yield await _item(view, thing, pairs)
        if thing.type in _HEAD:
            head = await _head(request, view, agent) if view.writable else _shared_head(view)
            yield _frame("head", head)
    yield _frame("gone", {"session": session.id})


async def _item(view: SessionView, event: Event, pairs: PairTracker) -> bytes:
    """Return the frame that adds an event to the page, or changes the item that it completes."""
    data: dict[str, Any] = {"seq": event.seq, "message": event.id, "html": ""}
    opening = await pairs.find_opening(event)
    if opening is None:
        items = build_items(view.session, [event], Pairs({}, {}))
    else:
        items = build_items(view.session, [opening], Pairs(find_outcomes([event]), {}))
        data["of"] = opening.seq
    for item in items:
        data["html"] = str(templates.macros("items.html").render_item(view, item))
    return _frame("item", data, event.seq)


async def _head(request: WebRequest, view: SessionView, agent: str) -> dict[str, Any]:
    bits = templates.macros("session_bits.html")
    session = view.session
    return {
        "title": session.title or "Untitled",
        "meta": str(bits.meta(view, agent, format.tokens(session.usage))),
        "notices": str(bits.notices(view)),
        "composer": str(bits.composer(view)),
        "shelf": str(bits.shelving(view)),
        "tag": session.tag or "",
        "status": session.status,
        "waiting": await transcript.waiting(request, view),
    }


def _shared_head(view: SessionView) -> dict[str, Any]:
    meta = templates.macros("session_bits.html").shared_meta(view.session)
    return {"title": view.session.title or "Untitled", "meta": str(meta)}


async def _rows(request: WebRequest, filters: Filters, since: int) -> AsyncIterator[bytes]:
    """Rows of the list that changed since a moment, and then those that do."""
    changes = request.hub.changes(request.principal)
    coming = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)  # from here on it hears of changes, so that none is missed
    try:
        if since:
            for session in await listing.first(request, filters):
                if session.updated_at >= since:
                    yield _row(request, session, filters)
        while True:
            change = await coming
            coming = asyncio.ensure_future(anext(changes))
            if change.gone:
                yield _frame("row", {"session": change.session, "html": None})
                continue
            try:
                session = await request.hub.get(request.principal, change.session)
            except NotFound:
                continue
            yield _row(request, session, filters)
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


def _row(request: WebRequest, session: Session, filters: Filters) -> bytes:
    group, label = rows.group_of(session, filters, clock.now(), request.utc_offset)
    html = listing.row_of(request.principal, session, filters)
    data = {"session": session.id, "html": html, "group": group, "label": label}
    return _frame("row", data)


def _frame(name: str, data: dict[str, Any], seq: int | None = None) -> bytes:
    place = b"" if seq is None else b"id: %d\n" % seq
    return b"event: %b\n%bdata: %b\n\n" % (name.encode(), place, codec.encode(data))
