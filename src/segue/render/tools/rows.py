"""Describe a tool call on one line: the action, its object and its outcome."""

from __future__ import annotations

import re
from typing import NamedTuple

from segue.model.content import Diff, FileChange, plain_text
from segue.model.event import ToolCall, ToolResult
from segue.model.tools.arguments import (
    changes_of,
    command_of,
    first_argument,
    first_text,
    input_of,
    line_range,
    path_of,
    pattern_of,
)
from segue.model.tools.titles import call_title
from segue.render.text.diffs import file_diff

MAX_SUBJECT_CHARACTERS = 200
# The word for some calls of one meaning, in the summary of several steps.
STEP_WORDS = {
    "shell": ("command", "commands"),
    "edit": ("edit", "edits"),
    "read": ("read", "reads"),
    "search": ("search", "searches"),
    "fetch": ("fetch", "fetches"),
    "plan": ("plan", "plans"),
    "agent": ("agent", "agents"),
    "other": ("other", "others"),
}
_BY_KIND = {
    "execute": "shell",
    "edit": "edit",
    "delete": "edit",
    "move": "edit",
    "read": "read",
    "search": "search",
    "fetch": "fetch",
}
_ICONS = {
    "shell": "execute",
    "edit": "edit",
    "read": "read",
    "search": "search",
    "fetch": "fetch",
    "plan": "plan",
    "agent": "think",
    "other": "other",
}
_AGENT_TOOLS = frozenset(("task", "agent", "subagent", "spawn_agent", "delegate"))
_AGENT_KINDS = ("subagent_type", "agent_type", "agent")
_NO_MATCH = re.compile(r"(no (files|matches|results)( were)? found\b|found no |found 0 )", re.I)
_FOUND = re.compile(r"found (\d{1,9}) ", re.I)


class ToolRow(NamedTuple):
    """One line about a tool call.

    `subject` is what the call is about: a command, a path, a pattern. `facts` are short texts
    about its end; `added` and `removed` count lines of an edit.
    """

    meaning: str
    icon: str
    name: str
    subject: str
    facts: tuple[str, ...] = ()
    added: int | None = None
    removed: int = 0


def meaning_of(call: ToolCall, *, starts_threads: bool = False) -> str:
    """Return what a call does: one of STEP_WORDS."""
    if starts_threads or call.name.lower() in _AGENT_TOOLS:
        return "agent"
    if plan_entries(call):
        return "plan"
    if any(isinstance(block, Diff | FileChange) for block in call.content):
        return "edit"
    if call.server is None and (meaning := _BY_KIND.get(call.kind)):
        return meaning if meaning != "shell" or command_of(call) else "other"
    return "other"


def tool_row(call: ToolCall, result: ToolResult | None, *, starts_threads: bool = False) -> ToolRow:
    """Return the line about a call and its result."""
    meaning = meaning_of(call, starts_threads=starts_threads)
    icon = call.kind if meaning == "edit" and call.kind in ("delete", "move") else _ICONS[meaning]
    row = ToolRow(meaning, icon, call.name, "")
    match meaning:
        case "shell":
            row = row._replace(name="", subject=command_of(call), facts=_exit(result))
        case "edit":
            row = _edit_row(row, call, result)
        case "read":
            row = row._replace(subject=path_of(call) + _lines(call))
        case "search":
            row = row._replace(subject=pattern_of(call), facts=_matches(result))
        case "plan":
            row = row._replace(name="Plan", subject=_current_step(call))
        case "agent":
            kind = first_text(input_of(call), _AGENT_KINDS)
            facts = (kind,) if kind else ()
            row = row._replace(subject=_described(call), facts=facts)
        case "fetch":
            row = row._replace(subject=first_text(input_of(call), ("url", "query", "prompt")))
    server, tool = _server_and_tool(call)
    if server:
        row = row._replace(name=f"{server} › {tool}")
    subject = row.subject or _described(call)
    if subject == row.name or (meaning != "shell" and subject == call.name):
        subject = ""
    return row._replace(subject=_one_line(subject))


def _edit_row(row: ToolRow, call: ToolCall, result: ToolResult | None) -> ToolRow:
    changes = changes_of(call, result)
    paths = list(dict.fromkeys(change.path for change in changes if change.path))
    subject = ", ".join(paths[:3]) or path_of(call)
    if not changes:
        return row._replace(subject=subject)
    diffs = [file_diff(change) for change in changes]
    return row._replace(
        subject=subject + (f" and {len(paths) - 3} more" if len(paths) > 3 else ""),
        added=sum(diff.added for diff in diffs),
        removed=sum(diff.removed for diff in diffs),
    )


def _described(call: ToolCall) -> str:
    """Return the call's description, its own title, or its first argument."""
    if text := first_text(input_of(call), ("description", "title")):
        return text
    title = call_title(call)
    return title if title != call.name else first_argument(call)


def _server_and_tool(call: ToolCall) -> tuple[str, str]:
    """Return the MCP server of a call, or "", and the tool. Some sources have both in the name."""
    if call.server is not None:
        name = call.name.removeprefix(f"mcp__{call.server}__").removeprefix(f"{call.server}__")
        return call.server, name
    if call.name.startswith("mcp__"):
        server, _, tool = call.name.removeprefix("mcp__").partition("__")
        if server and tool:
            return server, tool
    return "", call.name


def _one_line(text: str) -> str:
    line = " ".join(text[: 2 * MAX_SUBJECT_CHARACTERS].split())
    return line if len(line) <= MAX_SUBJECT_CHARACTERS else line[:MAX_SUBJECT_CHARACTERS] + "…"


def _exit(result: ToolResult | None) -> tuple[str, ...]:
    if result is None or result.exit_code in (None, 0):
        return ()
    return (f"exit {result.exit_code}",)


def _lines(call: ToolCall) -> str:
    first, last = line_range(call)
    if last is not None:
        return f":{first or 1}–{last}"
    return f":{first}" if first else ""


def _matches(result: ToolResult | None) -> tuple[str, ...]:
    if result is None or result.status != "completed":
        return ()
    count = count_matches(plain_text(result.content))
    return (f"{count:,} match{'es' * (count != 1)}",)


def count_matches(output: str) -> int:
    """Return how many matches the output of a search lists, or says that it found."""
    text = output.strip()
    if not text or _NO_MATCH.match(text):
        return 0
    first, _, rest = text.partition("\n")
    if match := _FOUND.match(first):
        lines = sum(1 for line in rest.splitlines() if line.strip())
        return lines or int(match[1])
    return sum(1 for line in text.splitlines() if line.strip() and line != "--")


def plan_entries(call: ToolCall) -> list[tuple[str, str]]:
    """Return the steps that a call plans, each with its status; none for other calls."""
    arguments = input_of(call)
    for name in ("todos", "plan"):
        entries = arguments.get(name)
        if isinstance(entries, list):
            return [
                (first_text(entry, ("content", "step", "title")), str(entry.get("status", "")))
                for entry in entries
                if isinstance(entry, dict)
            ]
    return []


def _current_step(call: ToolCall) -> str:
    entries = plan_entries(call)
    step = next((text for text, status in entries if status == "in_progress"), None)
    if step is not None:
        return f"→ {step}"
    done = sum(status in ("completed", "done") for _, status in entries)
    return f"{done} of {len(entries)} done"
