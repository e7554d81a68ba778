"""Prompts as they come, and what the two protocol versions show alike."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec

from segue.acp import wire
from segue.acp.content import read_block
from segue.acp.rpc import INVALID_PARAMS, RpcError
from segue.model.content import Content
from segue.model.event import ConfigChanged, Failed, InfoChanged, StatusChanged, ToolCall
from segue.model.session import Session

# How a session was named and run is told once at the end of a replay, and notices are live only.
NOT_REPLAYED = (InfoChanged, ConfigChanged, StatusChanged, Failed)


def read_prompt(blocks: Sequence[dict[str, Any]]) -> Content:
    """A prompt's blocks. RpcError for an empty prompt or a kind of block that is not known."""
    if not blocks:
        raise RpcError(INVALID_PARAMS, "a prompt needs at least one content block")
    try:
        return tuple(map(read_block, blocks))
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_PARAMS, f"prompt: {error}") from None


def locations(call: ToolCall) -> list[wire.Location]:
    """The places in files that a call touches; the protocol wants absolute paths."""
    return [
        wire.Location(path=place.path, line=place.line)
        for place in call.locations
        if os.path.isabs(place.path)
    ]


def cost(session: Session | None) -> wire.Cost | None:
    """What the session has cost so far, if that is known."""
    if session is None or not session.usage.cost:
        return None
    return wire.Cost(amount=session.usage.cost / 1_000_000, currency="USD")


def text_block(text: str) -> wire.TextBlock:
    return wire.TextBlock(text=text)
