"""A session's page, and the parts of its history that the page asks for as one scrolls.

A history is cut into parts by seq, of PART events each where they are numbered one by one. A page
has the parts near what is looked at and nothing else, so that it costs the same however long the
history is.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from starlette.responses import HTMLResponse, Response

from ...hub import Hub
from ...model import text
from ...model.content import Audio, Block, Image, Resource, plain
from ...model.errors import NotFound
from ...model.event import Event, Foreign, ToolCall, ToolResult, UserMessage
from ...model.principal import Principal
from ...model.session import Session
from . import items, listing, rows, templates
from .call import Call
from .markdown import sendable

PART = 10
AROUND = 2  # parts on either side of a message that a link leads to
LAST = 6  # parts at the end that a page may begin with
SCREEN = 80  # lines that fill a screen, and something above it
MOST = 12  # parts that a page may ask for at once
# How far a result may stand from its call, in events of their kinds, to be shown with it.
REACH = 100
TURNS = 200
# Histories of more text than this are rendered beside the event loop, so that others go on.
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
    hub: Hub, principal: Principal, session: Session, first: int, last: int, whole: bool = False
) -> list[Part]:
    """The parts from one number to another; `whole` with all that agents did who began there."""
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
    parts = []
    for number in range(first, last + 1):
        inside = [event for event in events if part_of(session, event.seq) == number]
        parts.append(Part(number, items.items(inside, outcomes, begun)))
        begun |= {str(items.key(event)): event for event in inside if event.type in items.PAIRS}
    if any(isinstance(event.body, ToolCall) for event in events):
        parts = await _with_asides(hub, principal, session, parts, events, whole)
    return parts


async def _with_asides(
    hub: Hub,
    principal: Principal,
    session: Session,
    parts: Sequence[Part],
    events: Sequence[Event],
    whole: bool,
) -> list[Part]:
    """The parts, with the agents that calls in them started; `whole` with what these did."""
    here = {event.body.thread for event in events}  # their lines may stand among the session's
    calls = {event.seq for event in events if isinstance(event.body, ToolCall)}
    asides: dict[int, tuple[items.Aside, ...]] = {}
    for thread in await hub.threads(principal, session.id):
        if thread.seq in calls and thread.id not in here:
            aside = items.Aside(thread)
            if whole:
                did = [event async for event in hub.thread(principal, session.id, thread.id)]
                ended = {str(items.key(each)): each for each in did if each.type == "tool_result"}
                aside = aside._replace(items=items.items(did, ended))
            asides[thread.seq] = (*asides.get(thread.seq, ()), aside)

    def with_them(each: items.Item) -> items.Item:
        return each._replace(asides=asides.get(each.event.seq, ()))

    return [part._replace(items=[with_them(each) for each in part.items]) for part in parts]


async def shown(view: View, parts: Sequence[Part]) -> str:
    """Parts as HTML."""
    render = templates.macros("items.html").parts
    if _weight(parts) > HEAVY:
        return str(await asyncio.to_thread(render, view, parts))
    return str(render(view, parts))


async def main(call: Call, view: View) -> dict[str, Any]:
    """What the template of a session's page needs: the parts around `at`, or the last ones."""
    session = view.session
    at = call.number("at")
    size = part_size(session)
    last = part_of(session, session.last_seq)
    here = last if at is None else min(part_of(session, at), last)
    first = max(0, here - (LAST - 1 if at is None else AROUND))
    upto = min(last, here + AROUND)
    parts = await read_parts(call.hub, call.principal, session, first, upto)
    if at is None:
        parts = _filling(parts)
        first = parts[0].number
    return {
        "view": view,
        "session": session,
        "transcript": await shown(view, parts),
        "first": first,
        "upto": upto,
        "last": last,
        "PART": size,
        "earlier": max(0, first - 1 - AROUND) * size + 1 if first else None,
        "later": min(last, upto + 1 + AROUND) * size + 1 if upto < last else None,
        "at": at,
        "tokens": templates.tokens(session.usage),
    }


async def view_of(call: Call, session: Session) -> View:
    keeper = await call.hub.keeper(call.principal, session.id)
    return View(session, f"/s/{session.id}", True, call.csrf, keeper=keeper)


async def page(call: Call) -> Response:
    """A session, with the list beside it unless our script has that already."""
    session = await call.session()
    agent = await agent_name(call, session)
    view = await view_of(call, session)
    values = await main(call, view)
    values |= {"agent": agent, "command": command(call, view), "csrf": call.csrf}
    values["hint"] = "" if view.keeper else call.hint
    values["coming"] = (session.turn or call.param("sent")) and not session.open_asks
    if call.scripted:
        return call.page("session.html", **values)
    filters = await listing.filters_of(call)
    return call.page(
        "app.html", inner="session.html", **await listing.sidebar(call, filters), **values
    )


async def part(call: Call) -> Response:
    """Some parts, for a page that is being scrolled."""
    return await parts_of(call, await view_of(call, await call.session()))


