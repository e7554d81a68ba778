"""The cursor codec: a place in a list as an opaque, signed string.

A cursor carries its order and position and, for lists by last activity, the change marks of the
first page: activity moves sessions while a client pages, and once the ordinary pages are through,
further pages sweep what changed since those marks, in id order. Signed with the store's own key
and bound to the workspace, a cursor can be neither forged nor carried elsewhere. Lists of other
things, which do not move, have cursors of a plainer kind, sealed alike.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, NamedTuple, TypeVar

import msgspec

from . import codec
from .errors import InvalidCursor
from .query import Order, Position, Query

_VERSION = 1
_MAC = 16


class ChangePoint(NamedTuple):
    """A moment in a list's changes: rows with `change >= low` may have changed since, and rows
    with `born >= high` were made after it."""

    low: int
    high: int


class Cursor(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A place between two pages. `filters` is empty where the dialect lets filters change."""

    order: Order
    descending: bool
    position: Position
    phase: Literal["page", "sweep"] = "page"
    backward: bool = False
    marks: dict[str, ChangePoint] = {}
    filters: bytes = b""


class ListPosition(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A place in another list: `of` says which one, as `events:` and the id of a session."""

    of: str
    descending: bool
    number: int
    text: str


T = TypeVar("T")

_cursors = msgspec.msgpack.Decoder(Cursor)
_places = msgspec.msgpack.Decoder(ListPosition)


@lru_cache(maxsize=64)  # every page of a list asks for the same one
def fingerprint(query: Query) -> bytes:
    """What ties a cursor to the filters of its list."""
    return blake2b(codec.encode(query.filters()), digest_size=8).digest()


def encode(cursor: Cursor | ListPosition, key: bytes, workspace: str) -> str:
    payload = bytes([_VERSION]) + msgspec.msgpack.encode(cursor)
    token = payload + _sign(payload, key, workspace)
    return base64.urlsafe_b64encode(token).rstrip(b"=").decode()


def decode(token: str, key: bytes, workspace: str) -> Cursor:
    """The cursor, or InvalidCursor for anything that `encode` did not make here."""
    return _decode(token, key, workspace, _cursors)


def decode_list_position(token: str, key: bytes, workspace: str) -> ListPosition:
    """The same for a place."""
    return _decode(token, key, workspace, _places)


def _decode(token: str, key: bytes, workspace: str, decoder: msgspec.msgpack.Decoder[T]) -> T:
    try:
        raw = token.encode("ascii")
        data = base64.b64decode(raw + b"=" * (-len(raw) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise InvalidCursor("invalid page cursor") from None
    payload, mac = data[:-_MAC], data[-_MAC:]
    # Comparing the re-encoded token too leaves one spelling of each cursor.
    if (
        len(data) <= _MAC
        or not hmac.compare_digest(mac, _sign(payload, key, workspace))
        or base64.urlsafe_b64encode(data).rstrip(b"=") != raw
    ):
        raise InvalidCursor("invalid page cursor")
    if payload[0] != _VERSION:
        raise InvalidCursor("this page cursor is of another version; start from the first page")
    try:
        return decoder.decode(payload[1:])
    except msgspec.ValidationError:  # of the other kind
        raise InvalidCursor("invalid page cursor") from None


def _sign(payload: bytes, key: bytes, workspace: str) -> bytes:
    return blake2b(workspace.encode() + b"\0" + payload, key=key, digest_size=_MAC).digest()
