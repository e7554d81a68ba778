"""So many requests a minute for each key; off unless a limit is set.

A key may spend a minute's worth at once, and gets it back evenly. Each process keeps its own count.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import monotonic

from segue.http.errors import RateLimited
from segue.model import clock

Headers = list[tuple[bytes, bytes]]


class Limits:
    """What each key has left."""

    def __init__(self, per_minute: int, now: Callable[[], float] = monotonic) -> None:
        self._limit = per_minute
        self._now = now
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, key_id: str) -> Headers:
        """Count a request; the headers that tell its client where it stands.

        RateLimited when there is nothing left.
        """
        now = self._now()
        left, at = self._left.get(key_id, (float(self._limit), now))
        left = min(self._limit, left + (now - at) * self._limit / 60)
        allowed = left >= 1
        left -= allowed
        self._left[key_id] = (left, now)
        full = clock.now() + int((self._limit - left) * 60 / self._limit * clock.SECOND)
        headers = [
            (b"anthropic-ratelimit-requests-limit", b"%d" % self._limit),
            (b"anthropic-ratelimit-requests-remaining", b"%d" % int(left)),
            (b"anthropic-ratelimit-requests-reset", clock.to_rfc3339(full).encode()),
        ]
        if allowed:
            return headers
        wait = max(1, math.ceil((1 - left) * 60 / self._limit))
        raise RateLimited(
            f"this key may send {self._limit} requests a minute; try again in {wait} s",
            headers=[*headers, (b"retry-after", b"%d" % wait)],
        )
