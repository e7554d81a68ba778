"""The hub: what doors call, and nothing below it."""

from .hub import Found, Hub, Results
from .pages import Page
from .retention import Policy
from .runners import Runners

__all__ = ["Found", "Hub", "Page", "Policy", "Results", "Runners"]
