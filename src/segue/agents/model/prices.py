"""The list prices of models, from the table that comes with pydantic-ai."""

from __future__ import annotations

_MANY = 1_000_000


def has_price(model: str) -> bool:
    """Whether `provider:name` is known to cost something. The first time reads the table."""
    provider, _, name = model.partition(":")
    try:
        from genai_prices import Usage, calc_price

        many = Usage(input_tokens=_MANY, output_tokens=_MANY)
        return calc_price(many, name, provider_id=provider).total_price > 0
    except (ImportError, LookupError):
        return False
