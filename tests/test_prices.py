"""Estimated costs: those that the price table computes, which is that of genai-prices."""

from contextlib import suppress
from datetime import UTC, datetime

import genai_prices
import pytest
from genai_prices.data_snapshot import get_snapshot

from segue.model.event import Usage
from segue.prices.estimate import estimate, has_price, with_cost
from segue.prices.table import PATH, look_up
from segue.prices.values import ModelPrices
from tests import price_table

DAY = datetime(2026, 6, 1, 12, tzinfo=UTC)
SMALL = Usage(
    input_tokens=1_003, output_tokens=517, cache_read_tokens=20_011, cache_write_tokens=307,
    cache_1h_tokens=101,
)  # fmt: skip
LARGE = Usage(input_tokens=120_001, output_tokens=999, cache_read_tokens=150_003)


def micros(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000


def listed_cost(usage: Usage, model: str, moment: datetime, provider: str | None = None) -> int:
    """Return the cost that the price table computes itself."""
    counts = genai_prices.Usage(
        input_tokens=usage.context_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens or 0,
        cache_write_tokens=usage.cache_write_tokens or 0,
        cache_write_1h_tokens=usage.cache_1h_tokens or 0,
    )
    price = genai_prices.calc_price(
        counts, model, provider_id=provider, genai_request_timestamp=moment
    )
    return round(price.total_price * 1_000_000)


@pytest.mark.parametrize("usage", [SMALL, LARGE], ids=["small context", "large context"])
@pytest.mark.parametrize(
    "model",
    [
        "claude-sonnet-4-5-20250929",
        "claude-opus-4-1",
        "gpt-5-codex",
        "gpt-5.4",
        "gemini-2.5-pro",
        "kimi-k2-0905-preview",
        "grok-code-fast-1",
    ],
)
def test_estimate_is_the_cost_that_the_price_table_computes(model: str, usage: Usage) -> None:
    cost = listed_cost(usage, model, DAY)
    assert estimate(usage, model, micros(DAY)) == cost > 0
    assert with_cost(usage, model, micros(DAY)).estimated_cost == cost


@pytest.mark.parametrize("provider", ["anthropic", "openai", "google", "deepseek", "perplexity"])
def test_estimate_has_the_prices_of_the_time_and_the_size_of_a_request(provider: str) -> None:
    (models,) = [entry.models for entry in get_snapshot().providers if entry.id == provider]
    compared = 0
    for moment in (
        datetime(2024, 6, 1, 12, tzinfo=UTC),
        datetime(2026, 10, 15, 7, tzinfo=UTC),
        datetime(2026, 11, 17, 23, tzinfo=UTC),
    ):
        for model in models:
            for usage in (SMALL, LARGE):
                if ":" in model.id or usage.context_tokens > (model.context_window or 1 << 40):
                    continue
                cost = estimate(usage, f"{provider}:{model.id}", micros(moment))
                listed = listed_cost(usage, model.id, moment, provider)
                assert cost == listed or (cost is None and not listed), (model.id, moment)
                compared += 1
    assert compared > 20


def test_cache_reads_and_writes_have_prices_of_their_own() -> None:
    model, at = "claude-sonnet-4-5", micros(DAY)
    tokens = 1_000_000
    fresh = estimate(Usage(input_tokens=1000), model, at)
    read = estimate(Usage(cache_read_tokens=1000), model, at)
    write = estimate(Usage(cache_write_tokens=1000), model, at)
    hour = estimate(Usage(cache_write_tokens=1000, cache_1h_tokens=1000), model, at)
    assert (fresh, read, write, hour) == (3000, 300, 3750, 6000)
    assert estimate(Usage(output_tokens=tokens), model, at) == 15 * tokens


def test_tokens_of_several_requests_cost_the_price_of_a_small_context() -> None:
    model, at = "claude-sonnet-4-5", micros(DAY)
    small = estimate(Usage(input_tokens=1_000), model, at)
    assert small is not None
    assert estimate(Usage(input_tokens=100_000_000), model, at) == 100_000 * small


@pytest.mark.parametrize("model", ["no-such-model", "m", "x" * 10_000, "\ud800", ":", "a:b/c:d"])
def test_model_without_a_known_price_has_no_cost(model: str) -> None:
    assert with_cost(SMALL, model, 0) is SMALL
    assert not has_price(model)


def test_reported_cost_and_empty_usage_stay_as_they_are() -> None:
    reported = Usage(input_tokens=5, cost=7)
    assert with_cost(reported, "gpt-5", 0) is reported
    assert with_cost(Usage(input_tokens=0), "gpt-5", 0) == Usage(input_tokens=0)
    assert with_cost(SMALL, None, 0) is SMALL


def test_model_may_be_named_with_its_provider() -> None:
    at = micros(DAY)
    cost = estimate(SMALL, "claude-sonnet-4-5", at)
    assert cost == estimate(SMALL, "anthropic:claude-sonnet-4-5", at)
    assert cost == estimate(SMALL, "anthropic/claude-sonnet-4-5", at)
    assert has_price("openai:gpt-5")


def test_table_has_the_prices_of_the_package_that_the_tests_install() -> None:
    assert PATH.read_bytes() == price_table.encode(price_table.read_table())


def test_names_mean_the_same_models_as_in_the_package() -> None:
    names = [model.id for provider in get_snapshot().providers for model in provider.models]
    names += ["gpt-5.2-20251211", "gpt-5-2025-08-07", "gpt-5-20250230", "Claude-Sonnet-4-5"]
    providers = [provider.id for provider in get_snapshot().providers]
    names += [f"{provider}:{name}" for provider in providers for name in names[::97]]
    names += [f"litellm/{name}" for name in ("gpt-5", "anthropic/claude-opus-4-5", "x-ai/grok-4")]
    for name in names:
        assert look_up(name) == package_prices(name), name


def package_prices(name: str) -> ModelPrices:
    """Return the prices of the model that the package finds under a name."""
    for separator in (":", "/", None):
        provider, found, rest = name.partition(separator) if separator else (None, "", name)
        if (separator is None or (found and provider)) and rest:
            with suppress(LookupError):
                model = get_snapshot().find_provider_model(rest, None, provider, None)[1]
                return price_table.model_prices(model)
    return ModelPrices()
