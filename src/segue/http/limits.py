"""Limit how many requests per minute each API key may send.

A token bucket per key: burst N, refill N per minute. Each process counts for itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import monotonic

from segue.model import clock

from .errors import RateLimited

Headers = list[tuple[bytes, bytes]]


class RateLimiter:
    """One token bucket per API key."""

    def __init__(self, per_minute: int, now: Callable[[], float] = monotonic) -> None:
        self._limit = per_minute
        self._now = now
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens left, at which time

    def count_request(self, key_id: str) -> Headers:
        """Take one token, and return the headers that report the limit to the client.

        Raises RateLimited if the key has no token left.
        """
        now = self._now()
        tokens, counted_at = self._buckets.get(key_id, (float(self._limit), now))
        tokens = min(self._limit, tokens + (now - counted_at) * self._limit / 60)
        allowed = tokens >= 1
        tokens -= allowed
        self._buckets[key_id] = (tokens, now)
        full_at = clock.now() + int((self._limit - tokens) * 60 / self._limit * clock.SECOND)
        headers = [
            (b"anthropic-ratelimit-requests-limit", b"%d" % self._limit),
            (b"anthropic-ratelimit-requests-remaining", b"%d" % int(tokens)),
            (b"anthropic-ratelimit-requests-reset", clock.to_rfc3339(full_at).encode()),
        ]
        if allowed:
            return headers
        wait_seconds = max(1, math.ceil((1 - tokens) * 60 / self._limit))
        raise RateLimited(
            f"this key may send {self._limit} requests a minute; try again in {wait_seconds} s",
            headers=[*headers, (b"retry-after", b"%d" % wait_seconds)],
        )
