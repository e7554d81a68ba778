"""Positions in the updates of a session, from which a client that reconnects can resume.

A position is the last event whose updates were sent, how many of them were sent, and how much of
each unfinished message. It is valid for as long as the session exists, in every process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from segue.acp import wire
from segue.acp.rpc import INVALID_PARAMS, RpcError

CURSOR_KEY = "acp/cursor"  # in the `_meta` of messages
CURSOR_REPLAY = "cursor"  # the type of `replayFrom` with a cursor
MAX_STREAMED_MESSAGES = 16
ALL_UPDATES = 999_999  # of an event, as an index

_NOTHING: Mapping[str, int] = MappingProxyType({})
# A transport puts the number of its message before the position.
_TEXT = re.compile(
    r"(?:[0-9]{1,15}\.)?([re])([0-9]{1,15})\.([0-9]{1,6})((?:~[^~:]{1,64}:[0-9]{1,12})*)", re.ASCII
)


class Position(NamedTuple):
    """A position. `replayed` is True until the replay of the history has ended."""

    seq: int
    sent: int  # updates of the event `seq`
    replayed: bool = False
    streamed: Mapping[str, int] = _NOTHING  # characters of unfinished messages, by message id

    def __str__(self) -> str:
        streamed = "".join(f"~{message}:{length}" for message, length in self.streamed.items())
        return f"{'r' if self.replayed else 'e'}{self.seq}.{self.sent}{streamed}"


def parse_position(text: Any) -> Position:
    """Return the position in a cursor. Raises RpcError if it has none."""
    match = _TEXT.fullmatch(text) if isinstance(text, str) else None
    streamed = match[4].split("~")[1:] if match else []
    if match is None or len(streamed) > MAX_STREAMED_MESSAGES:
        raise RpcError(INVALID_PARAMS, f"{CURSOR_KEY}: {text!r} is not a cursor of a session")
    lengths = {message: int(length) for message, _, length in (s.partition(":") for s in streamed)}
    return Position(int(match[2]), int(match[3]), match[1] == "r", lengths)


def requested_position(request: wire.SetupRequest) -> Position | None:
    """Return the position that a client wants to resume from, or None if it names none.

    It is a `replayFrom` of the type `cursor`, or the cursor in `_meta`. Raises RpcError if it is
    not valid.
    """
    start = request.replay_from
    if isinstance(start, dict) and start.get("type") == CURSOR_REPLAY:
        return parse_position(start.get("cursor"))
    cursor = (request.meta or {}).get(CURSOR_KEY)
    return None if cursor is None else parse_position(cursor)
