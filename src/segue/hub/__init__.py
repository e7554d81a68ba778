"""The hub: what doors call, and nothing below it."""

from .hub import Hub
from .pages import Page
from .reading import Found, Results
from .retention import Policy
from .runners import Runners

__all__ = ["Found", "Hub", "Page", "Policy", "Results", "Runners"]
