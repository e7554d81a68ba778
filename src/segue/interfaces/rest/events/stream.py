"""Stream a session's events as server-sent events.

A stream starts with the turn that its client waits for (see `stream_ack`), else with the next
event, or after `Last-Event-ID`. Turns that were prompted through another interface are not
replayed: their clients read the answer there.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import NamedTuple

from starlette.responses import StreamingResponse

from segue.http.sse import EventStreamResponse, encode_frame
from segue.interfaces.rest import errors
from segue.interfaces.rest.handlers import events
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.session import status
from segue.model import clock, ids
from segue.model.errors import InvalidInput, SegueError
from segue.model.event import Delta, Event, InfoChanged
from segue.model.session import Session

from .event_encoder import Shown, View

FILTERS = ("event_deltas[]",)
MAX_DELTA_TYPES = 100

_DELTA_TYPES = frozenset({"agent.message", "agent.thinking"})
_FRAME_ID = re.compile(r"([0-9]{1,15})\.([0-9]{1,6})", re.ASCII)
_PING = b'event: ping\ndata: {"type": "ping"}\n\n'


class StreamStart(NamedTuple):
    """The first event of a stream. Its first `skipped` items have been sent before."""

    seq: int
    skipped: int = 0


async def stream(request: RestRequest) -> StreamingResponse:
    """GET /v1/sessions/{session_id}/events/stream"""
    return await respond(request, await request.session())


async def respond(request: RestRequest, session: Session) -> StreamingResponse:
    """Return a session's event stream."""
    delta_types = request.params.values("event_deltas")
    if len(delta_types) > MAX_DELTA_TYPES or not _DELTA_TYPES.issuperset(delta_types):
        raise InvalidInput(f"event_deltas: each must be one of {', '.join(sorted(_DELTA_TYPES))}")
    start = await _stream_start(request, session)
    if start.seq > session.last_seq:
        view = await events.view_from(request, session, session)
    else:
        view = await events.view_before(request, session, start.seq)
    frames = _frames(request, session, view, start, frozenset(delta_types))
    return EventStreamResponse(
        frames, closing=request.context.closing, greeting=_PING, heartbeat=_PING
    )


async def _stream_start(request: RestRequest, session: Session) -> StreamStart:
    last_event_id = request.http.headers.get("last-event-id")
    if last_event_id:
        return await _start_after(request, session, last_event_id)
    seq = await request.context.stream_acks.replay_start(request.principal, session)
    return StreamStart(seq or session.last_seq + 1)


async def _start_after(request: RestRequest, session: Session, last_event_id: str) -> StreamStart:
    """Return where to continue for a client that has received events up to `last_event_id`.

    It is a frame's id (`seq.index`) or an event's id. Raises InvalidInput if it is neither.
    """
    match = _FRAME_ID.fullmatch(last_event_id)
    if match and 1 <= int(match[1]) <= session.last_seq:
        return StreamStart(int(match[1]), int(match[2]) + 1)
    if match and int(match[1]) and _is_imported(request, session):
        # A position in the source's transcript: all that is new since then are the turns here.
        turns = await request.hub.history.events(
            request.principal, session.id, types=("status_changed",), limit=1
        )
        return StreamStart(turns[0].seq if turns else session.last_seq + 1)
    event_id = ids.parse(last_event_id, "sevt")
    view = await events.view_before(request, session, 1)
    if event_id is not None:
        wanted = ids.format_id("sevt", event_id)
        async for event in request.hub.history.read(request.principal, session.id):
            for index, item in enumerate(await view.show(event)):
                if item["id"] == wanted:
                    return StreamStart(event.seq, index + 1)
    raise InvalidInput(
        f"Last-Event-ID: {last_event_id} is not an event of this session; leave the header out to"
        " start with new events"
    )


def _is_imported(request: RestRequest, session: Session) -> bool:
    """Return True if the session was copied into the store from a source."""
    names = {source.name for source in request.hub.sources}
    return session.source not in names and session.origin in names


async def _frames(
    request: RestRequest,
    session: Session,
    view: View,
    start: StreamStart,
    delta_types: frozenset[str],
) -> AsyncGenerator[bytes]:
    if status(session) == "terminated" and start.seq > session.last_seq:
        return
    follower = request.hub.history.follow(
        request.principal, session.id, start.seq - 1, deltas=bool(delta_types)
    )
    request.context.metrics.open_streams += 1
    try:
        async for received in follower:
            if isinstance(received, Delta):
                for item in view.delta(received, delta_types):
                    yield _encode(item)
                continue
            if _is_deletion(received):
                break
            for index, item in enumerate(await view.show(received)):
                if received.seq == start.seq and index < start.skipped:
                    continue
                # Before it is sent: the client's next stream may be opened by another worker.
                if events.ends_turn(item):
                    await request.context.stream_acks.record(
                        request.principal, session.id, received.seq
                    )
                yield _encode(item, f"{received.seq}.{index}")
                if item["type"] == "session.status_terminated":
                    return
        yield _encode(_deleted(session))
    except SegueError as error:
        yield _encode(errors.envelope(error, request.request_id))
    finally:
        request.context.metrics.open_streams -= 1
        await follower.aclose()


def _encode(item: Shown, frame_id: str | None = None) -> bytes:
    return encode_frame(str(item["type"]), item, frame_id)


def _is_deletion(event: Event) -> bool:
    """Return True if an event moves the session to the trash, which this API does not have."""
    return isinstance(event.body, InfoChanged) and event.body.deleted is True


def _deleted(session: Session) -> Shown:
    return {
        "type": "session.deleted",
        "id": ids.format_id("sevt", ids.derived_id(session.id, "deleted")),
        "processed_at": clock.to_rfc3339(clock.now()),
    }
