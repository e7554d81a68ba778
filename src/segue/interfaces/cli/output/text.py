"""Format sessions and events for people."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from textwrap import indent
from typing import TYPE_CHECKING, Any

import click

from segue.interfaces.cli.durations import age
from segue.model import clock
from segue.model.ansi import strip_colors
from segue.model.content import Content, Text, describe_block, plain_text
from segue.model.event import (
    AgentMessage,
    AgentThought,
    Body,
    Compacted,
    Event,
    Failed,
    Interrupted,
    PermissionAsked,
    PlanChanged,
    StatusChanged,
    ToolCall,
    ToolCallChanged,
    ToolResult,
    UserMessage,
)
from segue.model.session import Session, Thread
from segue.model.tools.titles import call_title, request_title
from segue.render.format import session_cost
from segue.render.message_parts import split_message

if TYPE_CHECKING:
    from segue.hub import SearchMatch
    from segue.hub.sessions.resolve import AmbiguousName

USER_PROMPT = click.style("> ", fg="green", bold=True)  # before a user's message
MAX_TITLE_CHARS = 80  # in lists that are not cut to the width of a terminal
_CHECKBOXES = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}


def show_sessions(sessions: Sequence[Session]) -> None:
    """Print one line per session."""
    now = clock.now()
    for session in sessions:
        title = short_title(session)
        labels = f" #{one_line(session.tag)}" if session.tag else ""
        if session.status != "idle":
            labels += f" [{session.status}]"
        elif session.pending:
            labels += " [waiting for an answer]"
        elif session.stop_reason == "error":
            labels += " [failed]"
        if session.state != "active":
            labels += f" [{session.state}]"
        cost = session_cost(session)
        location = f"{session.source}  {one_line(tilde(session.cwd))}{f'  {cost}' if cost else ''}"
        click.echo(
            f"{click.style(session.id, dim=True)}  {age(session.active_at, now):>4}"
            f"  {session.messages:>4} msg  {title}{click.style(labels, fg='cyan')}"
            f"  {click.style(location, dim=True)}"
        )


def match_lines(error: AmbiguousName) -> list[str]:
    """Return the sessions that a name matches, and how many more there are."""
    more = [f"and {error.omitted} more"] if error.omitted else []
    return [*map(_match_line, error.matches), *more]


def _match_line(session: Session) -> str:
    """Return what distinguishes a session from others that a name matches."""
    last_active = age(session.active_at, clock.now())
    directory = one_line(tilde(session.cwd))
    return f"{session.id}  {last_active:>4}  {session.source}  {short_title(session)}  {directory}"


def show_matches(matches: Iterable[SearchMatch]) -> None:
    """Print each session with its snippet, the matching words in bold."""
    for match in matches:
        show_sessions([match.session])
        if match.snippet:  # else the words are in the title or the directory
            click.echo(f"      {highlight(safe(match.snippet), match.marks, bold=True)}")
        for session in match.copies:
            click.echo(click.style(f"      also in fork {session.id}  {session.source}", dim=True))


def highlight(text: str, ranges: Iterable[range], **style: Any) -> str:
    """Return the text with the given ranges styled; ranges past its end are cut off."""
    styled, end = "", 0
    for marked in ranges:
        start, stop = min(marked.start, len(text)), min(marked.stop, len(text))
        styled += text[end:start] + click.style(text[start:stop], **style)
        end = stop
    return styled + text[end:]


class OpenCalls:
    """The tool calls of a conversation that have not ended."""

    def __init__(self) -> None:
        self._calls: dict[str | None, ToolCall] = {}

    def find(self, event: Event) -> ToolCall | None:
        """Return the call that the next event is about, if it is a permission request."""
        match event.body:
            case ToolCall() as body:
                self._calls[body.call_id] = body
            case ToolCallChanged(call_id=call_id) as body if call_id in self._calls:
                from segue.model.tools.changes import apply_change  # lists do not need it

                self._calls[call_id] = apply_change(self._calls[call_id], body)
            case ToolResult() as body:
                self._calls.pop(body.call_id, None)
            case PermissionAsked() as body:
                return self._calls.get(body.call_id)
        return None


class ConversationFormatter:
    """Formats the events of one conversation in order.

    With `columns`, text is wrapped at words, and messages of agents are rendered as Markdown.
    """

    def __init__(self, columns: int | None = None) -> None:
        self._columns = columns
        self._is_first = True
        self._open_calls = OpenCalls()
        self._last_call: ToolCall | None = None

    def text(self, event: Event) -> str | None:
        """Return the next event as text; None if it is not shown or repeats the last call."""
        call, body = self._open_calls.find(event), event.body
        text = event_text(event, call, columns=self._columns)
        if call is not None and call is self._last_call and _repeats(body, call):
            return None
        if isinstance(body, ToolCall):
            self._last_call = body
        if text is None:
            return None
        separator = "\n" if text.startswith(USER_PROMPT) and not self._is_first else ""
        self._is_first = False
        return separator + text


def _repeats(body: Body, call: ToolCall) -> bool:
    """Return whether a permission request has the title of its call."""
    return isinstance(body, PermissionAsked) and request_title(body, call) == call_title(call)


def event_text(
    event: Event, call: ToolCall | None = None, *, columns: int | None = None
) -> str | None:
    """Return an event as text; None if it is not a part of the conversation.

    `call` is the tool call that a permission request is about. With `columns`, text is wrapped at
    words, and messages of agents are rendered as Markdown.
    """
    match event.body:
        case UserMessage() as body:
            text = _user_text(body)
            return text if text is None or columns is None else _wrap(text, columns)
        case AgentMessage() as body:
            suffix = click.style("  (cut off)", fg="yellow") if body.partial else ""
            return _agent_text(body.content, columns) + suffix
        case AgentThought() as body:
            return _agent_text(body.content, columns, dim=True)
        case ToolCall() as body:
            return click.style(f"* {_call_text(body)}", fg="blue")
        case ToolResult() as body:
            output = printable(body.content) or one_line(str(body.output or ""))
            text = _hanging_indent(f"  {body.status}: ", output)
            text = text if columns is None else _wrap(text, columns)
            return click.style(text, dim=body.status == "completed")
        case PlanChanged() as body:
            return "\n".join(
                f"  {_CHECKBOXES[entry.status]} {one_line(entry.content)}" for entry in body.entries
            )
        case PermissionAsked() as body:
            return request_text(body, call)
        case Compacted():
            return click.style("-- compacted --", dim=True)
        case Interrupted() as body:
            return click.style(f"-- {one_line(body.reason)} --", fg="yellow")
        case StatusChanged(stop_reason="budget_reached", message=message):
            return click.style(f"-- {one_line(message or 'budget reached')} --", fg="yellow")
        case Failed() as body:
            return click.style(f"! {one_line(body.message)}", fg="red")
    return None


def _call_text(call: ToolCall) -> str:
    """Return the name of a tool and what it does."""
    name = call.name if call.server is None else f"{call.server}.{call.name}"
    title = one_line(call_title(call))
    words = title.casefold()
    if words == name.casefold() or words.startswith(f"{name.casefold()} "):
        return title
    return f"{one_line(name)}: {title}"


def _wrap(text: str, columns: int) -> str:
    """Return text wrapped at words. Styles are only at its beginning, before a short prefix."""
    from .width import width, wrap  # lists do not need it

    lines: list[str] = []
    for line in text.split("\n"):
        plain = click.unstyle(line)
        if width(plain) <= columns:
            lines.append(line)
            continue
        margin = "  " if plain.startswith(("> ", "  ")) else ""
        first, *rest = wrap(plain, columns - len(margin))
        styled = line.startswith(USER_PROMPT) and plain.startswith(click.unstyle(USER_PROMPT))
        lines.append(USER_PROMPT + first[len(click.unstyle(USER_PROMPT)) :] if styled else first)
        lines += [margin + part.lstrip(" ") for part in rest]
    return "\n".join(lines)


def header_text(session: Session) -> str:
    """Return the lines above a conversation: title, directory, date and model."""
    from .output_fields import last_model

    created = clock.to_rfc3339(session.created_at)[:16].replace("T", " ")
    branch = f" ({one_line(session.git_branch)})" if session.git_branch else ""
    details = [one_line(tilde(session.cwd)) + branch, created, session.source]
    if model := last_model(session):
        details.append(one_line(model))
    title = click.style(title_text(session), bold=True)
    return f"{title}\n{click.style(' · '.join(details), dim=True)}\n\n"


def request_text(request: PermissionAsked, call: ToolCall | None) -> str:
    """Return a permission request as text; `call` is the tool call that it is about."""
    return click.style(f"? {one_line(request_title(request, call))}", fg="yellow")


def _agent_text(content: Content, columns: int | None, *, dim: bool = False) -> str:
    if columns is None:
        return click.style(printable(content), dim=dim or None)
    from .markdown import render_markdown

    return render_markdown(printable(content), columns, dim=dim)


def _user_text(message: UserMessage) -> str | None:
    """Return a user's message: what the person typed, and labelled, what a program inserted."""
    if not message.inserted:
        return _hanging_indent(USER_PROMPT, printable(message.content))
    lines = []
    for part in split_message(message):
        if not part.inside:
            continue
        match part.kind:
            case "typed":
                lines.append(_hanging_indent(USER_PROMPT, safe(part.inside)))
            case "command" | "shell":
                lines.append(USER_PROMPT + click.style(one_line(part.line), fg="cyan"))
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


