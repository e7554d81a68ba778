"""API keys in requests, and streams that end with their key."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

from segue.model.errors import Unauthorized

from .sse import AccessResult

KEY_CHECK_SECONDS = 5.0


def api_key(headers: Mapping[bytes, bytes]) -> str:
    """Return the key of `x-api-key` or of `authorization: Bearer`, or "" if there is none."""
    key = headers.get(b"x-api-key")
    if key is None:
        scheme, _, value = headers.get(b"authorization", b"").partition(b" ")
        key = value.strip() if scheme.lower() == b"bearer" else b""
    return key.decode("latin-1")


class KeyAccess:
    """Ends a stream soon after its API key was revoked or has expired."""

    def __init__(
        self,
        authenticate: Callable[[], Awaitable[object]],
        last_frame: Callable[[Unauthorized], bytes] | None = None,
    ) -> None:
        """Create a check. `authenticate` raises Unauthorized if the key is not valid any more."""
        self._authenticate = authenticate
        self._last_frame = last_frame
        self._checked_at = time.monotonic()

    def seconds_until_due(self) -> float:
        return self._checked_at + KEY_CHECK_SECONDS - time.monotonic()

    async def check(self) -> AccessResult:
        self._checked_at = time.monotonic()
        try:
            await self._authenticate()
        except Unauthorized as error:
            frames = () if self._last_frame is None else (self._last_frame(error),)
            return AccessResult(frames, allowed=False)
        return AccessResult((), allowed=True)
