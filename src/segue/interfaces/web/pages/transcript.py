"""A session's page, and the parts of its history that the page asks for as one scrolls.

A page has the parts of a history near what is looked at and nothing else, so that it costs the same
however long the history is.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from starlette.responses import HTMLResponse, Response

from segue.interfaces.web import rows, templates
from segue.interfaces.web.request import WebRequest
from segue.model import search_text
from segue.model.content import Audio, Block, Image, Resource, plain_text
from segue.model.errors import NotFound
from segue.model.event import Event, Foreign, ToolCall, ToolResult, UserMessage
from segue.model.session import Session
from segue.render import format, items
from segue.render.chunks import (
    Chunk,
    SessionView,
    chunk_number,
    chunk_size,
    read_chunks,
    render_chunks,
)
from segue.render.markdown import sendable
from segue.render.relative_paths import with_relative_paths
from segue.render.templates import PICTURES

from . import listing

AROUND = 2  # parts on either side of a message that a link leads to
LAST = 6  # parts at the end that a page may begin with
SCREEN = 80  # lines that fill a screen, and something above it
MOST = 12  # parts that a page may ask for at once
TURNS = 200


async def main(request: WebRequest, view: SessionView) -> dict[str, Any]:
    """What the template of a session's page needs: the parts around `at`, or the last ones."""
    session = view.session
    at = request.number_param("at")
    size = chunk_size(session)
    last = chunk_number(session, session.last_seq)
    here = last if at is None else min(chunk_number(session, at), last)
    first = max(0, here - (LAST - 1 if at is None else AROUND))
    upto = min(last, here + AROUND)
    parts = await read_chunks(request.hub.history, request.principal, session, first, upto)
    if at is None:
        parts = _filling(parts)
        first = parts[0].number
    return {
        "view": view,
        "session": session,
        "transcript": await render_chunks(view, parts),
        "first": first,
        "upto": upto,
        "last": last,
        "PART": size,
        "earlier": max(0, first - 1 - AROUND) * size + 1 if first else None,
        "later": min(last, upto + 1 + AROUND) * size + 1 if upto < last else None,
        "at": at,
        "tokens": format.tokens(session.usage),
    }


async def view_of(request: WebRequest, session: Session) -> SessionView:
    owner = await request.hub.sessions.owner(request.principal, session.id)
    return SessionView(
        session,
        f"/s/{session.id}",
        writable=True,
        csrf=request.csrf,
        owner_label=request.hub.sync.label(owner) if owner else "",
    )


async def waiting(request: WebRequest, view: SessionView) -> Sequence[str]:
    """The ids of messages that have not begun."""
    return (
        ()
        if view.owner_label
        else await request.hub.turns.queued(request.principal, view.session.id)
    )


async def page(request: WebRequest) -> Response:
    """A session, with the list beside it unless our script has that already."""
    session = await request.session()
    agent = await agent_name(request, session)
    view = await view_of(request, session)
    values = await main(request, view)
    values |= {"agent": agent, "command": resume_command(request, view), "csrf": request.csrf}
    values["hint"] = "" if view.owner_label else request.command_hint
    values["coming"] = (session.turn or request.param("sent")) and not session.open_asks
    values["waiting"] = await waiting(request, view) if session.turn else ()
    if request.from_script:
        return request.render_page("session.html", **values)
    filters = await listing.filters_of(request)
    return request.render_page(
        "app.html", inner="session.html", **await listing.sidebar(request, filters), **values
    )


async def part(request: WebRequest) -> Response:
    """Some parts, for a page that is being scrolled."""
    return await parts_of(request, await view_of(request, await request.session()))


async def parts_of(request: WebRequest, view: SessionView) -> Response:
    first = request.number_param("number") or 0
    upto = min(first + MOST - 1, max(first, request.number_param("upto") or 0))
    upto = min(upto, chunk_number(view.session, view.session.last_seq))
    if first > upto:
        return HTMLResponse("")
    parts = await read_chunks(request.hub.history, request.principal, view.session, first, upto)
    return HTMLResponse(await render_chunks(view, parts))


async def turns(request: WebRequest) -> Response:
    """The prompts of a session, or the messages with some words, to jump to one."""
    return await turns_of(request, await view_of(request, await request.session()))


