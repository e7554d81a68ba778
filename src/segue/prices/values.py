"""The prices of a model, as they are computed with and saved."""

from __future__ import annotations

import msgspec

from segue.model import clock

UNITS_PER_MICRODOLLAR = (
    10**9
)  # the unit of rates: finer than any list price, so that costs are exact
SECONDS_PER_DAY = 86_400


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
        for rates in reversed(self.tiers):
            if context_tokens > rates.above:
                return rates
        return self.tiers[0]


class ModelPrices(msgspec.Struct, frozen=True, array_like=True):
    """All prices of a model; the last one that applies counts. There is none if it is unknown.

    `max_context_tokens` is how many tokens one request can send.
    """

    prices: tuple[Price, ...] = ()
    max_context_tokens: int = 0

    def at(self, at: int) -> Price:
        """Return the prices of a request at a time."""
        for price in reversed(self.prices):
            if price.applies(at):
                return price
        return self.prices[0]
