"""Structs to stored bytes and back: JSON by msgspec, with a slower way for text that UTF-8 refuses.

Transcripts in the wild hold lone surrogates (a cut emoji) and NULs. Both survive here: such a
value is written with `\\udXXX` escapes, and read back by the standard library.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")
_encoder = msgspec.json.Encoder()


def encode(value: Any) -> bytes:
    """The value as JSON bytes."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, enc_hook=_read_raw)
        return json.dumps(plain, separators=(",", ":")).encode()


def _read_raw(value: Any) -> Any:
    """JSON that was encoded before, where it stands inside of something else."""
    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value))
    raise TypeError(f"{type(value).__name__} cannot be stored")


class Decoder(Generic[T]):
    """Reads what `encode` wrote as one type."""

    def __init__(self, type: Any) -> None:  # Any: a union is no `type[T]` to a type checker
        self._type = type

    @cached_property
    def _fast(self) -> msgspec.json.Decoder[T]:
        # Made for the first that is read: of most types, a command never reads one.
        return msgspec.json.Decoder(self._type)

    def __call__(self, data: bytes) -> T:
        try:
            return self._fast.decode(data)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            value: T = convert(json.loads(data), self._type)
            return value


def convert(value: Any, type: Any) -> Any:
    """A value of plain types as another type; ValidationError if it does not fit, odd text or not.

    msgspec looks at text that does not fit as UTF-8, and stumbles over lone surrogates itself.
    """
    try:
        return msgspec.convert(value, type)
    except UnicodeEncodeError as error:
        raise msgspec.ValidationError("text where something else belongs") from error


def key(text: str) -> bytes:
    """Text as an index key: any string at all, no longer than an index takes."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= 512:
        return data
    from hashlib import sha256

    return data[:480] + sha256(data).digest()
