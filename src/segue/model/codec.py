"""Encode structs as JSON bytes and decode them, also with text that is not valid UTF-8.

Real transcripts contain lone surrogates (a cut emoji) and NULs. Both are preserved: such a value is
written with `\\udXXX` escapes, and decoded by the standard library, which is slower than msgspec
and therefore imported only for such a value.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any, Generic, TypeVar, overload

import msgspec

T = TypeVar("T")
_encoder = msgspec.json.Encoder()
# msgspec crashes if one thread uses a struct type whose fields another thread is just resolving.
_resolving = threading.RLock()
_resolved: set[Any] = set()  # types that `convert` was called with
_PATTERN_DESCRIPTIONS: dict[str, str] = {}  # by the pattern, as msgspec's errors quote it


def encode(value: Any) -> bytes:
    """Return the value as JSON bytes."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        import json

        plain = msgspec.to_builtins(value, enc_hook=_read_raw)
        return json.dumps(plain, separators=(",", ":")).encode()


def _read_raw(value: Any) -> Any:
    """Return JSON that is nested in a value and was encoded before."""
    if isinstance(value, msgspec.Raw):
        import json

        return json.loads(bytes(value))
    raise TypeError(f"a value of type {type(value).__name__} cannot be stored")


class Decoder(Generic[T]):
    """Decode what `encode` returned as one type."""

    def __init__(self, type: Any) -> None:  # Any: type checkers do not accept a union as type[T]
        self._type = type

    @cached_property
    def _fast(self) -> msgspec.json.Decoder[T]:
        # Created on first use: most commands never decode most types.
        with _resolving:
            return msgspec.json.Decoder(self._type)

    def __call__(self, data: bytes) -> T:
        try:
            return self._fast.decode(data)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            import json

            value: T = convert(json.loads(data), self._type)
            return value


@overload
def convert(value: Any, type: type[T]) -> T: ...
@overload
def convert(value: Any, type: Any) -> Any: ...
def convert(value: Any, type: Any) -> Any:
    """Return a value of plain types as another type. Raises ValidationError if it does not fit.

    msgspec raises UnicodeEncodeError if the text that does not fit has lone surrogates.
    """
    try:
        if type in _resolved:
            return msgspec.convert(value, type)
        with _resolving:
            converted = msgspec.convert(value, type)
        _resolved.add(type)
        return converted
    except UnicodeEncodeError as error:
        raise msgspec.ValidationError("text in place of another type") from error


def described_pattern(
    description: str, pattern: str, *, min_length: int | None = None, max_length: int | None = None
) -> msgspec.Meta:
    """Return the constraint of text that matches a pattern; errors show the description instead."""
    _PATTERN_DESCRIPTIONS[repr(pattern)] = description
    return msgspec.Meta(pattern=pattern, min_length=min_length, max_length=max_length)


def explain(error: msgspec.ValidationError, path: str = "") -> str:
    """Return msgspec's error as `field: what is wrong`.

    `path` is where the value that does not fit is, such as `prompt[0]`; the field follows it.
    """
    field, problem = split_error(error, path)
    return f"{field}: {problem}" if field else problem


def split_error(error: msgspec.ValidationError, path: str = "") -> tuple[str, str]:
    """Return the field of msgspec's error, below `path`, and what is wrong with it."""
    import re

    message = str(error)
    if match := re.fullmatch(r"(.*) - at (?:`key` in )?`\$(.*)`", message, re.DOTALL):
        message, path = match[1], path + match[2]
    if match := re.fullmatch(r"Object (missing required|contains unknown) field `(.*)`", message):
        path += f".{match[2]}"
        message = "field is required" if match[1] == "missing required" else "unknown field"
    if match := re.fullmatch(r"Expected `str` matching regex (.*)", message, re.DOTALL):
        message = f"Expected {_PATTERN_DESCRIPTIONS.get(match[1], 'text in another form')}"
    message = message.replace("`", "")
    field = path.removeprefix(".")
    return field, f"{message[:1].lower()}{message[1:]}" if field else message


def key(text: str) -> bytes:
    """Return text as an index key of limited length; the text may be any string."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= 512:
        return data
    from hashlib import sha256

    return data[:480] + sha256(data).digest()
