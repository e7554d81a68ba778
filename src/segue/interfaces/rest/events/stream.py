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

from segue.http.keys import KeyAccess
from segue.http.sse import EventStreamResponse, encode_frame
from segue.interfaces.rest import errors
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas import events as schemas
from segue.interfaces.rest.schemas.session import status
from segue.model import clock, ids
from segue.model.errors import InvalidInput, NotFound, SegueError, Unauthorized
from segue.model.event import Delta, Event, InfoChanged
from segue.model.session import Session

from .event_encoder import KINDS_WITH_DERIVED_IDS, EventEncoder, derived_ids, encoder_from
from .event_page import ends_turn

MAX_DELTA_TYPES = 100
MAX_SEARCHED_EVENTS = 200

_DELTA_TYPES = frozenset({"agent.message", "agent.thinking"})
_FRAME_ID = re.compile(r"([0-9]{1,15})\.([0-9]{1,6})", re.ASCII)
_PING = b'event: ping\ndata: {"type": "ping"}\n\n'


class StreamStart(NamedTuple):
    """The first event of a stream. Its first `skipped` items have been sent before."""

    seq: int
    skipped: int = 0


async def stream_session(
    request: RestRequest, session: Session, thread: str | None = None
) -> StreamingResponse:
    """Return the event stream of a session's thread; None is the primary one."""
    delta_types = request.params.values("event_deltas")
    if len(delta_types) > MAX_DELTA_TYPES or not _DELTA_TYPES.issuperset(delta_types):
        raise InvalidInput(f"event_deltas: each must be one of {', '.join(sorted(_DELTA_TYPES))}")
    start = await _stream_start(request, session, thread)
    encoder = await encoder_from(request, session, start.seq, thread)
    frames = _frames(request, session, encoder, start, frozenset(delta_types))
    return EventStreamResponse(
        frames,
        on_end=await request.hub.quotas.open_stream(request.principal),
        closing=request.context.closing,
        greeting=_PING,
        heartbeat=_PING,
        access=_key_access(request) if request.principal.key_id else None,
    )


def _key_access(request: RestRequest) -> KeyAccess:
    def last_frame(error: Unauthorized) -> bytes:
        local = request.principal.local
        return encode_frame("error", errors.envelope(error, request.request_id, local=local))

    return KeyAccess(lambda: request.hub.keys.authenticate(request.key), last_frame)


async def _stream_start(request: RestRequest, session: Session, thread: str | None) -> StreamStart:
    last_event_id = request.http.headers.get("last-event-id")
    if last_event_id:
        return await _start_after(request, session, last_event_id, thread)
    seq = await request.context.stream_acks.replay_start(request.principal, session)
    return StreamStart(seq or session.last_seq + 1)


async def _start_after(
    request: RestRequest, session: Session, last_event_id: str, thread: str | None
) -> StreamStart:
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
    start = None
    if event_id is not None:
        start = await _start_after_event(request, session, event_id, thread)
    if start is None:
        raise InvalidInput(
            f"Last-Event-ID: {last_event_id} is not an event of this session, or it is too old;"
            " leave the header out to start with new events"
        )
    return start


async def _start_after_event(
    request: RestRequest, session: Session, event_id: str, thread: str | None
) -> StreamStart | None:
    """Return where to continue after the event that is shown with an id.

    The store finds a stored event by its id. It does not know the ids that are derived for tool
    calls and for the other items of an event, so those are searched among the latest events.
    """
    history = request.hub.history
    try:
        seq = await history.locate(request.principal, session.id, event_id)
    except NotFound:
        latest = await history.events(
            request.principal,
            session.id,
            types=KINDS_WITH_DERIVED_IDS,
            limit=MAX_SEARCHED_EVENTS,
            backward=True,
        )
        seq = next((event.seq for event in latest if event_id in derived_ids(event)), 0)
    stored = await history.events(request.principal, session.id, after=seq - 1, limit=1)
    if not seq or not stored:
        return None
    encoder = await encoder_from(request, session, seq, thread)
    item_ids = [item.id for item in await encoder.encode(stored[0])]
    shown_id = ids.format_id("sevt", event_id)
    return StreamStart(seq, item_ids.index(shown_id) + 1) if shown_id in item_ids else None


def _is_imported(request: RestRequest, session: Session) -> bool:
    """Return True if the session was copied into the store from a source."""
    names = {source.name for source in request.hub.sources}
    return session.owner not in names and session.source in names


async def _frames(
    request: RestRequest,
    session: Session,
    encoder: EventEncoder,
    start: StreamStart,
    delta_types: frozenset[str],
) -> AsyncGenerator[bytes]:
    if status(session) == "terminated" and start.seq > session.last_seq:
        return
    follower = request.hub.history.follow(
        request.principal, session.id, start.seq - 1, deltas=bool(delta_types), requests=True
    )
    request.context.metrics.open_streams += 1
    try:
        async for received in follower:
            if isinstance(received, Delta) and received.kind == "request":
                for encoded in encoder.encode_request(received):
                    yield _frame(encoded)
                continue
            if isinstance(received, Delta):
                for piece in encoder.encode_delta(received, delta_types):
                    yield _frame(piece)
                continue
            if _is_deletion(received):
                break
            for index, event in enumerate(await encoder.encode(received)):
                if received.seq == start.seq and index < start.skipped:
                    continue
                if isinstance(event, schemas.ModelRequestStart) and encoder.is_announced(event.id):
                    continue
                # Before it is sent: the client's next stream may be opened by another worker.
                if ends_turn(event):
                    await request.context.stream_acks.record(
                        request.principal, session.id, received.seq
                    )
                yield _frame(event, f"{received.seq}.{index}")
                if encoder.ends_stream(event):
                    return
        yield _frame(_deleted(session))
    except SegueError as error:
        yield encode_frame(
            "error", errors.envelope(error, request.request_id, local=request.principal.local)
        )
    finally:
        request.context.metrics.open_streams -= 1
        await follower.aclose()


def _frame(event: schemas.Streamed, frame_id: str | None = None) -> bytes:
    return encode_frame(schemas.type_of(event), event, frame_id)


def _is_deletion(event: Event) -> bool:
    """Return True if an event moves the session to the trash, which this API does not have."""
    return isinstance(event.body, InfoChanged) and event.body.deleted is True


def _deleted(session: Session) -> schemas.SessionDeletedEvent:
    return schemas.SessionDeletedEvent(
        id=ids.format_id("sevt", ids.derived_id(session.id, "deleted")),
        processed_at=clock.to_rfc3339(clock.now()),
    )
