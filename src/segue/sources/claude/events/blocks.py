"""Content blocks and tool calls of Claude's interface, as the model's own."""

from __future__ import annotations

import os
from typing import Any

from segue.model.content import Block, Content, Diff, Image, Other, Resource, Text
from segue.model.event import Location, PlanEntry, ToolCall, ToolKind

DIALECT = "claude"
_KINDS: dict[str, ToolKind] = {
    "Read": "read",
    "NotebookRead": "read",
    "LS": "read",
    "Write": "edit",
    "Edit": "edit",
    "MultiEdit": "edit",
    "NotebookEdit": "edit",
    "Bash": "execute",
    "BashOutput": "execute",
    "KillShell": "execute",
    "KillBash": "execute",
    "Glob": "search",
    "Grep": "search",
    "WebSearch": "fetch",
    "WebFetch": "fetch",
    "Task": "think",
    "Agent": "think",
    "TodoWrite": "think",
    "EnterPlanMode": "switch_mode",
    "ExitPlanMode": "switch_mode",
}
_PATHS = ("file_path", "notebook_path", "path")
# The argument that says best what a call does.
_TELLING = (*_PATHS, "command", "pattern", "description", "query", "url", "prompt", "skill")
UNKNOWN_MIME = "application/octet-stream"
_LONGEST_TITLE = 200
_STATES = ("pending", "in_progress", "completed", "cancelled")


def extra(**more: Any) -> dict[str, Any]:
    """What only this dialect says, as events and blocks carry it."""
    return {DIALECT: more} if more else {}


def beyond(block: dict[str, Any], *taken: str) -> dict[str, Any]:
    """The fields of a block that nothing of ours stands for."""
    return {name: value for name, value in block.items() if name not in taken}


def content(value: Any) -> Content:
    """The content of a message or a tool's result."""
    if isinstance(value, str):
        return (Text(text=value),)
    return tuple(map(block, value)) if isinstance(value, list) else ()


def block(value: Any) -> Block:
    """One block; what has no like here is kept whole."""
    if isinstance(value, str):
        return Text(text=value)
    if isinstance(value, dict):
        text, source = value.get("text"), value.get("source")
        match value.get("type"):
            case "text" if isinstance(text, str):
                return Text(text=text, extra=extra(**beyond(value, "type", "text")))
            case "image" if isinstance(source, dict):
                more = extra(**beyond(value, "type", "source"))
                if made := _image(source, more):
                    return made
            case "document" if isinstance(source, dict):
                if made := _document(value, source):
                    return made
    return Other(dialect=DIALECT, raw=value)


def _image(source: dict[str, Any], more: dict[str, Any]) -> Block | None:
    data, mime, url = source.get("data"), source.get("media_type"), source.get("url")
    if isinstance(data, str):
        return Image(mime=mime if isinstance(mime, str) else UNKNOWN_MIME, data=data, extra=more)
    return Image(uri=url, extra=more) if isinstance(url, str) else None


def _document(value: dict[str, Any], source: dict[str, Any]) -> Block | None:
    data, mime, title = source.get("data"), source.get("media_type"), value.get("title")
    if not isinstance(data, str):
        return None
    named = title if isinstance(title, str) and title else "document"
    return Resource(
        uri=named,
        text=data if source.get("type") == "text" else None,
        data=None if source.get("type") == "text" else data,
        mime=mime if isinstance(mime, str) else None,
        extra=extra(**beyond(value, "type", "source")),
    )


def tool_call(value: dict[str, Any]) -> ToolCall:
    """A block by which the model calls a tool."""
    name, given = _text(value.get("name")), value.get("input")
    arguments = given if isinstance(given, dict) else {}
    server = None
    if name.startswith("mcp__"):
        server, _, tool = name[len("mcp__") :].partition("__")
        name, server = (tool, server) if tool else (name, None)
    elif isinstance(value.get("server_name"), str):
        server = value["server_name"]
    path = next((one for key in _PATHS if (one := _text(arguments.get(key)))), "")
    return ToolCall(
        call_id=_text(value.get("id")),
        name=name,
        title=_title(name, arguments),
        kind=_KINDS.get(name, "other") if server is None else "other",
        input=given,
        content=_diffs(name, path, arguments),
        locations=(Location(path=path),) if os.path.isabs(path) else (),
        server=server,
        extra=extra(**beyond(value, "type", "id", "name", "input", "server_name")),
    )


def _title(name: str, arguments: dict[str, Any]) -> str | None:
    for key in _TELLING:
        if told := " ".join(_text(arguments.get(key)).split()):
            title = told if key == "command" else f"{name} {told}"
            return title if len(title) <= _LONGEST_TITLE else title[: _LONGEST_TITLE - 1] + "…"
    return None


def _diffs(name: str, path: str, arguments: dict[str, Any]) -> Content:
    if not path:
        return ()
    written = arguments.get("content")
    if name == "Write" and isinstance(written, str):
        return (Diff(path=path, new=written),)
    edits = arguments.get("edits") if name == "MultiEdit" else [arguments]
    found = []
    if name in ("Edit", "MultiEdit") and isinstance(edits, list):
        for edit in edits:
            old, new = (
                (edit.get("old_string"), edit.get("new_string"))
                if isinstance(edit, dict)
                else (None, None)
            )
            if isinstance(old, str) and isinstance(new, str):
                found.append(Diff(path=path, old=old, new=new))
    return tuple(found)


def plan(value: dict[str, Any]) -> tuple[PlanEntry, ...] | None:
    """The plan that a call writes down, if it does."""
    given = value.get("input")
    todos = given.get("todos") if isinstance(given, dict) else None
    if value.get("name") != "TodoWrite" or not isinstance(todos, list):
        return None
    entries = []
    for todo in todos:
        if isinstance(todo, dict) and (said := _text(todo.get("content"))):
            status, priority = todo.get("status"), todo.get("priority")
            entries.append(
                PlanEntry(
                    content=said,
                    status=status if status in _STATES else "pending",
                    priority=priority if priority in ("high", "low") else "medium",
                )
            )
    return tuple(entries)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
