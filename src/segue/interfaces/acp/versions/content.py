"""Read prompts, and encode the parts of updates that both protocol versions share."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from segue.acp import wire
from segue.acp.content import read_block
from segue.acp.rpc import INVALID_PARAMS, RpcError
from segue.interfaces.acp.meta import info_meta
from segue.model.content import Content
from segue.model.event import (
    ConfigChanged,
    Failed,
    InfoChanged,
    PermissionAsked,
    StatusChanged,
    ToolCall,
)
from segue.model.session import Session

# A replay ends with the session's current title and settings, and notices are sent live only.
NOT_REPLAYED = (InfoChanged, ConfigChanged, StatusChanged, Failed)


def read_prompt(blocks: Sequence[dict[str, Any]]) -> Content:
    """Return the content of a prompt.

    Raises RpcError if the prompt is empty or contains an unknown type of block.
    """
    if not blocks:
        raise RpcError(INVALID_PARAMS, "a prompt needs at least one content block")
    try:
        return tuple(map(read_block, blocks))
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_PARAMS, f"prompt: {error}") from None


def locations(call: ToolCall) -> list[wire.Location]:
    """Return the file locations of a tool call; the protocol requires absolute paths."""
    return [
        wire.Location(path=location.path, line=location.line)
        for location in call.locations
        if os.path.isabs(location.path)
    ]


def total_cost(session: Session | None) -> wire.Cost | None:
    """Return the cost of a session up to now, or None if it is unknown."""
    if session is None or not session.usage.cost:
        return None
    return wire.Cost(amount=session.usage.cost / 1_000_000, currency="USD")


def text_block(text: str) -> wire.TextBlock:
    """Return a content block with text."""
    return wire.TextBlock(text=text)


def encode_info(body: InfoChanged, session: Session | None) -> Iterator[wire.SessionInfoUpdate]:
    """Encode a change of a session's title, tag or state.

    A title that did not become the session's title is left out: a title that a user chose takes
    precedence over an automatic one.
    """
    has_title = body.title is not UNSET and (session is None or session.title == body.title)
    meta = info_meta(body)
    if has_title or meta:
        yield wire.SessionInfoUpdate(title=body.title if has_title else UNSET, meta=meta or None)


def permission_options(body: PermissionAsked) -> list[wire.PermissionOption]:
    """Return the options of a permission request."""
    return [
        wire.PermissionOption(option_id=option.id, name=option.name, kind=option.kind)
        for option in body.options
    ]
