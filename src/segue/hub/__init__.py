"""The hub: what doors call, and nothing below it."""

from .hub import Hub
from .sessions.catalog import Found, Results
from .sessions.pagination import Page
from .sessions.retention import Policy

__all__ = ["Found", "Hub", "Page", "Policy", "Results"]
