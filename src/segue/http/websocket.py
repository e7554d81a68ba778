"""The WebSocket of one client: its limits, its end, and batches of messages to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from starlette.types import Receive, Scope, Send

from segue.model.errors import StoreUnreachable

from .asgi import SEND_BATCH
from .errors import RateLimited
from .sse import AccessCheck

log = logging.getLogger("segue.http")

RATE_LIMIT_PAUSE_SECONDS = 1.0
# Close codes.
NORMAL, GOING_AWAY, POLICY_VIOLATION = 1000, 1001, 1008
INTERNAL_FAILURE, TRY_AGAIN_LATER = 1011, 1013


class ClientSocket:
    """A WebSocket that a client has opened."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        closing: asyncio.Event,
        count_message: Callable[[], object],
        access: AccessCheck | None,
    ) -> None:
        """Wrap an ASGI WebSocket.

        A set `closing` ends it, and so does a failed check of `access`. `count_message` raises
        RateLimited if the client sends too much.
        """
        self.receive = receive
        self.send = send
        self._sends_batches = SEND_BATCH in scope.get("extensions", {})
        self._closing = closing
        self._count_message = count_message
        self._access = access

    async def accept(self, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Accept the client's WebSocket."""
        await self.receive()  # websocket.connect
        await self.send({"type": "websocket.accept", "headers": [*headers]})

    async def close(self, code: int) -> None:
        """Close the WebSocket."""
        await self.send({"type": "websocket.close", "code": code})

    async def send_texts(self, texts: Sequence[bytes]) -> None:
        """Send messages, in one batch if the server can do that."""
        if self._sends_batches:
            await self.send({"type": "websocket.send", SEND_BATCH: texts})
            return
        for data in texts:
            await self.send_text(data)

    async def send_text(self, data: bytes) -> None:
        """Send one message."""
        await self.send({"type": "websocket.send", "text": data.decode()})

    async def wait_for_allowance(self) -> None:
        """Wait until the client may send another message, and count it."""
        while True:
            try:
                self._count_message()
                return
            except RateLimited:
                await asyncio.sleep(RATE_LIMIT_PAUSE_SECONDS)

    async def wait_for_end(self) -> int:
        """Return the code to close it with, once the server stops or the access has ended."""
        while True:
            seconds = None if self._access is None else max(0.0, self._access.seconds_until_due())
            try:
                await asyncio.wait_for(self._closing.wait(), seconds)
                return GOING_AWAY
            except TimeoutError:
                pass
            assert self._access is not None
            try:
                if not (await self._access.check()).allowed:
                    return POLICY_VIOLATION
            except Exception as error:
                if not isinstance(error, StoreUnreachable):  # the store logs the outage
                    message = "the access of a WebSocket was not checked; retrying"
                    log.warning(message, exc_info=True)
