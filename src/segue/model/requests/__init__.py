"""Requests to models: what they use; `spans` says where they begin and end in the events."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and money of one model request, or of several.

    The first five fields are always written: 0 is zero, null means "not reported". A sum leaves
    out what was not reported; it is null if no part was reported.

    `input_tokens` excludes the tokens that were read from or written to a cache. `cost` is in
    millionths of a US dollar, so that sums are exact. `cache_1h_tokens` is the part of
    `cache_write_tokens` that is kept for an hour, not five minutes; it is left out if unknown.
    `estimated_cost` is the part of `cost` that no tool or provider reported: segue computed it from
    the tokens and the model's list price. It is left out if it is 0.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost: int | None = None
    cache_1h_tokens: int | UnsetType = UNSET
    estimated_cost: int | UnsetType = UNSET

    @property
    def tokens(self) -> int:
        """Return the number of all tokens that were reported, cached ones included."""
        return (self.output_tokens or 0) + self.context_tokens

    @property
    def context_tokens(self) -> int:
        """Return the number of tokens that were sent to the model, cached ones included."""
        cached = (self.cache_read_tokens or 0) + (self.cache_write_tokens or 0)
        return (self.input_tokens or 0) + cached

    @property
    def cache_5m_tokens(self) -> int:
        """Return the part of the cache writes that is not kept for an hour."""
        return (self.cache_write_tokens or 0) - (self.cache_1h_tokens or 0)

    @property
    def is_priced(self) -> bool:
        """Return whether the cost of the tokens is known."""
        return self.cost is not None or not self.tokens

    @property
    def is_zero(self) -> bool:
        """Return whether no tokens and no cost were reported."""
        return not self.tokens and not self.cost

    def __add__(self, other: Usage) -> Usage:
        return self._merge(other, 1)

    def __sub__(self, other: Usage) -> Usage:
        return self._merge(other, -1)

    def _merge(self, other: Usage, sign: int) -> Usage:
        def merge(one: int | None, two: int | None) -> int | None:
            return one if two is None else (one or 0) + sign * two

        hour = self.cache_1h_tokens
        if other.cache_1h_tokens is not UNSET:
            hour = (hour or 0) + sign * other.cache_1h_tokens
        estimated = (self.estimated_cost or 0) + sign * (other.estimated_cost or 0)
        return Usage(
            input_tokens=merge(self.input_tokens, other.input_tokens),
            output_tokens=merge(self.output_tokens, other.output_tokens),
            cache_read_tokens=merge(self.cache_read_tokens, other.cache_read_tokens),
            cache_write_tokens=merge(self.cache_write_tokens, other.cache_write_tokens),
            cost=merge(self.cost, other.cost),
            cache_1h_tokens=hour,
            estimated_cost=estimated or UNSET,
        )
