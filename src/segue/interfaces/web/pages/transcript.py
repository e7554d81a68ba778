"""A session's page, and the chunks of its history that the page loads while it is scrolled.

A page contains only the chunks near the visible part of the history, so its cost does not grow with
the length of the session.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.responses import HTMLResponse, Response

from segue.hub.tools import label
from segue.interfaces.web import rows, templates
from segue.interfaces.web.request import Handler, WebRequest
from segue.model import search_text
from segue.model.content import Audio, Block, Image, Resource, plain_text
from segue.model.errors import NotFound
from segue.model.event import (
    AgentMessage,
    Event,
    Foreign,
    ToolCall,
    ToolCallChanged,
    ToolResult,
    UserMessage,
)
from segue.model.session import Session
from segue.model.tools.changes import with_changes
from segue.render import documents, items, threads
from segue.render import turns as turns_of
from segue.render.chunks import (
    Chunk,
    SessionView,
    chunk_number,
    chunk_size,
    read_chunks,
    render_chunks,
)
from segue.render.pairing import MAX_PAIR_DISTANCE
from segue.render.relative_paths import with_relative_paths
from segue.render.templates import PICTURES
from segue.render.text.diffs import file_diff
from segue.render.text.markdown import sendable
from segue.render.tools.bodies import BodyPart, tool_body, unified_text

from . import approvals, listing

# A handler for a session as its user or the reader of a share link sees it.
ViewHandler = Callable[[WebRequest, SessionView], Awaitable[Response]]

CHUNKS_AROUND = 2  # on either side of a linked message
MAX_LAST_CHUNKS = 6  # at the end of a session, if no message is linked
SCREEN_LINES = 80  # a screen and a little more
MAX_CHUNKS = 12  # in one request
MAX_TURNS = 200  # in one request


async def page_values(
    request: WebRequest, view: SessionView, *, at_end: bool = True
) -> dict[str, Any]:
    """Return what the template of a session's page needs: the chunks around `at`.

    Without `at` they are the last chunks, or unless `at_end` the first.
    """
    session = view.session
    at = request.number_param("at")
    if at is None and not at_end:
        at = 1
    size = chunk_size(session)
    end = chunk_number(session, session.last_seq)
    target = end if at is None else min(chunk_number(session, at), end)
    first = max(0, target - (MAX_LAST_CHUNKS - 1 if at is None else CHUNKS_AROUND))
    last = min(end, target + CHUNKS_AROUND)
    chunks = await read_chunks(request.history, request.principal, session, first, last)
    if at is None:
        chunks = _last_screen(chunks)
        first = chunks[0].number
    return {
        "view": view,
        "session": session,
        "transcript": await render_chunks(view, chunks),
        "first_chunk": first,
        "last_chunk": last,
        "chunk_size": size,
        "earlier": max(0, first - 1 - CHUNKS_AROUND) * size + 1 if first else None,
        "later": min(end, last + 1 + CHUNKS_AROUND) * size + 1 if last < end else None,
        "at": at,
        "tokens": session.usage.tokens,
    }


def _last_screen(chunks: list[Chunk]) -> list[Chunk]:
    """Return the last chunks, as many as fill a screen."""
    lines = 0
    for index in range(len(chunks) - 1, -1, -1):
        lines += sum(_estimate_lines(item) for item in chunks[index].items)
        if lines >= SCREEN_LINES:
            return chunks[index:]
    return chunks


def _estimate_lines(item: items.Item) -> int:
    body = item.event.body
    if item.kind in ("user", "agent") and isinstance(body, UserMessage | AgentMessage):
        return 3 + len(plain_text(body.content)) // 100
    return 3


async def view_of(request: WebRequest, session: Session) -> SessionView:
    """Return a session as its user sees it."""
    owner = await request.hub.sessions.owner(request.principal, session.id)
    return SessionView(
        session,
        f"/s/{session.id}",
        writable=True,
        csrf=request.csrf,
        owner_label=request.hub.sync.label(owner) if owner else "",
        pinned=session.id in await request.hub.pins.ids(request.principal),
    )


async def requested_view(request: WebRequest) -> SessionView:
    """Return the view of the session whose id is in the path."""
    return await view_of(request, await request.session())


async def queued_messages(request: WebRequest, view: SessionView) -> Sequence[str]:
    """Return the ids of the messages that wait for the end of the current turn."""
    if view.owner_label:
        return ()
    return await request.hub.turns.queued(request.principal, view.session.id)


async def page(request: WebRequest) -> Response:
    """GET /s/{id}: a session, and the session list unless our script has it already."""
    session = await request.session()
    view = await view_of(request, session)
    values = await page_values(request, view) | {
        "agent": await agent_name(request, session),
        "command": await resume_command(request, view),
        "csrf": request.csrf,
        "requests": await approvals.open_requests(request, session),
        "answering": await answering(request, session),
        "hint": "" if view.owner_label else request.command_hint,
        "answer_expected": (session.turn or request.param("sent")) and not session.open_asks,
        "queued": await queued_messages(request, view) if session.turn else (),
    }
    template, values = await listing.with_sidebar(request, "session.html", values)
    return request.render_page(template, **values)


def for_user(handler: ViewHandler) -> Handler:
    """Return a handler that answers with the session of the signed-in user."""

    async def handle(request: WebRequest) -> Response:
        return await handler(request, await requested_view(request))

    return handle


async def chunks(request: WebRequest, view: SessionView) -> Response:
    """GET {session}/chunks: the chunks `first` to `last`, at most MAX_CHUNKS of them."""
    session = view.session
    first = request.number_param("first") or 0
    last = min(first + MAX_CHUNKS - 1, max(first, request.number_param("last") or 0))
    last = min(last, chunk_number(session, session.last_seq))
    if first > last:
        return HTMLResponse("")
    chunks = await read_chunks(request.history, request.principal, session, first, last)
    return HTMLResponse(await render_chunks(view, chunks))


async def turns(request: WebRequest, view: SessionView) -> Response:
    """GET {session}/turns: links to the prompts, or to the messages that match `q`."""
    if search_text.terms(query := request.param("q")):
        return await _render_matches(request, view, query)
    after = request.number_param("after") or 0
    events = await request.history.events(
        request.principal, view.session.id, after=after, types=("user_message",), limit=MAX_TURNS
    )
    lines = [
        (event.seq, event.at, items.outline_line(event.body))
        for event in events
        if isinstance(event.body, UserMessage) and items.starts_turn(event.body)
    ]
    next_after = events[-1].seq if len(events) == MAX_TURNS else None
    html = templates.macros("session_bits.html").turns(view, lines, next_after)
    return HTMLResponse(str(html))


async def _render_matches(request: WebRequest, view: SessionView, query: str) -> Response:
    """Return links to the messages that match a search, the newest first."""
    matches = await request.history.find(
        request.principal,
        view.session.id,
        query,
        before=request.number_param("before"),
        limit=MAX_TURNS,
    )
    messages = [
        (match.event, rows.row_from_match(match).snippet)
        for match in matches
        # Matches in the events of agents that the session started are listed separately.
        if match.event is not None and not isinstance(match.event.body, Foreign)
    ]
    last_event = matches[-1].event if len(matches) == MAX_TURNS else None
    next_before = None if last_event is None else last_event.seq
    html = templates.macros("session_bits.html").matches(view, query, messages, next_before)
    return HTMLResponse(str(html))


async def full_text(request: WebRequest, view: SessionView) -> Response:
    """GET {session}/whole/{seq}: the full text of an event that the page shows in part."""
    event = await _read_event(request, view.session)
    if isinstance(event.body, ToolCall):
        event = await _after_changes(request, view.session, event, event.body.call_id)
    return await threads.render_in_thread(event_text, view.session, event)


async def _after_changes(request: WebRequest, session: Session, call: Event, call_id: str) -> Event:
    """Return a tool call as it was after the last change before its result."""
    events = [call]
    seq = call.seq
    types = ("tool_call_changed", "tool_result")
    while batch := await request.history.events(
        request.principal, session.id, after=seq, types=types, limit=MAX_PAIR_DISTANCE
    ):
        seq = batch[-1].seq
        for event in batch:
            body = event.body
            if isinstance(body, ToolCallChanged) and body.call_id == call_id:
                events.append(event)
            elif isinstance(body, ToolResult) and body.call_id == call_id:
                return with_changes(events)[0]
    return with_changes(events)[0]


def event_text(session: Session, event: Event) -> Response:
    """Return the full text of an event."""
    match with_relative_paths(event, session).body:
        case ToolCall() as body:
            texts = [_part_text(part) for part in tool_body(body, None)]
        case ToolResult() as body:
            unknown = ToolCall(call_id=body.call_id, name="")
            parts = tool_body(unknown, body)
            if any(part.kind == "raw" for part in parts):  # as the tool wrote it
                parts = [part for part in parts if part.kind != "json"]
            texts = [_part_text(part) for part in parts]
        case body:
            texts = [_plain_text(*getattr(body, "content", getattr(body, "summary", ())))]
    text = "\n\n".join(filter(None, texts))
    return Response(sendable(text), media_type="text/plain; charset=utf-8")


def _part_text(part: BodyPart) -> str:
    if part.diff is not None:
        return f"{part.diff.path}\n\n{unified_text(file_diff(part.diff).lines)}"
    return part.text or _plain_text(part.block)


async def markdown_text(request: WebRequest, view: SessionView) -> Response:
    """GET {session}/markdown/{seq}: a message as Markdown; with `turn`, all of its turn."""
    seq, session = request.path_number("seq"), view.session
    before = seq + 1
    if request.param("turn"):
        following = await request.history.events(
            request.principal, session.id, after=seq, types=("user_message",), limit=MAX_TURNS
        )
        prompts = (event.seq for event in following if turns_of.is_prompt(event))
        before = next(prompts, session.last_seq + 1)
    text = await documents.excerpt(
        request.history, request.principal, session, seq, min(before, session.last_seq + 1)
    )
    if not text:
        raise NotFound("This session has no such message.")
    return Response(text, media_type="text/markdown; charset=utf-8")


def _plain_text(*content: Block | None) -> str:
    return plain_text([block for block in content if block is not None])


async def blob(request: WebRequest, view: SessionView) -> Response:
    """GET {session}/blob/{seq}/{index}: a picture or a file in an event."""
    event = await _read_event(request, view.session)
    return event_blob(event, request.path_number("index"))


def event_blob(event: Event, index: int) -> Response:
    """Return the picture or file at an index of an event's content.

    Raises NotFound if there is none or if its data is damaged.
    """
    content = getattr(event.body, "content", ())
    block = content[index] if index < len(content) else None
    if not isinstance(block, Image | Audio | Resource) or block.data is None:
        raise NotFound("This message has no such picture.")
    try:
        data = base64.b64decode(block.data)
    except (ValueError, binascii.Error):
        raise NotFound("The data of this picture is damaged.") from None
    headers = {
        "content-security-policy": "default-src 'none'; sandbox",
        "cache-control": "private, max-age=31536000, immutable",
    }
    mime = block.mime or ""
    if mime not in PICTURES:
        mime = "application/octet-stream"
        headers["content-disposition"] = "attachment"
    return Response(data, media_type=mime, headers=headers)


async def resume_command(request: WebRequest, view: SessionView) -> str:
    """Return the command line that resumes a session: in its tool, or in segue."""
    import shlex

    session = view.session
    command = await request.hub.sync.resume_command(request.principal, session)
    if command is None:
        return request.command("resume", session.id)
    variables = [f"{name}={shlex.quote(value)}" for name, value in command.environment.items()]
    resume = " ".join([*variables, shlex.join(command.arguments)])
    return f"cd {shlex.quote(session.cwd)} && {resume}"


async def _read_event(request: WebRequest, session: Session) -> Event:
    """Return the event whose seq is in the path. Raises NotFound if there is none."""
    seq = request.path_number("seq")
    if seq > session.last_seq:
        raise NotFound("This session has no such message.")
    events = await request.history.events(
        request.principal, session.id, after=seq - 1, before=seq + 1, limit=1
    )
    if not events:
        raise NotFound("This session has no such message.")
    return events[0]


async def answering(request: WebRequest, session: Session) -> str:
    """Return who will answer the next message of a session; "" if no agent can."""
    return await request.hub.agents.describe(session, local=request.principal.local)


async def agent_name(request: WebRequest, session: Session) -> str:
    """Return the name of the session's agent; "" if it has none, or that of the session's tool."""
    if session.agent is None:
        return ""
    name = (await listing.agent_names(request, [session.agent.id])).get(session.agent.id, "")
    is_tool = session.source != "segue" and name in (session.source, label(session.source))
    return "" if is_tool else name
