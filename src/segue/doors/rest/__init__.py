"""The REST door: `/v1/sessions` and its family, as the official `anthropic` clients call it."""

from .door import Door

__all__ = ["Door"]
