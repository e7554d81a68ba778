"""Read the price table of genai-prices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import genai_prices
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import (
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    StartDateConstraint,
    TieredPrices,
    TimeOfDateConstraint,
)

from segue.model import clock

from .values import SECONDS_PER_DAY, UNITS_PER_MICRODOLLAR, ModelPrices, Price, Rates

_UNITS_PER_DOLLAR = UNITS_PER_MICRODOLLAR * 1_000_000
_PROBE_TOKENS = 1_000_000
_LARGE_WINDOW_TOKENS = 1_000_000  # tokens


def look_up(name: str) -> ModelPrices:
    """Return the prices of a model in the table."""
    for provider, model_ref in _references(name):
        with suppress(LookupError):
            _, model = get_snapshot().find_provider_model(model_ref, None, provider, None)
            return _model_prices(model)
    return ModelPrices()


def _references(name: str) -> Iterator[tuple[str | None, str]]:
    """Return the providers and model names that a name can mean, the most likely first."""
    for separator in (":", "/"):
        provider, _, rest = name.partition(separator)
        if provider and rest:
            yield provider, rest
    yield None, name


def _model_prices(model: ModelInfo) -> ModelPrices:
    conditional = model.prices
    if not isinstance(conditional, list):
        conditional = [ConditionalPrice(prices=conditional)]
    prices = tuple(_price(price.prices, price.constraint) for price in conditional)
    if not any(rates.input or rates.output for price in prices for rates in price.tiers):
        return ModelPrices()  # it is free, or its price is not known
    return ModelPrices(prices, _max_context_tokens(model, prices))


def _max_context_tokens(model: ModelInfo, prices: Sequence[Price]) -> int:
    largest_tier = max(price.tiers[-1].above for price in prices)
    window = model.context_window
    # The window of some models does not include the larger one that has its own price.
    return _LARGE_WINDOW_TOKENS if window is None or window <= largest_tier else window


def _price(prices: ModelPrice, constraint: Any) -> Price:
    values = vars(prices).values()
    tiered = [price for price in values if isinstance(price, TieredPrices)]
    starts = {tier.start for price in tiered for tier in price.tiers}
    tiers = tuple(_probe(prices, above) for above in sorted({0, *starts}))
    if isinstance(constraint, StartDateConstraint):
        start = datetime.combine(constraint.start_date, time(), UTC)
        return Price(tiers, since=int(start.timestamp()) * clock.SECOND)
    if isinstance(constraint, TimeOfDateConstraint):
        return Price(tiers, daily=(_second(constraint.start_time), _second(constraint.end_time)))
    return Price(tiers)


def _second(moment: time) -> int:
    """Return a time as the second of the day, in UTC."""
    offset = moment.utcoffset()
    second = moment.hour * 3600 + moment.minute * 60 + moment.second
    return (second - (int(offset.total_seconds()) if offset else 0)) % SECONDS_PER_DAY


def _probe(prices: ModelPrice, above: int) -> Rates:
    """Return the prices of tokens in a context of more than `above`, as the table computes them."""
    tokens = above + 1

    def price(**counts: int) -> Decimal:
        dollars: Decimal = prices.calc_price(genai_prices.Usage(**counts))["total_price"]
        return dollars * _UNITS_PER_DOLLAR

    def input_rate(**counts: int) -> int:
        return round((price(input_tokens=tokens, **counts) - request) / tokens)

    request = price()
    output = price(input_tokens=tokens, output_tokens=_PROBE_TOKENS) - price(input_tokens=tokens)
    return Rates(
        above,
        request=round(request),
        input=input_rate(),
        output=round(output / _PROBE_TOKENS),
        cache_read=input_rate(cache_read_tokens=tokens),
        cache_write=input_rate(cache_write_tokens=tokens),
        cache_1h=input_rate(cache_write_tokens=tokens, cache_write_1h_tokens=tokens),
    )


def table_version() -> str:
    """Return the version of the price table, and the date of its newest price up to today."""
    models = [model for provider in get_snapshot().providers for model in provider.models]
    today = datetime.now(UTC).date()
    dates = [day for model in models for day in _start_dates(model) if day <= today]
    return f"genai-prices {genai_prices.__version__}, with prices up to {max(dates)}"


def _start_dates(model: ModelInfo) -> Iterator[date]:
    for price in model.prices if isinstance(model.prices, list) else ():
        if isinstance(price.constraint, StartDateConstraint):
            yield price.constraint.start_date
