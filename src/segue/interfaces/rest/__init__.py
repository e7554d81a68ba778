"""The REST door: `/v1/sessions` and its family, as the official `anthropic` clients call it."""

from .app import RestApp

__all__ = ["RestApp"]
