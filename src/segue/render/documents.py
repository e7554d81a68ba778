"""Export a session as a Markdown or HTML file, a few chunks at a time."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator

from segue.model.ansi import strip_colors
from segue.model.content import Block, Diff, FileChange, Other, plain_text
from segue.model.event import (
    AgentMessage,
    AgentThought,
    Compacted,
    Event,
    PermissionAnswered,
    PermissionAsked,
    PlanChanged,
    SystemMessage,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.principal import Principal
from segue.model.session import Session

from . import format, project_names, templates, threads
from .chunks import (
    CHUNK_EVENTS,
    Chunk,
    SessionView,
    chunk_number,
    load_threads,
    read_chunks,
    render_chunks,
)
from .items import (
    INSERTED_LABELS,
    Item,
    StartedThread,
    build_items,
)
from .pairing import read_pairs
from .reader import EventReader
from .text.diffs import file_diff
from .text.json_text import to_json
from .text.markdown import sendable
from .tools.bodies import BodyPart, tool_body, unified_text
from .tools.rows import tool_row

READ_EVENTS = 600  # at a time, so that a long session never fills the memory
_FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})(.*)$", re.MULTILINE)
_CHECKBOXES = {
    "completed": "[x]",
    "in_progress": "[ ] *(in progress)*",
    "cancelled": "[ ] *(cancelled)*",
}


async def html(reader: EventReader, principal: Principal, session: Session) -> AsyncIterator[str]:
    """Yield the session as one HTML file with its styles and without scripts."""
    macros = templates.macros("export.html")
    styles = templates.STYLES.read_text()
    yield str(macros.begin(session, styles, session.usage.tokens))
    view = SessionView(session, "", writable=False, standalone=True)
    async for chunk in _read_history(reader, principal, session):
        yield await render_chunks(view, [chunk])
    yield str(macros.end())


async def markdown(
    reader: EventReader, principal: Principal, session: Session
) -> AsyncIterator[str]:
    """Yield the session as a Markdown file."""
    title = sendable(" ".join(format.title(session).split()))
    yield f"# {title}\n\n"
    yield f"- Session {session.id}\n"
    if project_names.is_project(session.cwd):
        yield f"- Directory `{sendable(session.cwd)}`\n"
    if session.git_branch:
        yield f"- Branch `{sendable(session.git_branch)}`\n"
    yield f"- Started {format.stamp(session.created_at)}\n"
    tokens = session.usage.tokens
    messages = f"{session.messages:,} message{'s' * (session.messages != 1)}"
    yield f"- {messages}{f', {tokens:,} tokens' if tokens else ''}\n\n"
    async for chunk in _read_history(reader, principal, session):
        yield await threads.render_in_thread(_chunk_text, chunk)


async def _read_history(
    reader: EventReader, principal: Principal, session: Session
) -> AsyncIterator[Chunk]:
    """Yield the chunks of the whole history that have items, with their threads."""
    step = max(1, READ_EVENTS // CHUNK_EVENTS)
    for first in range(0, chunk_number(session, session.last_seq) + 1, step):
        for chunk in await read_chunks(reader, principal, session, first, first + step - 1):
            if chunk.items:
                yield await load_threads(reader, principal, session, chunk)


async def excerpt(
    reader: EventReader, principal: Principal, session: Session, first: int, before: int
) -> str:
    """Return the messages with `first <= seq < before` as Markdown, at most READ_EVENTS events."""
    all_events = await reader.events(
        principal, session.id, after=first - 1, before=before, limit=READ_EVENTS
    )
    events = [event for event in all_events if event.body.thread is None]
    pairs = await read_pairs(reader, principal, session, events, after=first - 1, before=before)
    items = build_items(session, events, pairs)
    return await threads.render_in_thread(_chunk_text, Chunk(0, items))


def _chunk_text(chunk: Chunk) -> str:
    return "".join(
        f"{sendable(paragraph)}\n\n" for item in chunk.items for paragraph in _item_paragraphs(item)
    )


def _item_paragraphs(item: Item) -> Iterator[str]:
    if item.kind == "fork":
        yield "---"
        yield f"*{item.text}.*"
        return
    match item.event.body:
        case UserMessage() | SystemMessage() as body if item.kind in INSERTED_LABELS:
            yield f"**{INSERTED_LABELS[item.kind]}** {item.text}".rstrip()
            yield _fence(plain_text(body.content), "")
        case UserMessage() | AgentMessage() as body:
            author = "You" if isinstance(body, UserMessage) else "Agent"
            yield f"## {author} · {format.stamp(item.event.at)}"
            yield from _block_paragraphs(body.content)
        case AgentThought() as body:
            yield _quote(plain_text(body.content))
        case SystemMessage() as body:
            yield "## System"
            yield from _block_paragraphs(body.content)
        case ToolCall() as body:
            result = item.outcome.body if item.outcome is not None else None
            assert result is None or isinstance(result, ToolResult)
            yield from _call_paragraphs(body, result, starts_threads=bool(item.threads))
            for started in item.threads:
                yield from map(_quote, _thread_paragraphs(started))
        case ToolResult() as body:
            yield "**Result**"
            yield from _call_paragraphs(ToolCall(call_id=body.call_id, name=""), body)
        case PermissionAsked() as body:
            yield f"*Asked: {item.text}* {_answer(body, item.outcome)}"
        case PlanChanged() as body:
            yield "\n".join(
                f"- {_CHECKBOXES.get(entry.status, '[ ]')} {entry.content}"
                for entry in body.entries
            )
        case Compacted() as body:
            yield "---"
            yield _close_fence(f"*Context compacted.* {plain_text(body.summary)}".strip())
        case _ if item.text:
            yield f"*{item.text}*"


def _call_paragraphs(
    call: ToolCall, result: ToolResult | None, *, starts_threads: bool = False
) -> Iterator[str]:
    """Yield the row of a call, and what the call shows when it is open."""
    row = tool_row(call, result, starts_threads=starts_threads)
    if call.name:
        counts = "" if row.added is None else f" +{row.added} −{row.removed}"
        yield f"**{row.name or call.name}** {row.subject}{counts}".strip()
    if result is not None and result.status != "completed":
        yield f"*({', '.join([result.status, *row.facts])})*"
    yield from _tool_paragraphs(tool_body(call, result, starts_threads=starts_threads))


def _answer(request: PermissionAsked, outcome: Event | None) -> str:
    answer = outcome.body if outcome else None
    if not isinstance(answer, PermissionAnswered) or answer.option is None:
        return "Not answered"
    names = (option.name for option in request.options if option.id == answer.option)
    return next(names, "Answered")


def _thread_paragraphs(started: StartedThread) -> Iterator[str]:
    """Yield what a thread did. Another agent prompted it, so no author is “You”."""
    yield f"**What the agent did** {started.thread.title or ''}".rstrip()
    for item in started.items or ():
        body = item.event.body
        if item.kind in ("user", "agent") and isinstance(body, UserMessage | AgentMessage):
            yield f"*{'asked' if item.kind == 'user' else 'said'}*"
            yield from _block_paragraphs(body.content)
        else:
            yield from _item_paragraphs(item)


def _block_paragraphs(content: tuple[Block, ...]) -> Iterator[str]:
    for block in content:
        if isinstance(block, Diff | FileChange):
            yield _diff(block)
        elif isinstance(block, Other):
            yield _fence(to_json(block.raw), "json")
        else:
            yield _close_fence(plain_text((block,))) or f"*({block.__struct_config__.tag})*"


def _tool_paragraphs(parts: list[BodyPart]) -> Iterator[str]:
    for part in parts:
        if part.kind == "raw":
            continue
        if part.diff is not None:
            yield _diff(part.diff)
        elif part.block is not None:
            yield from _block_paragraphs((part.block,))
        elif part.text:
            yield _fence(part.text, "json" if part.kind == "json" else part.language)


def _quote(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _diff(block: Diff | FileChange) -> str:
    diff = file_diff(block)
    return f"`{block.path}`\n\n" + _fence(unified_text(diff.lines), "diff")


def _fence(text: str, language: str) -> str:
    """Return a text, unchanged, in a code fence that is longer than any fence in it."""
    text = strip_colors(text)
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _close_fence(text: str) -> str:
    """Return a text with a closing code fence if it leaves one open."""
    open_fence = ""
    for indent, fence, info in _FENCE.findall(text):
        if not open_fence:
            open_fence = indent + fence if fence[0] == "~" or "`" not in info else ""
        elif fence.startswith(open_fence.strip()) and not info.strip():
            open_fence = ""
    return f"{text}\n{open_fence}" if open_fence else text
