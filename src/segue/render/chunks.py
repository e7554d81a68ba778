"""A history in parts, by seq, of PART events each where they are numbered one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from segue.hub import Hub
from segue.model.event import Event, ToolCall
from segue.model.principal import Principal
from segue.model.session import Session

from . import items, templates

PART = 10
# How far a result may stand from its call, in events of their kinds, to be shown with it.
REACH = 100
# More text than this is rendered beside the event loop, so that others go on.
HEAVY = 20_000


class Part(NamedTuple):
    """One part of a history, ready to be shown."""

    number: int
    items: list[items.Item]


class View(NamedTuple):
    """Whose session a template shows and what may be done there; `base` is its address.

    A `file` stands alone: nothing is left out of it, and it links to nothing of ours. `keeper` is
    the tool in whose files the session is: to go on here, it is copied into the store first.
    `thread` is the agent that a page is about, if it is not about the session.
    """

    session: Session
    base: str
    writable: bool
    csrf: str = ""
    file: bool = False
    keeper: str | None = None
    thread: str | None = None


def part_size(session: Session) -> int:
    """How many seqs a part has. In other tools' files they are places, and far apart.

    In powers of two, so that it seldom changes while a session grows under somebody's eyes.
    """
    if session.source == "segue":
        return PART
    apart = session.last_seq // max(1, session.messages)
    return PART << (apart // 2).bit_length()


def part_of(session: Session, seq: int) -> int:
    return max(0, seq - 1) // part_size(session)


async def read_parts(
    hub: Hub, principal: Principal, session: Session, first: int, last: int
) -> list[Part]:
    """The parts from one number to another, with the agents that began there."""
    size = part_size(session)
    low, high = first * size, (last + 1) * size
    events = await hub.events(
        principal, session.id, after=low, before=high + 1, limit=(last - first + 1) * size
    )
    outcomes = {
        str(items.key(event)): event for event in events if event.type in items.PAIRS.values()
    }
    begun: dict[str, Event] = {}
    for kind, ending in items.PAIRS.items():
        open_here = {items.key(event) for event in events if event.type == kind}
        if open_here - outcomes.keys() and high < session.last_seq:
            beyond = await hub.events(
                principal, session.id, after=high, types=(ending,), limit=REACH
            )
            for event in beyond:
                outcomes.setdefault(str(items.key(event)), event)
        ended = {items.key(event) for event in events if event.type == ending}
        if ended - open_here and low > 0:
            before = await hub.events(
                principal, session.id, before=low + 1, types=(kind,), limit=REACH, backward=True
            )
            begun |= {str(items.key(event)): event for event in before}
    numbered: dict[int, list[Event]] = {number: [] for number in range(first, last + 1)}
    for event in events:
        numbered[part_of(session, event.seq)].append(event)
    parts = []
    for number, inside in numbered.items():
        parts.append(Part(number, items.items(session, inside, outcomes, begun)))
        begun |= {str(items.key(event)): event for event in inside if event.type in items.PAIRS}
    if any(isinstance(event.body, ToolCall) for event in events):
        parts = await _with_asides(hub, principal, session, parts, events)
    return parts


async def _with_asides(
    hub: Hub,
    principal: Principal,
    session: Session,
    parts: Sequence[Part],
    events: Sequence[Event],
) -> list[Part]:
    """The parts, with the agents that calls in them started."""
    here = {event.body.thread for event in events}  # their lines may stand among the session's
    calls = {event.seq for event in events if isinstance(event.body, ToolCall)}
    asides: dict[int, tuple[items.Aside, ...]] = {}
    for thread in await hub.threads(principal, session.id):
        if thread.seq in calls and thread.id not in here:
            asides[thread.seq] = (*asides.get(thread.seq, ()), items.Aside(thread))

    def with_them(each: items.Item) -> items.Item:
        return each._replace(asides=asides.get(each.event.seq, ()))

    return [part._replace(items=[with_them(each) for each in part.items]) for part in parts]


async def filled(hub: Hub, principal: Principal, session: Session, part: Part) -> Part:
    """A part with all that the agents did who began there."""

    async def told(aside: items.Aside) -> items.Aside:
        did = [event async for event in hub.thread(principal, session.id, aside.thread.id)]
        ended = {str(items.key(each)): each for each in did if each.type == "tool_result"}
        return aside._replace(items=items.items(session, did, ended))

    return part._replace(
        items=[
            each._replace(asides=tuple([await told(aside) for aside in each.asides]))
            for each in part.items
        ]
    )


async def rendered(view: View, parts: Sequence[Part]) -> str:
    """Parts as HTML."""
    render = templates.macros("items.html").parts
    if view.file or _weight(parts) > HEAVY:
        return str(await asyncio.to_thread(render, view, parts))
    return str(render(view, parts))


def _weight(parts: Sequence[Part]) -> int:
    size = 0
    for part in parts:
        for item in part.items:
            for block in getattr(item.event.body, "content", ()):
                size += len(getattr(block, "text", "") or "")
    return size
