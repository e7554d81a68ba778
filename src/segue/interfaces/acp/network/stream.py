"""Messages on their way to one client: bounded, numbered, and kept for a while after sending.

A writer waits while the client has too much to read. Sent messages stay in memory, up to a limit. A
client that reconnects gets the messages that it did not receive.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, NamedTuple

import msgspec

from segue.acp.rpc import Disconnected, encode_message
from segue.interfaces.acp.position import CURSOR_KEY

MAX_UNSENT_BYTES = 256 * 1024
MAX_KEPT_BYTES = 256 * 1024
MAX_KEPT_MESSAGES = 1000
KEPT_SECONDS = 300  # how long a connection without a link is kept


class StreamBusy(Exception):
    """Another reader has the stream."""


class UnknownCursor(Exception):
    """The messages after a cursor are not in memory any more, or never were."""


class OutboundMessage(NamedTuple):
    """A message as JSON, with its number in the stream and the position of its update."""

    number: int
    position: object | None
    data: bytes

    @property
    def cursor(self) -> str:
        """The cursor from which a client resumes after this message."""
        return _cursor(self.number, self.position)


class OutboundStream:
    """The messages for one reader at a time."""

    def __init__(self, *, marks_messages: bool, of_session: bool = False) -> None:
        """Create a stream.

        With `marks_messages`, the `_meta` of each message has its cursor. In a stream `of_session`,
        the cursor of a message without a position has the position of the last update.
        """
        self.marks_messages = marks_messages
        self._of_session = of_session
        self._unsent: deque[OutboundMessage] = deque()
        self._kept: deque[OutboundMessage] = deque()
        self._unsent_bytes = 0
        self._kept_bytes = 0
        self._count = 0  # of all messages so far
        self._position: object | None = None
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._written = asyncio.Event()
        self._written.set()
        self._reader: object | None = None
        self._closed = False

    @property
    def has_reader(self) -> bool:
        return self._reader is not None

    async def put(self, message: dict[str, Any], position: object | None) -> None:
        """Add a message, and wait first if the reader has too much to read.

        `position` is that of an update in its session. Raises Disconnected if the stream is
        closed.
        """
        while not self._writable.is_set():
            await self._writable.wait()
        if self._closed:
            raise Disconnected("the client has disconnected")
        self._count += 1
        if self._of_session:
            position = self._position = position or self._position
        if self.marks_messages:
            message = _marked(message, _cursor(self._count, position))
        data = encode_message(message)
        self._unsent.append(OutboundMessage(self._count, position, data))
        self._unsent_bytes += len(data)
        if self._unsent_bytes >= MAX_UNSENT_BYTES:
            self._writable.clear()
        self._changed.set()
        if self.has_reader:
            self._written.clear()

    async def wait_writable(self) -> None:
        """Wait until the reader has read enough."""
        await self._writable.wait()

    async def wait_written(self) -> None:
        """Wait until the reader has written everything to its link, if there is a reader."""
        await self._written.wait()

    def attach(self, cursor: str | None) -> object:
        """Begin to read, after the message with `cursor` or where the last reader ended.

        A reader with a cursor replaces an earlier one, whose link the server may not know to be
        lost. Returns a token for `read` and `detach`. Raises StreamBusy if there is a reader and
        no cursor, and UnknownCursor if messages after the cursor are missing.
        """
        if cursor is not None:
            self._rewind(cursor)
            self._changed.set()  # ends the earlier reader
        elif self.has_reader:
            raise StreamBusy
        self._reader = object()
        return self._reader

    def _rewind(self, cursor: str) -> None:
        """Make the messages after a cursor unsent."""
        number = cursor.partition(".")[0]
        first = self._kept[0].number if self._kept else 0
        index = int(number) - first if number.isascii() and number.isdigit() else -1
        if not 0 <= index < len(self._kept) or self._kept[index].cursor != cursor:
            raise UnknownCursor
        while len(self._kept) > index + 1:
            message = self._kept.pop()
            self._unsent.appendleft(message)
            self._kept_bytes -= len(message.data)
            self._unsent_bytes += len(message.data)

    async def read(self, token: object) -> list[OutboundMessage]:
        """Return the next messages, which count as sent from then on; none at the end."""
        while self._reader is token and not self._closed:
            if self._unsent:
                messages = list(self._unsent)
                self._keep_sent()
                return messages
            self._written.set()
            self._changed.clear()
            await self._changed.wait()
        return []

    def _keep_sent(self) -> None:
        self._kept.extend(self._unsent)
        self._unsent.clear()
        self._kept_bytes += self._unsent_bytes
        self._unsent_bytes = 0
        while self._kept_bytes > MAX_KEPT_BYTES or len(self._kept) > MAX_KEPT_MESSAGES:
            self._kept_bytes -= len(self._kept.popleft().data)
        self._writable.set()

    def detach(self, token: object) -> None:
        """End reading."""
        if self._reader is token:
            self._reader = None
            self._changed.set()
            self._written.set()

    def close(self) -> None:
        """End the stream for its reader and its writers."""
        self._closed = True
        self._changed.set()
        self._writable.set()
        self._written.set()


def _cursor(number: int, position: object | None) -> str:
    return str(number) if position is None else f"{number}.{position}"


def _marked(message: dict[str, Any], cursor: str) -> dict[str, Any]:
    """Return a message with its cursor in `_meta`. An error has no place for it."""
    field = "params" if "method" in message else "result"
    value = msgspec.to_builtins(message.get(field))
    if not isinstance(value, dict):
        return message
    meta = {**(value.get("_meta") or {}), CURSOR_KEY: cursor}
    return {**message, field: {**value, "_meta": meta}}
