"""Send server-sent events: framing, heartbeats, access checks, shutdown and disconnects.

An event stream reads its next frame only after the client has accepted the previous one, so a slow
client slows down its own stream and does not fill the server's memory.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, NamedTuple, Protocol

from starlette.responses import StreamingResponse
from starlette.types import Send

from segue.model import codec
from segue.model.errors import StoreUnreachable

log = logging.getLogger("segue.http")

HEARTBEAT_SECONDS = 15.0
ACCESS_RETRY_SECONDS = 5.0
MAX_QUEUED_FRAMES = 16
_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
_STREAM_FAILED = object()


class AccessResult(NamedTuple):
    """The outcome of an access check: frames to send, and whether the stream may continue."""

    frames: tuple[bytes, ...]
    allowed: bool


class AccessCheck(Protocol):
    """Decides while a stream is open whether its client may still read it.

    A check that raises an error has decided nothing: the stream continues, and `check` is called
    again after ACCESS_RETRY_SECONDS.
    """

    def seconds_until_due(self) -> float:
        """Return how long the last result is valid; 0 or less if `check` must be called now."""
        ...

    async def check(self) -> AccessResult: ...


class EventStreamResponse(StreamingResponse):
    """Send frames until `frames` ends, the client disconnects or the server shuts down.

    `greeting` is sent at once, so that the client knows that the request was accepted. `heartbeat`
    is sent after HEARTBEAT_SECONDS without a frame, or when `access` is due for a check. `closing`
    is set when the server shuts down. `on_end` is called when the stream has ended.
    """

    def __init__(
        self,
        frames: AsyncGenerator[bytes],
        *,
        closing: asyncio.Event,
        greeting: bytes,
        heartbeat: bytes,
        access: AccessCheck | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_end = on_end
        self._frames = _write_frames(frames, closing, greeting, heartbeat, access)
        super().__init__(self._frames, media_type="text/event-stream", headers=_HEADERS)

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        finally:
            self._on_end()
            await self._frames.aclose()


async def _write_frames(
    frames: AsyncGenerator[bytes],
    closing: asyncio.Event,
    greeting: bytes,
    heartbeat: bytes,
    access: AccessCheck | None,
) -> AsyncGenerator[bytes]:
    yield greeting
    closed = asyncio.ensure_future(closing.wait())
    next_frame = asyncio.ensure_future(anext(frames, None))
    schedule = None if access is None else _AccessSchedule(access)
    try:
        while True:
            timeout = HEARTBEAT_SECONDS
            if schedule is not None:
                result = await schedule.check_if_due()
                for frame in result.frames:
                    yield frame
                if not result.allowed:
                    return
                timeout = min(timeout, schedule.seconds_until_due())
            await asyncio.wait(
                [next_frame, closed], timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if closed.done():
                return
            if not next_frame.done():
                yield heartbeat
                continue
            received = next_frame.result()
            if received is None:
                return
            yield received
            next_frame = asyncio.ensure_future(anext(frames, None))
    finally:
        # Starlette cancels every await here once the client has disconnected: clean up in a task.
        await asyncio.shield(asyncio.ensure_future(_close(frames, next_frame, closed)))


class _AccessSchedule:
    """Calls an access check when it is due, and again later if it fails."""

    def __init__(self, access: AccessCheck) -> None:
        self._access = access
        self._retry_at = float("-inf")

    def seconds_until_due(self) -> float:
        return max(0.0, self._access.seconds_until_due(), self._retry_at - time.monotonic())

    async def check_if_due(self) -> AccessResult:
        if self.seconds_until_due() > 0:
            return AccessResult((), allowed=True)
        try:
            return await self._access.check()
        except Exception as error:
            if not isinstance(error, StoreUnreachable):  # the store logs the outage
                message = "the access of an event stream was not checked; retrying"
                log.warning(message, exc_info=True)
            self._retry_at = time.monotonic() + ACCESS_RETRY_SECONDS
            return AccessResult((), allowed=True)


async def _close(frames: AsyncGenerator[bytes], *tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await frames.aclose()


async def merge_frames(*streams: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield the frames of several streams as they arrive, and end if one of the streams fails."""
    queue: asyncio.Queue[Any] = asyncio.Queue(MAX_QUEUED_FRAMES)
    tasks = [asyncio.create_task(_enqueue(stream, queue)) for stream in streams]
    try:
        while (frame := await queue.get()) is not _STREAM_FAILED:
            yield frame
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _enqueue(frames: AsyncIterator[bytes], queue: asyncio.Queue[Any]) -> None:
    try:
        async for frame in frames:
            await queue.put(frame)
    except Exception as error:
        if not isinstance(error, StoreUnreachable):  # the store logs the outage
            log.exception("an event stream failed; the client will reconnect")
        await queue.put(_STREAM_FAILED)


def encode_frame(name: str, data: object, event_id: str | None = None) -> bytes:
    """Return one server-sent event with JSON data."""
    id_line = b"" if event_id is None else b"id: %b\n" % event_id.encode()
    return b"event: %b\n%bdata: %b\n\n" % (name.encode(), id_line, codec.encode(data))
