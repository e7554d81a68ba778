"""Limit how many requests per minute each caller may send.

A token bucket per caller: burst N, refill N per minute. Each process counts for itself. A browser
that was signed in with an API key counts as that key.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

from segue.model import clock
from segue.model.principal import Principal

from .errors import RateLimited

Headers = list[tuple[bytes, bytes]]

MAX_BUCKETS = 10_000


def caller_of(principal: Principal) -> str:
    """Return the caller that a principal's requests are counted for."""
    return principal.key_id or f"the local user in workspace {principal.workspace}"


class RateLimiter:
    """One token bucket per caller. A limit of 0 is no limit."""

    def __init__(self, per_minute: int, now: Callable[[], float] = monotonic) -> None:
        self._limit = per_minute
        self._now = now
        # Tokens left, at which time. The caller that has sent nothing for longest is the first.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def count_request(self, caller: str) -> Headers:
        """Take one token, and return the headers that report the limit to the client.

        Raises RateLimited if the caller has no token left.
        """
        if not self._limit:
            return []
        now = self._now()
        tokens, counted_at = self._buckets.pop(caller, (float(self._limit), now))
        tokens = min(self._limit, tokens + (now - counted_at) * self._limit / 60)
        allowed = tokens >= 1
        tokens -= allowed
        self._buckets[caller] = (tokens, now)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
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
            f"you may send {self._limit} requests a minute; try again in {wait_seconds} s",
            headers=[*headers, (b"retry-after", b"%d" % wait_seconds)],
        )
