"""A session's events as a list."""

from __future__ import annotations

from typing import Any

from segue.interfaces.rest import paging
from segue.interfaces.rest.events.event_encoder import STATE, TYPES, UNMADE, Shown, View, folded
from segue.interfaces.rest.params import CREATED_AT
from segue.interfaces.rest.request import RestRequest
from segue.model.errors import InvalidInput
from segue.model.event import Event
from segue.model.session import Session

FILTERS = (*CREATED_AT, "limit", "order", "page", "types[]")
_BATCH = 500
_KINDS = {
    kind: {ours for ours, all_ in TYPES.items() if kind in all_} for kind in sum(TYPES.values(), ())
}


async def list_(request: RestRequest) -> dict[str, Any]:
    session = await request.session()
    window = request.params.window()
    descending = request.params.choice("order", "asc", "desc") == "desc"
    return await page(
        request,
        session,
        types=_types(request),
        since=window.low,
        until=window.high,
        descending=descending,
    )


async def page(
    request: RestRequest,
    session: Session,
    *,
    types: frozenset[str] = frozenset(),
    since: int | None = None,
    until: int | None = None,
    descending: bool = False,
) -> dict[str, Any]:
    """A page of what a session's events show as.

    A cursor names the next item by its event and its place among what that event shows as.
    """
    limit = request.params.limit(1000, 1000)
    of = f"events:{session.id}"
    seq, place = None, 0
    if token := request.params.text("page"):
        seq, text = await paging.decode_page(request, token, of, descending=descending)
        place = int(text)
    kinds: set[str] = set().union(*(_KINDS.get(name, ()) for name in types))
    if types and not kinds:
        return {"data": [], "next_page": None}
    # What an event shows as may depend on earlier ones, wanted or not.
    read = tuple(sorted(kinds | set(STATE))) if not kinds.isdisjoint(STATE) else tuple(kinds)
    found: list[tuple[int, int, Shown]] = []
    edge = seq
    view: View | None = None
    while len(found) <= limit:
        batch = await request.hub.history.events(
            request.principal,
            session.id,
            after=0 if descending else max(0, (edge or 1) - 1),
            before=edge + 1 if descending and edge is not None else None,
            types=read,
            limit=_BATCH,
            backward=descending,
        )
        if batch and (view is None or descending):
            view = await view_before(request, session, batch[0].seq)
        items: list[tuple[int, int, Shown]] = []
        for event in batch:
            assert view is not None  # there is a batch
            inside = _inside(event, since, until)
            for index, shown in enumerate(await view.show(event)):
                if inside and (not types or shown["type"] in types):
                    items.append((event.seq, index, shown))
        if seq is not None:
            items = [item for item in items if _reached(item, seq, place, descending)]
        found += reversed(items) if descending else items
        if len(batch) < _BATCH or (descending and batch[0].seq <= 1):
            break
        edge = batch[0].seq - 1 if descending else batch[-1].seq + 1
    following = None
    if len(found) > limit:
        after = found[limit]
        following = await paging.encode_page(
            request, of, after[0], str(after[1]), descending=descending
        )
    page = found[:limit]
    if any(ends_turn(item) for _, _, item in page):  # the client receives the turn's end
        await request.context.stream_acks.record(
            request.principal, session.id, max(seq for seq, _, _ in page)
        )
    return {"data": [shown for _, _, shown in page], "next_page": following}


def _types(request: RestRequest) -> frozenset[str]:
    given = frozenset(request.params.values("types"))
    for name in given:
        if name not in _KINDS and name not in UNMADE:
            raise InvalidInput(f"types: {name!r} is no type of event")
    return given


def _inside(event: Event, since: int | None, until: int | None) -> bool:
    return (since is None or event.at >= since) and (until is None or event.at <= until)


def _reached(item: tuple[int, int, Shown], seq: int, place: int, descending: bool) -> bool:
    return (item[:2] <= (seq, place)) if descending else (item[:2] >= (seq, place))


def ends_turn(shown: Shown) -> bool:
    """Whether this is what clients wait for after they have asked something."""
    return str(shown["type"]) == "session.status_idle"


async def view_before(request: RestRequest, session: Session, seq: int) -> View:
    """A view that begins with an event: what was before it is folded first."""
    known: list[Event] = []
    while seq > 1:
        after = known[-1].seq if known else 0
        batch = await request.hub.history.events(
            request.principal, session.id, after=after, before=seq, types=STATE, limit=_BATCH
        )
        known += batch
        if len(batch) < _BATCH:
            break
    return await view_from(request, folded(session, known), session)


async def view_from(request: RestRequest, state: Session, session: Session) -> View:
    """A view that begins after `state`."""
    agent = await request.hub.agent_resolver.snapshot(
        request.workspace, session.agent, with_roster=False
    )
    return View(request.hub, request.principal, request.hub.agent_resolver, state, agent["name"])