async def parts_of(call: Call, view: View) -> Response:
    first = call.number("number") or 0
    upto = min(first + MOST - 1, max(first, call.number("upto") or 0))
    upto = min(upto, part_of(view.session, view.session.last_seq))
    if first > upto:
        return HTMLResponse("")
    parts = await read_parts(call.hub, call.principal, view.session, first, upto)
    return HTMLResponse(await shown(view, parts))


async def turns(call: Call) -> Response:
    """The prompts of a session, or the messages with some words, to jump to one."""
    return await turns_of(call, await view_of(call, await call.session()))


async def turns_of(call: Call, view: View) -> Response:
    if text.terms(words := call.param("q")):
        return await _found(call, view, words)
    after = call.number("after") or 0
    found = await call.hub.events(
        call.principal, view.session.id, after=after, types=("user_message",), limit=TURNS
    )
    lines = [
        (event.seq, event.at, items.first_line(event.body.content))
        for event in found
        if isinstance(event.body, UserMessage) and items.begins(event.body)
    ]
    more = found[-1].seq if len(found) == TURNS else None
    made = templates.macros("session_bits.html").turns(view, lines, more)
    return HTMLResponse(str(made))


async def _found(call: Call, view: View, words: str) -> Response:
    """The messages in which some words occur, the newest first."""
    found = await call.hub.find(
        call.principal, view.session.id, words, before=call.number("before"), limit=TURNS
    )
    hits = [
        (hit.event, rows.found(hit).snippet)
        for hit in found
        if hit.event is not None and not isinstance(hit.event.body, Foreign)  # its agents' lines
    ]
    more = found[-1].event.seq if len(found) == TURNS and found[-1].event else None
    made = templates.macros("session_bits.html").found(view, words, hits, more)
    return HTMLResponse(str(made))


async def whole(call: Call) -> Response:
    """All of an event's text, where a page has only the beginning."""
    return text_of(await _event(call, await call.session()))


def text_of(event: Event) -> Response:
    match event.body:
        case ToolCall() as body:
            texts = [part.code or _text(part.block) for part in items.given(body)]
        case ToolResult() as body:
            texts = [part.code or _text(part.block) for part in items.gave(body)]
        case body:
            texts = [_text(*getattr(body, "content", getattr(body, "summary", ())))]
    code = "\n\n".join(each for each in texts if each)
    return Response(sendable(code), media_type="text/plain; charset=utf-8")


def _text(*content: Block | None) -> str:
    return plain([block for block in content if block is not None])


async def blob(call: Call) -> Response:
    """A picture or a file in an event, by its place in there."""
    return blob_of(await _event(call, await call.session()), call.place("index"))


def blob_of(event: Event, index: int) -> Response:
    content = getattr(event.body, "content", ())
    block = content[index] if index < len(content) else None
    if not isinstance(block, Image | Audio | Resource) or block.data is None:
        raise NotFound("There is no such picture.")
    try:
        data = base64.b64decode(block.data)
    except (ValueError, binascii.Error):
        raise NotFound("That picture is damaged.") from None
    headers = {
        "content-security-policy": "default-src 'none'; sandbox",
        "cache-control": "private, max-age=31536000, immutable",
    }
    mime = block.mime or ""
    if mime not in templates.PICTURES:
        mime = "application/octet-stream"
        headers["content-disposition"] = "attachment"
    return Response(data, media_type=mime, headers=headers)


def command(call: Call, view: View) -> str:
    """What to type to go on with a session in the tool that keeps it."""
    import shlex

    session = view.session
    if view.keeper == "claude":
        home = os.environ.get("CLAUDE_CONFIG_DIR") if call.principal.local else None
        own = f"CLAUDE_CONFIG_DIR={shlex.quote(home)} " if home else ""
        resume = f"{own}claude --resume {session.native_id or session.id}"
        return f"cd {shlex.quote(session.cwd)} && {resume}"
    return call.command("resume", session.id)


async def _event(call: Call, session: Session) -> Event:
    seq = call.place("seq")
    if seq > session.last_seq:
        raise NotFound("There is no such message.")
    found = await call.hub.events(
        call.principal, session.id, after=seq - 1, before=seq + 1, limit=1
    )
    if not found:
        raise NotFound("There is no such message.")
    return found[0]


async def agent_name(call: Call, session: Session) -> str:
    """What the session's agent is called, if it has one."""
    if session.agent is None:
        return ""
    return (await listing.agent_names(call, [session.agent.id])).get(session.agent.id, "")


def _filling(parts: list[Part]) -> list[Part]:
    """The last parts, as many as fill a screen: what is above comes when it is scrolled to."""
    lines = 0
    for at in range(len(parts) - 1, -1, -1):
        for item in parts[at].items:
            said = item.kind in ("user", "agent")
            lines += 3 + (len(plain(item.event.body.content)) // 100 if said else 0)  # type: ignore[union-attr]  # both have content
        if lines >= SCREEN:
            return parts[at:]
    return parts


def _weight(parts: Sequence[Part]) -> int:
    size = 0
    for part in parts:
        for item in part.items:
            for block in getattr(item.event.body, "content", ()):
                size += len(getattr(block, "text", "") or "")
    return size