def _hanging_indent(prefix: str, text: str) -> str:
    """Return the text after a prefix, its other lines indented to set them off from answers."""
    return prefix + indent(text, "  ").removeprefix("  ")


def thread_text(thread: Thread) -> str:
    """Return a line that names a subagent's thread and the option that shows it."""
    description = ": ".join(one_line(part) for part in (thread.kind, thread.title) if part)
    prefix = f"{description} " if description else ""
    return click.style(f"  ↳ {prefix}(--agent {one_line(thread.id)})", fg="cyan")


def fork_text(parent: str) -> str:
    """Return the line below the messages that a fork has from its parent."""
    return click.style(f"-- continued from {parent}; the messages above are shared --", dim=True)


def printable(content: Content) -> str:
    """Return content as text that cannot control the terminal."""
    parts = [plain_text(content)]
    parts += [describe_block(block) for block in content if getattr(block, "text", None) is None]
    return safe("\n".join(part for part in parts if part))


def tilde(path: str) -> str:
    """Return a path with the home directory shortened to `~`."""
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if path == home or path.startswith(home + os.sep) else path


def title_text(session: Session) -> str:
    """Return a session's title on one line, or that it has none."""
    return one_line(session.title or "(untitled)")


def short_title(session: Session) -> str:
    """Return a session's title on one line, cut after MAX_TITLE_CHARS."""
    title = title_text(session)
    return title if len(title) <= MAX_TITLE_CHARS else f"{title[: MAX_TITLE_CHARS - 1]}…"


def one_line(text: str) -> str:
    """Return the text on one line, safe to print."""
    return safe(" ".join(text.split()))


def safe(text: str) -> str:
    """Return the text with control characters replaced, which could move the cursor."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)
