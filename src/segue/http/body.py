"""Limit the size of request bodies, and decode JSON without occupying the event loop."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, TypeVar

import msgspec
from starlette.types import Message, Receive

from segue.model.errors import InvalidInput, Overloaded
from segue.untrusted import PARSERS, ParsersBusy, ParsingFailed

from .errors import BodyTooLarge

T = TypeVar("T")

MAX_BODY_BYTES = 32 * 1024 * 1024
# A longer body is decoded in a thread.
MAX_INLINE_BYTES = 256 * 1024
# A value costs much more than its bytes: a body of `[[],[],…]` would take seconds and gigabytes.
MAX_JSON_VALUES = 250_000
COUNT_CPU_SECONDS = 5.0
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SEPARATORS = (b",", b"[", b"{")


async def read_body(
    chunks: AsyncIterator[bytes], max_bytes: int = MAX_BODY_BYTES, *, drain: bool = False
) -> bytes:
    """Return a request body. Raises BodyTooLarge if it has more than `max_bytes`.

    With `drain`, a body that is too large is still received to its end, without being stored: a
    client that is busy writing would not see the error response.
    """
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size <= max_bytes:
            parts.append(chunk)
            continue
        parts.clear()
        if not drain:
            break
    if size > max_bytes:
        raise _too_large(max_bytes)
    return b"".join(parts)


async def decode_json(data: bytes, type: type[T]) -> T:
    """Return a JSON body as a struct. Raises what msgspec raises if it does not fit.

    Raises InvalidInput if the body has more than MAX_JSON_VALUES values, and Overloaded if too
    many such bodies are being checked.
    """
    if len(data) <= MAX_INLINE_BYTES:
        return msgspec.json.decode(data, type=type)
    if await asyncio.to_thread(_count_separators, data) > MAX_JSON_VALUES:
        await _check_values(data)
    return await asyncio.to_thread(partial(msgspec.json.decode, data, type=type))


async def decode_json_message(data: bytes) -> Any:
    """Return a JSON-RPC message, which may have text with half a character, as plain values.

    Raises what `decode_json` raises.
    """
    try:
        return await decode_json(data, Any)
    except msgspec.DecodeError as error:
        if b"\\u" not in data:
            raise
        import json  # which accepts it, unlike msgspec

        try:
            return await asyncio.to_thread(json.loads, data.decode())
        except ValueError:
            raise error from None


async def _check_values(data: bytes) -> None:
    """Raise InvalidInput if a body has too many values. Separators in strings do not count."""
    message = f"the request body has more than {MAX_JSON_VALUES} values; send less at a time"
    try:
        values = await PARSERS.run(count_json_values, data, cpu_seconds=COUNT_CPU_SECONDS)
    except ParsersBusy as error:
        raise Overloaded(str(error)) from None
    except ParsingFailed:
        raise InvalidInput(message) from None
    if values > MAX_JSON_VALUES:
        raise InvalidInput(message)


def count_json_values(data: bytes) -> int:
    """Return about how many values a JSON text has, in linear time."""
    return _count_separators(_STRING.sub(b"", data))


def _count_separators(data: bytes) -> int:
    return sum(data.count(separator) for separator in _SEPARATORS)


def limit_receive(receive: Receive, max_bytes: int) -> Receive:
    """Wrap `receive` so that it raises BodyTooLarge after `max_bytes` of body."""
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > max_bytes:
            raise _too_large(max_bytes)
        return message

    return limited


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"the request body exceeds {max_bytes} bytes; send less at a time")
