"""Encode positions in lists as opaque, signed cursors, and decode them.

A cursor holds its order and position. In lists by last activity, sessions move while a client
pages. So their cursors also hold the change points of the first page: after the ordinary pages,
further pages return the sessions that changed since those points, in id order. A cursor is signed
with the store's key and bound to its workspace, so it cannot be forged or used in another
workspace. Lists of other things, which do not move, have simpler cursors, signed in the same way.

A list that fits on one page needs no cursor. So the modules for signing are imported when they are
used.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar

import msgspec

from . import codec
from .errors import InvalidCursor
from .query import Order, Position, Query

_VERSION = 1
_MAC_BYTES = 16


class ChangePoint(NamedTuple):
    """A point in a list's changes: rows with `change >= low` may have changed after it, and rows
    with `born >= high` were created after it."""

    low: int
    high: int


class Cursor(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A position between two pages. `filters` is empty if the protocol lets filters change."""

    order: Order
    descending: bool
    position: Position
    phase: Literal["page", "sweep"] = "page"
    backward: bool = False
    marks: dict[str, ChangePoint] = {}
    filters: bytes = b""


class ListPosition(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A position in another list: `of` identifies it, such as `events:` and a session's id."""

    of: str
    descending: bool
    number: int
    text: str


T = TypeVar("T")

_cursors = msgspec.msgpack.Decoder(Cursor)
_list_positions = msgspec.msgpack.Decoder(ListPosition)


@lru_cache(maxsize=64)  # every page of a list needs the same one
def fingerprint(query: Query) -> bytes:
    """Return a hash of the query's filters, to bind a cursor to them."""
    from hashlib import blake2b

    return blake2b(codec.encode(query.filters()), digest_size=8).digest()


def encode(cursor: Cursor | ListPosition, key: bytes, workspace: str) -> str:
    import base64

    payload = bytes([_VERSION]) + msgspec.msgpack.encode(cursor)
    token = payload + _sign(payload, key, workspace)
    return base64.urlsafe_b64encode(token).rstrip(b"=").decode()


def decode(token: str, key: bytes, workspace: str) -> Cursor:
    """Return the cursor of a token. Raises InvalidCursor unless `encode` made it for this list."""
    return _decode(token, key, workspace, _cursors)


def decode_list_position(token: str, key: bytes, workspace: str) -> ListPosition:
    """Return the list position of a token. Raises InvalidCursor like `decode`."""
    return _decode(token, key, workspace, _list_positions)


def _decode(token: str, key: bytes, workspace: str, decoder: msgspec.msgpack.Decoder[T]) -> T:
    import base64
    import hmac

    try:
        raw = token.encode("ascii")
        data = base64.b64decode(raw + b"=" * (-len(raw) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise InvalidCursor("invalid page cursor") from None
    payload, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
    # The token must also equal its re-encoding, so that each cursor has one form only.
    if (
        len(data) <= _MAC_BYTES
        or not hmac.compare_digest(mac, _sign(payload, key, workspace))
        or base64.urlsafe_b64encode(data).rstrip(b"=") != raw
    ):
        raise InvalidCursor("invalid page cursor")
    if payload[0] != _VERSION:
        raise InvalidCursor("this page cursor has another version; start from the first page")
    try:
        return decoder.decode(payload[1:])
    except (msgspec.DecodeError, ValueError):  # a cursor of the other kind
        raise InvalidCursor("invalid page cursor") from None


def _sign(payload: bytes, key: bytes, workspace: str) -> bytes:
    from hashlib import blake2b

    return blake2b(workspace.encode() + b"\0" + payload, key=key, digest_size=_MAC_BYTES).digest()
