"""The prices of a model, as they are computed with and saved."""

from __future__ import annotations

import msgspec

from segue.model import clock

PER_MICRO = 10**9  # the unit of rates: finer than any list price, so that costs are exact
SECONDS_PER_DAY = 86_400
_LARGE_WINDOW = 1_000_000  # tokens


class Rates(msgspec.Struct, frozen=True, array_like=True):
    """Prices of one token and one request, if the context has more than `above` tokens."""

    above: int
    request: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    cache_1h: int


class Price(msgspec.Struct, frozen=True, array_like=True):
    """The prices of a model from a time on, or in a part of each day; `tiers` begin with 0."""

    tiers: tuple[Rates, ...]
    since: int | None = None  # in microseconds
    daily: tuple[int, int] | None = None  # from one second of the day until another

    def applies(self, at: int) -> bool:
        """Return whether a request at a time has these prices."""
        if self.since is not None:
            return at >= self.since
        if self.daily is None:
            return True
        start, end = self.daily
        second = at // clock.SECOND % SECONDS_PER_DAY
        return start <= second < end if start <= end else second >= start or second < end

    def rates(self, context_tokens: int) -> Rates:
        """Return the prices for a size of the context."""
        return next(rates for rates in self.tiers[::-1] if context_tokens > rates.above)


class ModelPrices(msgspec.Struct, frozen=True, array_like=True):
    """All prices of a model; the last one that applies counts. There is none if it is unknown."""

    prices: tuple[Price, ...] = ()
    context_window: int | None = None

    @property
    def max_context_tokens(self) -> int:
        """Return how many tokens one request can have, as far as it is known."""
        largest_tier = max(price.tiers[-1].above for price in self.prices)
        window = self.context_window
        # The window of some models does not include the larger one that has its own price.
        return _LARGE_WINDOW if window is None or window <= largest_tier else window
