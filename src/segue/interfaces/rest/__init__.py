"""The sessions REST API, as the official `anthropic` clients call it."""

from .app import RestApp

__all__ = ["RestApp"]
