"""Limit the size of request bodies."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.types import Message, Receive

from .errors import BodyTooLarge

MAX_BODY_BYTES = 32 * 1024 * 1024


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