async def turns_of(request: WebRequest, view: SessionView) -> Response:
    if search_text.terms(words := request.param("q")):
        return await _found(request, view, words)
    after = request.number_param("after") or 0
    found = await request.hub.history.events(
        request.principal, view.session.id, after=after, types=("user_message",), limit=TURNS
    )
    lines = [
        (event.seq, event.at, items.outline_line(event.body))
        for event in found
        if isinstance(event.body, UserMessage) and items.starts_turn(event.body)
    ]
    more = found[-1].seq if len(found) == TURNS else None
    made = templates.macros("session_bits.html").turns(view, lines, more)
    return HTMLResponse(str(made))


async def _found(request: WebRequest, view: SessionView, words: str) -> Response:
    """The messages in which some words occur, the newest first."""
    found = await request.hub.history.find(
        request.principal,
        view.session.id,
        words,
        before=request.number_param("before"),
        limit=TURNS,
    )
    hits = [
        (hit.event, rows.found(hit).snippet)
        for hit in found
        if hit.event is not None and not isinstance(hit.event.body, Foreign)  # its agents' lines
    ]
    more = found[-1].event.seq if len(found) == TURNS and found[-1].event else None
    made = templates.macros("session_bits.html").found(view, words, hits, more)
    return HTMLResponse(str(made))


async def whole(request: WebRequest) -> Response:
    """All of an event's text, where a page has only the beginning."""
    session = await request.session()
    return text_of(session, await _event(request, session))


def text_of(session: Session, event: Event) -> Response:
    match with_relative_paths(event, session).body:
        case ToolCall() as body:
            texts = [part.code or _text(part.block) for part in items.call_parts(body)]
        case ToolResult() as body:
            texts = [part.code or _text(part.block) for part in items.result_parts(body)]
        case body:
            texts = [_text(*getattr(body, "content", getattr(body, "summary", ())))]
    code = "\n\n".join(each for each in texts if each)
    return Response(sendable(code), media_type="text/plain; charset=utf-8")


def _text(*content: Block | None) -> str:
    return plain_text([block for block in content if block is not None])


async def blob(request: WebRequest) -> Response:
    """A picture or a file in an event, by its place in there."""
    return blob_of(await _event(request, await request.session()), request.path_number("index"))


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
    if mime not in PICTURES:
        mime = "application/octet-stream"
        headers["content-disposition"] = "attachment"
    return Response(data, media_type=mime, headers=headers)


def resume_command(request: WebRequest, view: SessionView) -> str:
    """Return the command line that resumes a session: in the tool that owns it, or in segue."""
    import shlex

    session = view.session
    command = None
    if view.owner_label:
        command = request.hub.sync.resume_command(request.principal, session)
    if command is None:
        return request.command("resume", session.id)
    variables = [f"{name}={shlex.quote(value)}" for name, value in command.environment.items()]
    resume = " ".join([*variables, shlex.join(command.arguments)])
    return f"cd {shlex.quote(session.cwd)} && {resume}"


async def _event(request: WebRequest, session: Session) -> Event:
    seq = request.path_number("seq")
    if seq > session.last_seq:
        raise NotFound("There is no such message.")
    found = await request.hub.history.events(
        request.principal, session.id, after=seq - 1, before=seq + 1, limit=1
    )
    if not found:
        raise NotFound("There is no such message.")
    return found[0]


async def agent_name(request: WebRequest, session: Session) -> str:
    """What the session's agent is called, if it has one."""
    if session.agent is None:
        return ""
    return (await listing.agent_names(request, [session.agent.id])).get(session.agent.id, "")


def _filling(parts: list[Chunk]) -> list[Chunk]:
    """The last parts, as many as fill a screen: what is above comes when it is scrolled to."""
    lines = 0
    for at in range(len(parts) - 1, -1, -1):
        for item in parts[at].items:
            said = item.kind in ("user", "agent")
            lines += 3 + (len(plain_text(item.event.body.content)) // 100 if said else 0)  # type: ignore[union-attr]  # both have content
        if lines >= SCREEN:
            return parts[at:]
    return parts
