"""Sessions and events as a person reads them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from textwrap import indent

import click

from segue.hub import SearchMatch
from segue.interfaces.cli.durations import age
from segue.model import clock
from segue.model.ansi import strip_colors
from segue.model.content import Content, Text, describe_block, plain_text
from segue.model.event import (
    AgentMessage,
    AgentThought,
    Compacted,
    Event,
    Failed,
    Interrupted,
    PermissionAsked,
    PlanChanged,
    StatusChanged,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.session import Session, Thread
from segue.render.message_parts import split_message

USER = click.style("> ", fg="green", bold=True)  # before what a person said
_BOXES = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}


def show_sessions(sessions: Sequence[Session]) -> None:
    """One line a session."""
    now = clock.now()
    for session in sessions:
        title = one_line(session.title or "(untitled)")
        marks = f" #{one_line(session.tag)}" if session.tag else ""
        if session.status != "idle":
            marks += f" [{session.status}]"
        elif session.pending:
            marks += " [waiting for an answer]"
        if session.state != "active":
            marks += f" [{session.state}]"
        place = f"{session.source}  {one_line(tilde(session.cwd))}"
        click.echo(
            f"{click.style(session.id, dim=True)}  {age(session.active_at, now):>4}"
            f"  {session.messages:>4} msg  {title}{click.style(marks, fg='cyan')}"
            f"  {click.style(place, dim=True)}"
        )


def show_found(results: Iterable[SearchMatch]) -> None:
    """A session and its snippet, the words that matched in bold."""
    for found in results:
        show_sessions([found.session])
        snippet = safe(found.snippet)
        text, end = "", 0
        for mark in found.marks:
            text += snippet[end : mark.start]
            text += click.style(snippet[mark.start : mark.stop], bold=True)
            end = mark.stop
        click.echo(f"      {text}{snippet[end:]}")


def show_event(event: Event) -> None:
    """An event of the conversation; other kinds are not shown."""
    text = event_text(event)
    if text is not None:
        click.echo(text)


class Telling:
    """Events as a person reads them one after the other."""

    def __init__(self) -> None:
        self._said = False
        self._call: tuple[str | None, str] | None = None

    def text(self, event: Event) -> str | None:
        """One more; None for what is not shown, or was a moment ago."""
        text, body = event_text(event), event.body
        if isinstance(body, PermissionAsked) and (body.call_id, body.title) == self._call:
            return None  # the call that it is about says the same
        if isinstance(body, ToolCall):
            self._call = body.call_id, body.title or body.name
        if text is None:
            return None
        # An empty line before what a person says, but at the beginning.
        before = "\n" if self._said and text.startswith(USER) else ""
        self._said = True
        return before + text


def event_text(event: Event) -> str | None:
    """An event as a person reads it; None for those that are no part of the conversation."""
    match event.body:
        case UserMessage() as body:
            return _user_text(body)
        case AgentMessage() as body:
            cut = click.style("  (cut off)", fg="yellow") if body.partial else ""
            return printable(body.content) + cut
        case AgentThought() as body:
            return click.style(printable(body.content), dim=True)
        case ToolCall() as body:
            return click.style(f"* {one_line(body.title or body.name)}", fg="blue")
        case ToolResult() as body:
            text = printable(body.content) or one_line(str(body.output or ""))
            shown = _hanging(f"  {body.status}: ", text)
            return click.style(shown, dim=body.status == "completed")
        case PlanChanged() as body:
            return "\n".join(
                f"  {_BOXES[entry.status]} {one_line(entry.content)}" for entry in body.entries
            )
        case PermissionAsked() as body:
            return click.style(f"? {one_line(body.title)}", fg="yellow")
        case Compacted():
            return click.style("-- compacted --", dim=True)
        case Interrupted() as body:
            return click.style(f"-- {one_line(body.reason)} --", fg="yellow")
        case StatusChanged(stop_reason="budget_reached", message=why):
            return click.style(f"-- {one_line(why or 'budget reached')} --", fg="yellow")
        case Failed() as body:
            return click.style(f"! {one_line(body.message)}", fg="red")
    return None


def _user_text(message: UserMessage) -> str | None:
    """Return a user's message: what the person typed, and labelled, what a program inserted."""
    if not message.inserted:
        return _hanging(USER, printable(message.content))
    lines = []
    for part in split_message(message):
        if not part.inside:
            continue
        match part.kind:
            case "typed":
                lines.append(_hanging(USER, safe(part.inside)))
            case "command" | "shell":
                lines.append(USER + click.style(one_line(part.line), fg="cyan"))
            case "output":
                lines.append(click.style(indent(safe(strip_colors(part.inside)), "  "), dim=True))
            case "notice":
                lines.append(click.style(f"-- {one_line(part.line)} --", dim=True))
            case "note":
                note = f"-- note to the model: {one_line(part.line)} --"
                lines.append(click.style(note, dim=True))
    lines += [
        safe(describe_block(block)) for block in message.content if not isinstance(block, Text)
    ]
    return "\n".join(lines) or None


def _hanging(mark: str, text: str) -> str:
    """A text behind a mark, its other lines indented, so that they are not taken for an answer."""
    return mark + indent(text, "  ").removeprefix("  ")


def thread_text(thread: Thread) -> str:
    """That another agent did something, and how to see what."""
    what = ": ".join(one_line(part) for part in (thread.kind, thread.title) if part)
    told = f"{what} " if what else ""
    return click.style(f"  ↳ {told}(--agent {one_line(thread.id)})", fg="cyan")


def printable(content: Content) -> str:
    """Text that cannot move the cursor or ring the bell, differences as such."""
    parts = [plain_text(content)]
    parts += [describe_block(block) for block in content if getattr(block, "text", None) is None]
    return safe("\n".join(part for part in parts if part))


def tilde(path: str) -> str:
    """A path as people write it."""
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if path == home or path.startswith(home + os.sep) else path


def one_line(text: str) -> str:
    return safe(" ".join(text.split()))


def safe(text: str) -> str:
    """The text, without what would move the cursor or ring the bell."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)
