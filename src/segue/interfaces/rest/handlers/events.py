"""A session's events: list them, send new ones and stream them."""

from __future__ import annotations

from starlette.responses import StreamingResponse

from segue.interfaces.rest.events.event_page import EventFilter, read_page
from segue.interfaces.rest.events.event_requests import Send
from segue.interfaces.rest.events.event_types import KINDS_BY_TYPE, NEVER_SENT
from segue.interfaces.rest.events.send import send_events
from segue.interfaces.rest.events.stream import stream_session
from segue.interfaces.rest.params import CREATED_AT
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.events import EventPage, SentEvents
from segue.model.errors import InvalidInput

FILTERS = (*CREATED_AT, "limit", "order", "page", "types[]")
STREAM_FILTERS = ("event_deltas[]",)


async def list_(request: RestRequest) -> EventPage:
    session = await request.session()
    window = request.params.window()
    event_filter = EventFilter(_types(request), since=window.low, until=window.high)
    descending = request.params.choice("order", "asc", "desc") == "desc"
    return await read_page(request, session, event_filter, descending=descending)


async def send(request: RestRequest) -> SentEvents:
    sent = await request.body(Send)
    return await send_events(request, await request.session(), sent.events)


async def stream(request: RestRequest) -> StreamingResponse:
    return await stream_session(request, await request.session())


def _types(request: RestRequest) -> frozenset[str]:
    types = frozenset(request.params.values("types"))
    for name in types:
        if name not in KINDS_BY_TYPE and name not in NEVER_SENT:
            raise InvalidInput(f"types: {name!r} is not an event type")
    return types
