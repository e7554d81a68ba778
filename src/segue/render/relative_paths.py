"""Shorten paths in a session's working directory, so that readers do not learn where it is."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from segue.model.content import Block, Diff, FileChange, Resource, ResourceLink
from segue.model.event import (
    AgentMessage,
    Event,
    PermissionAsked,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.session import Session
from segue.model.tools.titles import call_title

MAX_DEPTH = 100  # of a tool's input that a page shows
NESTED_TOO_DEEPLY = "(nested too deeply to show)"


def with_relative_paths(event: Event, session: Session) -> Event:
    """Return the event with its file paths relative to the session's working directory.

    Message texts, tool output and commands stay word for word.
    """
    prefix = _directory_prefix(session.cwd, session.directory)
    match event.body:
        case ToolCall() as body:
            title = call_title(body)
            body = replace(
                body,
                title=None if title == body.name else prefix.sub("", title),
                input=_shorten_input(body.input, prefix),
                content=_shorten_blocks(body.content, prefix),
                locations=tuple(
                    replace(location, path=_shorten(location.path, prefix))
                    for location in body.locations
                ),
            )
            return replace(event, body=body)
        case PermissionAsked() as body:
            own_title = body.title and prefix.sub("", body.title)
            return replace(event, body=replace(body, title=own_title))
        case UserMessage() | AgentMessage() | ToolResult() as body:
            content = _shorten_blocks(body.content, prefix)
            return replace(event, body=replace(body, content=content))
    return event


@lru_cache(maxsize=64)
def _directory_prefix(*directories: str) -> re.Pattern[str]:
    """Return a pattern for the beginning of paths and file URLs in one of some directories."""
    paths = {directory.rstrip("/\\") for directory in directories} - {""}
    if not paths:  # every absolute path is in the root directory
        return re.compile(r"(?!)")
    either = "|".join(re.escape(path) for path in sorted(paths))
    return re.compile(rf"(?<![\w.~/\\-])(?:file://)?(?:{either})[/\\]+(?=[^\s/\\])")


def _shorten(path: str, prefix: re.Pattern[str]) -> str:
    match = prefix.match(path)
    return path[match.end() :] if match else path


def _shorten_input(value: Any, prefix: re.Pattern[str], depth: int = 0) -> Any:
    """Shorten the paths in a tool's input. Values below MAX_DEPTH are left out."""
    if isinstance(value, str):
        return _shorten(value, prefix)
    if depth == MAX_DEPTH and isinstance(value, dict | list):
        return NESTED_TOO_DEEPLY
    if isinstance(value, dict):
        return {
            name: item if name == "command" else _shorten_input(item, prefix, depth + 1)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_shorten_input(item, prefix, depth + 1) for item in value]
    return value


def _shorten_blocks(content: tuple[Block, ...], prefix: re.Pattern[str]) -> tuple[Block, ...]:
    return tuple(_shorten_block(block, prefix) for block in content)


def _shorten_block(block: Block, prefix: re.Pattern[str]) -> Block:
    match block:
        case Diff() | FileChange():
            return replace(block, path=_shorten(block.path, prefix))
        case Resource():
            return replace(block, uri=_shorten(block.uri, prefix))
        case ResourceLink(title=title):
            return replace(
                block,
                uri=_shorten(block.uri, prefix),
                name=_shorten(block.name, prefix),
                title=title and _shorten(title, prefix),
            )
    return block
