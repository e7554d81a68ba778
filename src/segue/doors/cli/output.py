"""Sessions and events as a person reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from ...hub import Found
from ...model import clock
from ...model.content import Content, Diff, plain
from ...model.event import (
    AgentMessage,
    AgentThought,
    Compacted,
    Event,
    Failed,
    Interrupted,
    PermissionAsked,
    PlanChanged,
    ToolCall,
    ToolResult,
    UserMessage,
)
from ...model.session import Session

_AGES = ((60, "s"), (3600, "m"), (86_400, "h"), (86_400 * 365, "d"))
_BOXES = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}


def age(at: int, now: int) -> str:
    """How long ago, in the largest unit that fits: `5m`."""
    seconds = max(0, now - at) // clock.SECOND
    unit = 1
    for limit, letter in _AGES:
        if seconds < limit:
            return f"{seconds // unit}{letter}"
        unit = limit
    return f"{seconds // unit}y"


def show_sessions(sessions: Sequence[Session]) -> None:
    """One line a session."""
    now = clock.now()
    for session in sessions:
        title = one_line(session.title or "(untitled)")
        marks = "".join(f" #{one_line(session.tag)}" if session.tag else "")
        if session.status != "idle":
            marks += f" [{session.status}]"
        elif session.pending:
            marks += " [waiting for an answer]"
        click.echo(
            f"{click.style(session.id, dim=True)}  {age(session.active_at, now):>4}"
            f"  {session.messages:>4} msg  {title}{click.style(marks, fg='cyan')}"
        )


def show_found(results: Iterable[Found]) -> None:
    """A session and its snippet, the words that matched in bold."""
    for found in results:
        show_sessions([found.session])
        text, end = "", 0
        for mark in found.marks:
            text += found.snippet[end : mark.start]
            text += click.style(found.snippet[mark.start : mark.stop], bold=True)
            end = mark.stop
        click.echo(f"      {text}{found.snippet[end:]}")


def show_event(event: Event) -> None:
    """An event of the conversation; other kinds are not shown."""
    match event.body:
        case UserMessage() as body:
            click.echo(click.style("> ", fg="green", bold=True) + printable(body.content))
        case AgentMessage() as body:
            cut = click.style("  (cut off)", fg="yellow") if body.partial else ""
            click.echo(printable(body.content) + cut)
        case AgentThought() as body:
            click.echo(click.style(printable(body.content), dim=True))
        case ToolCall() as body:
            click.echo(click.style(f"* {one_line(body.title or body.name)}", fg="blue"))
        case ToolResult() as body:
            text = printable(body.content) or one_line(str(body.output or ""))
            click.echo(click.style(f"  {body.status}: {text}", dim=body.status == "completed"))
        case PlanChanged() as body:
            for entry in body.entries:
                click.echo(f"  {_BOXES[entry.status]} {one_line(entry.content)}")
        case PermissionAsked() as body:
            click.echo(click.style(f"? {one_line(body.title)}", fg="yellow"))
        case Compacted():
            click.echo(click.style("-- compacted --", dim=True))
        case Interrupted() as body:
            click.echo(click.style(f"-- {one_line(body.reason)} --", fg="yellow"))
        case Failed() as body:
            click.echo(click.style(f"! {one_line(body.message)}", fg="red"))


def printable(content: Content) -> str:
    """Text that cannot move the cursor or ring the bell, differences as such."""
    parts = [plain(content)]
    for block in content:
        if isinstance(block, Diff):
            parts.append(f"{'changed' if block.old is not None else 'new'}: {block.path}")
        elif not hasattr(block, "text"):
            parts.append(f"[{type(block).__name__.lower()}]")
    return safe("\n".join(part for part in parts if part))


def one_line(text: str) -> str:
    return safe(" ".join(text.split()))


def safe(text: str) -> str:
    """The text, without what would move the cursor or ring the bell."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)
