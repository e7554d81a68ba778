"""Estimate the cost of a model request."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from segue.model.event import Usage

from .values import UNITS_PER_MICRODOLLAR, ModelPrices

_MAX_NAME_LENGTH = 256


def with_cost(usage: Usage, model: str | None, at: int) -> Usage:
    """Return the usage of a request with its estimated cost.

    It is returned unchanged if its cost was reported or the model's price is not known.
    """
    if usage.cost is not None or not model or not usage.tokens:
        return usage
    cost = estimate(usage, model, at)
    if cost is None:
        return usage
    return msgspec.structs.replace(usage, cost=cost, estimated_cost=cost)


def estimate(usage: Usage, model: str, at: int) -> int | None:
    """Return the cost of a request at a time, in millionths of a US dollar; None if unknown.

    `model` is the name of a model, with or without its provider: `anthropic:name`,
    `anthropic/name`. If more tokens than the model can read were sent, they are those of several
    requests, and have the price of a small context.
    """
    prices = _find_prices(model)
    if not prices.prices:
        return None
    context = usage.context_tokens
    rates = prices.at(at).rates(0 if context > prices.max_context_tokens else context)
    hour = usage.cache_1h_tokens or 0
    cost = (
        rates.request
        + rates.input * (usage.input_tokens or 0)
        + rates.output * (usage.output_tokens or 0)
        + rates.cache_read * (usage.cache_read_tokens or 0)
        + rates.cache_write * ((usage.cache_write_tokens or 0) - hour)
        + rates.cache_1h * hour
    )
    return _round(cost)


def _round(cost: int) -> int:
    """Return a cost in millionths of a dollar; a half is rounded to the even number."""
    micros, rest = divmod(cost, UNITS_PER_MICRODOLLAR)
    return micros + (
        2 * rest > UNITS_PER_MICRODOLLAR or (2 * rest == UNITS_PER_MICRODOLLAR and micros % 2 == 1)
    )


def has_price(model: str) -> bool:
    """Return True if the price of a model is known and not zero."""
    return bool(_find_prices(model).prices)


@lru_cache(1024)
def _find_prices(model: str) -> ModelPrices:
    """Return the prices of a model in the price table."""
    if len(model) > _MAX_NAME_LENGTH:
        return ModelPrices()
    from .table import look_up  # a list of sessions with known costs does not read the table

    return look_up(model)
