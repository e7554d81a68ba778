"""Paths in a session's directory, as they are called there: readers need not know where it is."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from segue.model.content import Block, Diff, Resource, ResourceLink
from segue.model.event import (
    AgentMessage,
    Event,
    PermissionAsked,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.session import Session


def nearby(event: Event, session: Session) -> Event:
    """The event, with the files that it names named from the session's directory on.

    What was said, what tools printed and the commands they ran stay word for word.
    """
    within = _within(session.cwd, session.directory)
    match event.body:
        case ToolCall() as body:
            body = replace(
                body,
                title=body.title and within.sub("", body.title),
                input=_value(body.input, within),
                content=_blocks(body.content, within),
                locations=tuple(
                    replace(each, path=_path(each.path, within)) for each in body.locations
                ),
            )
            return replace(event, body=body)
        case PermissionAsked() as body:
            return replace(event, body=replace(body, title=within.sub("", body.title)))
        case UserMessage() | AgentMessage() | ToolResult() as body:
            return replace(event, body=replace(body, content=_blocks(body.content, within)))
    return event


@lru_cache(maxsize=64)
def _within(*directories: str) -> re.Pattern[str]:
    """Finds how paths in one of some directories begin, also as addresses."""
    known = {each.rstrip("/\\") for each in directories} - {""}
    if not known:  # all is in the root
        return re.compile(r"(?!)")
    either = "|".join(re.escape(each) for each in sorted(known))
    return re.compile(rf"(?<![\w.~/\\-])(?:file://)?(?:{either})[/\\]+(?=[^\s/\\])")


def _path(text: str, within: re.Pattern[str]) -> str:
    found = within.match(text)
    return text[found.end() :] if found else text


def _value(value: Any, within: re.Pattern[str]) -> Any:
    """A tool's input: those of its texts that are paths."""
    if isinstance(value, str):
        return _path(value, within)
    if isinstance(value, dict):
        return {
            name: each if name == "command" else _value(each, within)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_value(each, within) for each in value]
    return value


def _blocks(content: tuple[Block, ...], within: re.Pattern[str]) -> tuple[Block, ...]:
    return tuple(_block(each, within) for each in content)


def _block(block: Block, within: re.Pattern[str]) -> Block:
    match block:
        case Diff():
            return replace(block, path=_path(block.path, within))
        case Resource():
            return replace(block, uri=_path(block.uri, within))
        case ResourceLink(title=title):
            title = title and _path(title, within)
            return replace(
                block,
                uri=_path(block.uri, within),
                name=_path(block.name, within),
                title=title,
            )
    return block
