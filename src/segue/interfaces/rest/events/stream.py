"""A session's events as they happen: server-sent events, each with its name.

A stream begins with now, or after `Last-Event-ID`. But a client that sends first and listens then
would miss the answer of a quick agent: so a stream that opens while a turn is under way, or just
after one began whose end nobody has been told, gives that turn from its beginning. Who asked
through another door listened there: what comes of that is nobody's answer here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse

from segue.interfaces.rest import errors
from segue.interfaces.rest.handlers import events
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.session import status
from segue.model import clock, codec, ids
from segue.model.errors import InvalidInput, NotFound, SegueError
from segue.model.event import Delta, Event, InfoChanged, StatusChanged
from segue.model.session import Session

from .event_encoder import Shown, View

FILTERS = ("event_deltas[]",)
PING_SECONDS = 15.0
# How long after a turn began a stream still gives it, if it has ended meanwhile.
WINDOW = 5 * clock.SECOND

_PREVIEWS = frozenset({"agent.message", "agent.thinking"})
_PLACE = re.compile(r"([0-9]{1,15})\.([0-9]{1,6})", re.ASCII)
_PING = b'event: ping\ndata: {"type": "ping"}\n\n'


async def stream(request: RestRequest) -> StreamingResponse:
    return await respond(request, await request.session())


async def respond(request: RestRequest, session: Session) -> StreamingResponse:
    deltas = request.params.values("event_deltas")
    if len(deltas) > 100 or not _PREVIEWS.issuperset(deltas):
        raise InvalidInput(f"event_deltas: each must be one of {', '.join(sorted(_PREVIEWS))}")
    seq, place = await _beginning(request, session)
    if seq > session.last_seq:
        view = await events.view_from(request, session, session)
    else:
        view = await events.view_before(request, session, seq)
    frames = _frames(request, session, view, seq, place, frozenset(deltas))
    return StreamingResponse(
        frames,
        media_type="text/event-stream",
        headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
    )


async def _beginning(request: RestRequest, session: Session) -> tuple[int, int]:
    """The seq of the first event to send, and how many of the items that it shows as to skip."""
    last = request.http.headers.get("last-event-id")
    if last:
        return await _after(request, session, last)
    return (await _turn_to_tell(request, session)) or session.last_seq + 1, 0


async def _turn_to_tell(request: RestRequest, session: Session) -> int | None:
    """Where the turn begins that the client may be waiting for, if there is one."""
    if status(session) == "terminated":
        return None
    if session.turn is not None and session.status != "idle":
        return await _turn_start(request, session, session.turn)
    recent = await request.hub.events(
        request.principal, session.id, types=("status_changed",), limit=50, backward=True
    )
    ends = [event.seq for event in recent if _at_rest(event)]
    told = await request.app.stream_acks.acked_seq(request.principal, session.id)
    if not ends or ends[-1] <= told:
        return None
    if session.turn is not None:  # it waits for an answer, and nobody has been told
        return await _turn_start(request, session, session.turn)
    kept = await request.hub.keeper(request.principal, session.id)
    if kept is None and await request.hub.waiting(request.principal, session.id):
        return None  # the next turn is about to begin, and will be seen whole
    for event in reversed(recent):
        body = event.body
        if isinstance(body, StatusChanged) and body.status == "running" and body.turn is not None:
            fresh = event.at > clock.now() - WINDOW and event.seq >= told
            return await _turn_start(request, session, body.turn) if fresh else None
    return None


def _at_rest(event: Event) -> bool:
    return isinstance(event.body, StatusChanged) and event.body.status == "idle"


async def _turn_start(request: RestRequest, session: Session, turn: str) -> int:
    """The event that began a turn: the one before its prompt, which was stored with it."""
    try:
        seq = await request.hub.locate(request.principal, session.id, turn)
    except NotFound:
        return session.last_seq + 1
    return max(1, seq - 1)


async def _after(request: RestRequest, session: Session, last: str) -> tuple[int, int]:
    """Where to go on for a client that has had everything up to `last`."""
    match = _PLACE.fullmatch(last)
    if match and 1 <= int(match[1]) <= session.last_seq:
        return int(match[1]), int(match[2]) + 1
    if match and int(match[1]) and _taken_in(request, session):
        # A place in the files where it was: what is new since then are the turns it had here.
        turns = await request.hub.events(
            request.principal, session.id, types=("status_changed",), limit=1
        )
        return turns[0].seq if turns else session.last_seq + 1, 0
    id = ids.parse(last, "sevt")
    view = await events.view_before(request, session, 1)
    if id is not None:
        spelt = ids.format_id("sevt", id)
        async for event in request.hub.history(request.principal, session.id):
            for index, shown in enumerate(await view.show(event)):
                if shown["id"] == spelt:
                    return event.seq, index + 1
    raise InvalidInput(f"Last-Event-ID: {last} is no event of this session")


def _taken_in(request: RestRequest, session: Session) -> bool:
    """Whether the session is a copy in the store of one that another tool keeps."""
    names = {source.name for source in request.hub.sources}
    return session.source not in names and session.origin in names


async def _frames(
    request: RestRequest, session: Session, view: View, seq: int, skip: int, deltas: frozenset[str]
) -> AsyncIterator[bytes]:
    yield _PING  # so that the client's request is answered at once
    if status(session) == "terminated" and seq > session.last_seq:
        return
    follower = request.hub.follow(request.principal, session.id, seq - 1, deltas=bool(deltas))
    closing = asyncio.ensure_future(request.app.closing.wait())
    following: asyncio.Future[Any] = asyncio.ensure_future(anext(follower, None))
    request.app.metrics.streams += 1
    try:
        while True:
            await asyncio.wait(
                [following, closing], timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if closing.done():
                return
            if not following.done():
                yield _PING
                continue
            item = following.result()
            if item is None or _is_trashed(item):
                yield _frame(_deleted(session))
                return
            if isinstance(item, Delta):
                for shown in view.delta(item, deltas):
                    yield _frame(shown)
            else:
                for index, shown in enumerate(await view.show(item)):
                    if item.seq == seq and index < skip:
                        continue
                    # Before it is sent: a quick client's next stream may be another worker's.
                    if events.ends_turn(shown):
                        await request.app.stream_acks.record(
                            request.principal, session.id, item.seq
                        )
                    yield _frame(shown, f"{item.seq}.{index}")
                    if shown["type"] == "session.status_terminated":
                        return
            following = asyncio.ensure_future(anext(follower, None))
    except SegueError as error:
        yield _frame(errors.envelope(error, request.request_id))
    finally:
        request.app.metrics.streams -= 1
        closing.cancel()
        following.cancel()
        await asyncio.gather(following, closing, return_exceptions=True)
        await follower.aclose()


def _frame(shown: Shown, id: str | None = None) -> bytes:
    place = b"" if id is None else b"id: %b\n" % id.encode()
    name = str(shown["type"]).encode()
    return b"event: %b\n%bdata: %b\n\n" % (name, place, codec.encode(shown))


def _is_trashed(item: Event | Delta) -> bool:
    """Whether somebody deleted the session through a door that keeps such: here it is gone."""
    body = item.body if isinstance(item, Event) else None
    return isinstance(body, InfoChanged) and body.deleted is True


def _deleted(session: Session) -> Shown:
    return {
        "type": "session.deleted",
        "id": ids.format_id("sevt", ids.derived_id(session.id, "deleted")),
        "processed_at": clock.to_rfc3339(clock.now()),
    }
