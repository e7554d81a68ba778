"""Write the list prices that segue has, from the installed genai-prices.

`python -m tests.price_table` writes `src/segue/prices/list_prices.json` again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import genai_prices
import msgspec
from genai_prices import types
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
from segue.prices.table import PATH, ListedModel, PriceTable, Provider, Rule
from segue.prices.values import SECONDS_PER_DAY, UNITS_PER_MICRODOLLAR, ModelPrices, Price, Rates

_UNITS_PER_DOLLAR = UNITS_PER_MICRODOLLAR * 1_000_000
_PROBE_TOKENS = 1_000_000
_LARGE_WINDOW = 1_000_000  # tokens


def read_table() -> PriceTable:
    """Return the prices of genai-prices in the form that segue has them."""
    providers = get_snapshot().providers
    models = [model for provider in providers for model in provider.models]
    return PriceTable(
        name=f"genai-prices {genai_prices.__version__}",
        dates=sorted({day for model in models for day in _start_dates(model)}),
        providers=[
            Provider(
                id=provider.id,
                provider_rule=_rule(provider.provider_match),
                model_rule=_rule(provider.model_match),
                fallbacks=provider.fallback_model_providers or [],
                models=_encode_models(provider),
            )
            for provider in providers
        ],
    )


def _encode_models(provider: types.Provider) -> msgspec.Raw:
    """Return the models of a provider as JSON with a line for each."""
    models = [
        ListedModel(
            _required(_rule(model.match)), msgspec.Raw(msgspec.json.encode(model_prices(model)))
        )
        for model in provider.models
    ]
    return msgspec.Raw(b"[\n" + b",\n".join(map(msgspec.json.encode, models)) + b"\n]")


def _required(rule: Rule | None) -> Rule:
    assert rule is not None
    return rule


def _rule(clause: Any) -> Rule | None:
    match clause:
        case None:
            return None
        case types.ClauseOr(or_=clauses):
            return Rule("any", rules=[_required(_rule(part)) for part in clauses])
        case types.ClauseAnd(and_=clauses):
            return Rule("all", rules=[_required(_rule(part)) for part in clauses])
        case types.ClauseRegex(regex=text):
            return Rule("regex", text)
    names = {
        types.ClauseEquals: "equals",
        types.ClauseContains: "contains",
        types.ClauseStartsWith: "starts_with",
        types.ClauseEndsWith: "ends_with",
    }
    kind = names[type(clause)]
    return Rule(kind, getattr(clause, kind).lower())


def model_prices(model: ModelInfo) -> ModelPrices:
    """Return the prices of a model of the package."""
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
    return _LARGE_WINDOW if window is None or window <= largest_tier else window


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


def _start_dates(model: ModelInfo) -> Iterator[date]:
    for price in model.prices if isinstance(model.prices, list) else ():
        if isinstance(price.constraint, StartDateConstraint):
            yield price.constraint.start_date


def encode(table: PriceTable) -> bytes:
    """Return the table as JSON with a line for each model."""
    return msgspec.json.encode(table) + b"\n"


def main() -> None:
    """Write the file."""
    PATH.write_bytes(encode(read_table()))


if __name__ == "__main__":
    main()
