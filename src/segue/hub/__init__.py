"""The hub: what doors call, and nothing below it."""

from .hub import Hub
from .sessions.catalog import Found, Results
from .sessions.pagination import Page
from .sessions.retention import Policy
from .turns.agent_registry import Runners

__all__ = ["Found", "Hub", "Page", "Policy", "Results", "Runners"]
