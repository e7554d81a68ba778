"""Read bodies of events as stores and files have them: as JSON, in this or another format.

Bodies of older versions are converted with `UPCASTS`, one version at a time. A body of a newer
version that is unknown here becomes Foreign.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from segue.model import codec
from segue.model.event import AnyBody, Foreign

BODY_VERSION = 3  # the format that bodies are written in


def _from_version_1(body: dict[str, Any]) -> dict[str, Any]:
    from . import version_1  # late: only stores and files of older versions need it

    return version_1.convert(body)


# By version: a function that converts a body to the next version.
UPCASTS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_version_1}

_decode: codec.Decoder[AnyBody] = codec.Decoder(AnyBody)
_decode_raw: codec.Decoder[dict[str, Any]] = codec.Decoder(dict[str, Any])


def decode_body(data: bytes, version: int = BODY_VERSION) -> AnyBody:
    """Return a stored body. Older versions are converted, unknown newer ones become Foreign."""
    if version == BODY_VERSION:
        return _decode(data)
    raw = _decode_raw(data)
    is_newer = version > BODY_VERSION
    while version < BODY_VERSION:
        if upcast := UPCASTS.get(version):
            raw = upcast(raw)
        version += 1
    try:
        body: AnyBody = codec.convert(raw, AnyBody)
        return body
    except msgspec.ValidationError:
        if not is_newer:
            raise
        return Foreign(dialect="segue", raw=raw)
