"""Look up the prices of a model in the price table, a file of this package.

The table has the prices of genai-prices and its rules, which say what names a model has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path

import msgspec

from .values import ModelPrices

PATH = Path(__file__).with_name("list_prices.json")
_COMPACT_DATE = re.compile(r"-(20\d{2})(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)")
_PROXY = "litellm"  # the name of a model begins with the name of the provider behind it


class Rule(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Which names match; `text` is in lower case, unless it is a regular expression."""

    kind: str
    text: str = ""
    rules: list[Rule] = []

    def matches(self, name: str) -> bool:
        """Return whether a name in lower case matches."""
        match self.kind:
            case "equals":
                return name == self.text
            case "contains":
                return self.text in name
            case "starts_with":
                return name.startswith(self.text)
            case "ends_with":
                return name.endswith(self.text)
            case "regex":
                return re.search(self.text, name) is not None
            case "any":
                return any(rule.matches(name) for rule in self.rules)
        return all(rule.matches(name) for rule in self.rules)


class ListedModel(msgspec.Struct, frozen=True, array_like=True):
    """A model of a provider: the rule for its names, and its encoded prices."""

    rule: Rule
    prices: msgspec.Raw


class Provider(msgspec.Struct, frozen=True, array_like=True):
    """A provider: the rules for its own names and for the models that it is known by."""

    id: str
    provider_rule: Rule | None
    model_rule: Rule | None
    fallbacks: list[str]  # providers whose models it offers as well
    models: msgspec.Raw  # a list of ListedModel; most providers' models are never read


class PriceTable(msgspec.Struct, frozen=True):
    """All list prices; prices changed on the `dates`."""

    name: str
    dates: list[date]
    providers: list[Provider]


def look_up(name: str) -> ModelPrices:
    """Return the prices of a model in the table; none if it is not there."""
    for provider_name, model in _references(name.lower()):
        provider = _find_provider(provider_name, model)
        listed = None if provider is None else _find_model(provider, model)
        if listed is not None:
            return msgspec.json.decode(listed.prices, type=ModelPrices)
    return ModelPrices()


def table_version() -> str:
    """Return the version of the price table, and the date of its newest price up to today."""
    table = _table()
    today = datetime.now(UTC).date()
    newest = max(day for day in table.dates if day <= today)
    return f"{table.name}, with prices up to {newest}"


@cache
def _table() -> PriceTable:
    return msgspec.json.decode(PATH.read_bytes(), type=PriceTable)


@cache
def _models(provider: str) -> list[ListedModel]:
    (models,) = (entry.models for entry in _table().providers if entry.id == provider)
    return msgspec.json.decode(models, type=list[ListedModel])


def _references(name: str) -> Iterator[tuple[str | None, str]]:
    """Return the providers and model names that a name can mean, the most likely first."""
    for separator in (":", "/"):
        provider, found, rest = name.partition(separator)
        if found and provider and rest:
            if provider == _PROXY:
                yield from _references(rest)
            yield provider, rest
    yield None, name


def _find_provider(name: str | None, model: str) -> Provider | None:
    providers = _table().providers
    if name is None:
        return next((p for p in providers if p.model_rule and p.model_rule.matches(model)), None)
    name = name.strip()
    exact = next((provider for provider in providers if provider.id == name), None)
    return exact or next(
        (p for p in providers if p.provider_rule and p.provider_rule.matches(name)), None
    )


def _find_model(provider: Provider, name: str) -> ListedModel | None:
    """Return a model by its name, also if a date in it has no hyphens."""
    for spelling in dict.fromkeys((name, _COMPACT_DATE.sub(_with_hyphens, name))):
        for offering in _offering(provider):
            for model in _models(offering.id):
                if model.rule.matches(spelling):
                    return model
    return None


def _offering(provider: Provider) -> Iterator[Provider]:
    """Return a provider and those whose models it offers as well."""
    yield provider
    for id in provider.fallbacks:
        yield from (other for other in _table().providers if other.id == id)


def _with_hyphens(match: re.Match[str]) -> str:
    try:
        return f"-{date(*map(int, match.groups()))}"
    except ValueError:  # such as February 30
        return match[0]
