"""The list prices of models, from the table of pydantic-ai."""

from __future__ import annotations

_TOKENS = 1_000_000


def has_price(model: str) -> bool:
    """Return True if the price of `provider:name` is known and not zero.

    The first call reads the price table.
    """
    provider, _, name = model.partition(":")
    try:
        from genai_prices import Usage, calc_price

        usage = Usage(input_tokens=_TOKENS, output_tokens=_TOKENS)
        return calc_price(usage, name, provider_id=provider).total_price > 0
    except (ImportError, LookupError):
        return False
