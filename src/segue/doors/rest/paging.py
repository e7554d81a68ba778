"""Opaque positions in lists other than the sessions': `page_` and the position in base64url.

They are not signed: each is good in its own list only, and can name nothing but a place in what
its bearer may read anyway.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from ...model.errors import InvalidCursor

PREFIX = "page_"

_decoder = msgspec.msgpack.Decoder(tuple[str, int, str])


def spell(kind: str, number: int, text: str = "") -> str:
    data = msgspec.msgpack.encode((kind, number, text))
    return PREFIX + base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def parse(token: str, kind: str) -> tuple[int, str]:
    """What `spell` was given for this kind of list; InvalidCursor for anything else."""
    raw = strip(token)
    try:
        padded = raw.encode("ascii") + b"=" * (-len(raw) % 4)
        data = base64.b64decode(padded, altchars=b"-_", validate=True)
        made_for, number, text = _decoder.decode(data)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise InvalidCursor("invalid page cursor") from None
    if made_for != kind or not -(1 << 62) < number < 1 << 62:
        same = made_for.split(":")[0] == kind.split(":")[0]
        raise InvalidCursor(
            "page token order does not match request" if same else "invalid page cursor"
        )
    return number, text


def strip(token: str) -> str:
    """A token without the prefix that all have."""
    if not token.startswith(PREFIX):
        raise InvalidCursor("invalid page cursor")
    return token.removeprefix(PREFIX)
