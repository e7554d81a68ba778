"""Conformance checks for ACP agents, of both protocol versions.

`check_agent` runs the checks against an agent, which is a command or any function that connects to
one. Each check names the rule of the protocol that it checks.
"""

from .report import Report, Result
from .runner import check_agent, start_command

__all__ = ["Report", "Result", "check_agent", "start_command"]
