"""A session as a file to read, Markdown or HTML, piece by piece."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator

from segue.hub import Hub
from segue.model.ansi import strip_colors
from segue.model.content import Block, Diff, plain
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

from . import diffs, format, items, project_names, templates
from .chunks import PART, Part, View, filled, part_of, read_parts, rendered
from .markdown import sendable

_FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})(.*)$", re.MULTILINE)
_BOXES = {"completed": "[x]", "in_progress": "[ ] *(begun)*", "cancelled": "[ ] *(dropped)*"}


async def _parts(hub: Hub, principal: Principal, session: Session) -> AsyncIterator[Part]:
    """The whole history, some parts at a time: a long one is never in memory at once."""
    step = max(1, 600 // PART)
    for first in range(0, part_of(session, session.last_seq) + 1, step):
        for part in await read_parts(hub, principal, session, first, first + step - 1):
            if part.items:
                yield part


async def html(hub: Hub, principal: Principal, session: Session) -> AsyncIterator[str]:
    """One file that needs nothing else: styles inside, no script."""
    styles = templates.STYLES.read_text()
    macros = templates.macros("export.html")
    yield str(macros.begin(session, styles, format.tokens(session.usage)))
    view = View(session, "", False, file=True)
    async for part in _parts(hub, principal, session):
        whole = await filled(hub, principal, session, part)
        yield await rendered(view, [whole])
    yield str(macros.end())


async def markdown(hub: Hub, principal: Principal, session: Session) -> AsyncIterator[str]:
    title = sendable(" ".join((session.title or "Untitled").split()))
    yield f"# {title}\n\n"
    yield f"- Session {session.id}\n"
    if project_names.is_project(session.cwd):
        yield f"- Directory `{sendable(session.cwd)}`\n"
    yield f"- Begun {format.stamp(session.created_at)}\n"
    tokens = format.tokens(session.usage)
    messages = f"{session.messages:,} message{'s' * (session.messages != 1)}"
    yield f"- {messages}{f', {tokens:,} tokens' if tokens else ''}\n\n"
    async for part in _parts(hub, principal, session):
        for item in (await filled(hub, principal, session, part)).items:
            for piece in _piece(item):
                yield sendable(piece) + "\n\n"


def _piece(item: items.Item) -> Iterator[str]:
    match item.event.body:
        case UserMessage() | SystemMessage() as body if item.kind in items.REMARKS:
            yield f"**{items.REMARKS[item.kind]}** {item.words}".rstrip()
            yield _fenced(plain(body.content), "")
        case UserMessage() | AgentMessage() as body:
            who = "You" if isinstance(body, UserMessage) else "Agent"
            yield f"## {who} · {format.stamp(item.event.at)}"
            yield from _blocks(body.content)
        case AgentThought() as body:
            yield _quoted(plain(body.content))
        case SystemMessage() as body:
            yield "## System"
            yield from _blocks(body.content)
        case ToolCall() as body:
            yield f"**{body.name}** {items.headline(body) if body.title else ''}".strip()
            yield from _pieces(items.given(body))
            if item.outcome is not None and isinstance(item.outcome.body, ToolResult):
                yield from _result(item.outcome.body)
            for aside in item.asides:
                yield from map(_quoted, _aside(aside))
        case ToolResult() as body:
            yield "**Result**"
            yield from _result(body)
        case PermissionAsked() as body:
            yield f"*Asked: {body.title}* {_answer(body, item.outcome)}"
        case PlanChanged() as body:
            yield "\n".join(
                f"- {_BOXES.get(entry.status, '[ ]')} {entry.content}" for entry in body.entries
            )
        case Compacted() as body:
            yield "---"
            yield _closed(f"*Context compacted.* {plain(body.summary)}".strip())
        case _ if item.words:
            yield f"*{item.words}*"


def _result(body: ToolResult) -> Iterator[str]:
    if body.status != "completed":
        yield f"*({body.status})*"
    yield from _pieces(items.gave(body))


def _answer(asked: PermissionAsked, outcome: Event | None) -> str:
    chosen = (
        outcome.body.option if outcome and isinstance(outcome.body, PermissionAnswered) else None
    )
    if chosen is None:
        return "Not answered"
    return next((option.name for option in asked.options if option.id == chosen), "Answered")


def _aside(aside: items.Aside) -> Iterator[str]:
    """What an agent did. It was asked by another one, so nobody is “you” there."""
    yield f"**What the agent did** {aside.thread.title or ''}".rstrip()
    for item in aside.items or ():
        if item.kind in ("user", "agent") and isinstance(
            item.event.body, UserMessage | AgentMessage
        ):
            yield f"*{'asked' if item.kind == 'user' else 'said'}*"
            yield from _blocks(item.event.body.content)
        else:
            yield from _piece(item)


def _blocks(content: tuple[Block, ...]) -> Iterator[str]:
    for block in content:
        if isinstance(block, Diff):
            yield _diff(block)
        else:
            yield _closed(plain((block,))) or f"*({block.__struct_config__.tag})*"


def _pieces(parts: list[items.Part]) -> Iterator[str]:
    for part in parts:
        if part.diff is not None:
            yield _diff(part.diff)
        elif part.block is not None:
            yield from _blocks((part.block,))
        elif part.code:
            yield _fenced(part.code, part.language)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _diff(block: Diff) -> str:
    made = diffs.change(block.old, block.new)
    lines = [f"{' ' if line.sign == '@' else line.sign}{line.text}" for line in made.lines]
    return f"`{block.path}`\n\n" + _fenced("\n".join(lines), "diff")


def _fenced(text: str, language: str) -> str:
    """A text as it stands, in a fence longer than any in it."""
    text = strip_colors(text)
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _closed(text: str) -> str:
    """The text, with an end for a fence that it leaves open: what follows is no part of it."""
    ending = ""
    for indent, fence, words in _FENCE.findall(text):
        if not ending:
            ending = indent + fence if fence[0] == "~" or "`" not in words else ""
        elif fence.startswith(ending.strip()) and not words.strip():
            ending = ""
    return f"{text}\n{ending}" if ending else text
