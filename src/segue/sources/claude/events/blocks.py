"""Translate content blocks and tool calls of Claude's API to segue's."""

from __future__ import annotations

import os
from typing import Any

from segue.model.anthropic.content_blocks import DIALECT
from segue.model.content import Block, Content, Diff, Image, Other, Resource, Text
from segue.model.event import Location, PlanEntry, ToolCall, ToolKind

_TOOL_KINDS: dict[str, ToolKind] = {
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
UNKNOWN_MIME = "application/octet-stream"
_PATH_ARGUMENTS = ("file_path", "notebook_path", "path")
# The arguments that describe a call best, the best first.
_TITLE_ARGUMENTS = (
    *_PATH_ARGUMENTS,
    "command",
    "pattern",
    "description",
    "query",
    "url",
    "prompt",
    "skill",
)
_MAX_TITLE_LENGTH = 200
_PLAN_STATUSES = ("pending", "in_progress", "completed", "cancelled")


def extra(**fields: Any) -> dict[str, Any]:
    """Return the `extra` of an event or block with fields that only this dialect has."""
    return {DIALECT: fields} if fields else {}


def fields_except(block: dict[str, Any], *excluded: str) -> dict[str, Any]:
    """Return the fields of a block except those with the excluded names."""
    return {name: value for name, value in block.items() if name not in excluded}


def content(value: Any) -> Content:
    """Return the content of a message or a tool's result."""
    if isinstance(value, str):
        return (Text(text=value),)
    return tuple(map(block, value)) if isinstance(value, list) else ()


def block(value: Any) -> Block:
    """Return one block; a block of an unknown type is kept whole."""
    if isinstance(value, str):
        return Text(text=value)
    if isinstance(value, dict):
        text, source = value.get("text"), value.get("source")
        match value.get("type"):
            case "text" if isinstance(text, str):
                return Text(text=text, extra=extra(**fields_except(value, "type", "text")))
            case "image" if isinstance(source, dict):
                if image := _image(source, extra(**fields_except(value, "type", "source"))):
                    return image
            case "document" if isinstance(source, dict):
                if document := _document(value, source):
                    return document
    return Other(dialect=DIALECT, raw=value)


def _image(source: dict[str, Any], extra_fields: dict[str, Any]) -> Block | None:
    data, mime, url = source.get("data"), source.get("media_type"), source.get("url")
    if isinstance(data, str):
        return Image(
            mime=mime if isinstance(mime, str) else UNKNOWN_MIME, data=data, extra=extra_fields
        )
    return Image(uri=url, extra=extra_fields) if isinstance(url, str) else None


def _document(value: dict[str, Any], source: dict[str, Any]) -> Block | None:
    data, mime, title = source.get("data"), source.get("media_type"), value.get("title")
    if not isinstance(data, str):
        return None
    name = title if isinstance(title, str) and title else "document"
    return Resource(
        uri=name,
        text=data if source.get("type") == "text" else None,
        data=None if source.get("type") == "text" else data,
        mime=mime if isinstance(mime, str) else None,
        extra=extra(**fields_except(value, "type", "source")),
    )


def tool_call(value: dict[str, Any]) -> ToolCall:
    """Return the tool call of a block."""
    name, input = _text(value.get("name")), value.get("input")
    arguments = input if isinstance(input, dict) else {}
    server = None
    if name.startswith("mcp__"):
        server, _, tool = name[len("mcp__") :].partition("__")
        name, server = (tool, server) if tool else (name, None)
    elif isinstance(value.get("server_name"), str):
        server = value["server_name"]
    paths = (_text(arguments.get(name)) for name in _PATH_ARGUMENTS)
    path = next(filter(None, paths), "")
    return ToolCall(
        call_id=_text(value.get("id")),
        name=name,
        title=_title(name, arguments),
        kind=_TOOL_KINDS.get(name, "other") if server is None else "other",
        input=input,
        content=_diffs(name, path, arguments),
        locations=(Location(path=path),) if os.path.isabs(path) else (),
        server=server,
        extra=extra(**fields_except(value, "type", "id", "name", "input", "server_name")),
    )


def _title(name: str, arguments: dict[str, Any]) -> str | None:
    for key in _TITLE_ARGUMENTS:
        if argument := " ".join(_text(arguments.get(key)).split()):
            title = argument if key == "command" else f"{name} {argument}"
            return (
                title if len(title) <= _MAX_TITLE_LENGTH else title[: _MAX_TITLE_LENGTH - 1] + "…"
            )
    return None


def _diffs(name: str, path: str, arguments: dict[str, Any]) -> Content:
    if not path:
        return ()
    content = arguments.get("content")
    if name == "Write" and isinstance(content, str):
        return (Diff(path=path, new=content),)
    edits = arguments.get("edits") if name == "MultiEdit" else [arguments]
    diffs = []
    if name in ("Edit", "MultiEdit") and isinstance(edits, list):
        for edit in edits:
            old, new = (
                (edit.get("old_string"), edit.get("new_string"))
                if isinstance(edit, dict)
                else (None, None)
            )
            if isinstance(old, str) and isinstance(new, str):
                diffs.append(Diff(path=path, old=old, new=new))
    return tuple(diffs)


def plan(value: dict[str, Any]) -> tuple[PlanEntry, ...] | None:
    """Return the plan of a call that writes one, else None."""
    input = value.get("input")
    todos = input.get("todos") if isinstance(input, dict) else None
    if value.get("name") != "TodoWrite" or not isinstance(todos, list):
        return None
    entries = []
    for todo in todos:
        if isinstance(todo, dict) and (content := _text(todo.get("content"))):
            status, priority = todo.get("status"), todo.get("priority")
            entries.append(
                PlanEntry(
                    content=content,
                    status=status if status in _PLAN_STATUSES else "pending",
                    priority=priority if priority in ("high", "low") else "medium",
                )
            )
    return tuple(entries)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
