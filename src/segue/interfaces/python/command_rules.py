"""Rules that allow or forbid some shell commands: `Bash(git:*)`, `Bash(npm test)`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from segue.model.errors import InvalidInput
from segue.model.event import ToolCall

_RULE = re.compile(r"([A-Za-z_]+)\((.*)\)", re.DOTALL)
_SHELL_TOOLS = ("bash", "Bash")
# What joins commands, redirects them or runs one inside of another.
_OPERATORS = re.compile(r"[;&|<>`\n\r(){}]|\$\(")


class CommandRule(NamedTuple):
    """A command; with `prefix` also every command that begins with it and a space."""

    command: str
    prefix: bool

    def matches(self, command: str) -> bool:
        """Return whether one simple command matches."""
        words = " ".join(command.split())
        return words == self.command or (self.prefix and words.startswith(f"{self.command} "))


def command_rule(name: str) -> CommandRule | None:
    """Return the rule of a name such as `Bash(git:*)`; None for the name of a whole tool.

    Raises InvalidInput for a rule of another tool, and for an empty one.
    """
    match = _RULE.fullmatch(name)
    if match is None:
        return None
    tool, content = match.groups()
    if tool not in _SHELL_TOOLS:
        raise InvalidInput(f"{name!r}: only Bash has rules; name the whole tool {tool}")
    for ending in (":*", " *"):
        if content.endswith(ending):
            return _rule(name, content.removesuffix(ending), prefix=True)
    return _rule(name, content, prefix=False)


def _rule(name: str, command: str, *, prefix: bool) -> CommandRule:
    words = " ".join(command.split())
    if not words or "*" in words:
        raise InvalidInput(f"{name!r} is not a rule; use Bash(COMMAND) or Bash(COMMAND:*)")
    return CommandRule(words, prefix)


class CommandRules:
    """The rules of a session's options."""

    def __init__(self, allowed: Iterable[str], disallowed: Iterable[str]) -> None:
        self._allowed = [rule for name in allowed if (rule := command_rule(name))]
        self._disallowed = [rule for name in disallowed if (rule := command_rule(name))]

    @property
    def forbids_some(self) -> bool:
        """Return whether a rule forbids commands."""
        return bool(self._disallowed)

    def allows(self, call: ToolCall | None) -> bool:
        """Return whether a rule allows a call: one simple command, without operators."""
        command = None if call is None else _command(call.name, call.server, call.input)
        if command is None or _OPERATORS.search(command):
            return False
        return any(rule.matches(command) for rule in self._allowed)

    def forbidding(self, name: str, tool_input: Any) -> str | None:
        """Return the rule that forbids a call of a tool, if one of its commands matches."""
        command = _command(name, None, tool_input)
        if command is None:
            return None
        parts = [part for part in _OPERATORS.split(command) if part.strip()]
        for rule in self._disallowed:
            if any(rule.matches(part) for part in parts):
                return f"Bash({rule.command}{':*' if rule.prefix else ''})"
        return None

    async def deny_forbidden(self, hook_input: Any, *_: Any) -> dict[str, Any]:
        """Deny a command that a rule forbids; a hook before every use of a tool."""
        rule = self.forbidding(hook_input["tool_name"], hook_input["tool_input"])
        if rule is None:
            return {}
        denied = {
            "permissionDecision": "deny",
            "permissionDecisionReason": f"the rule {rule} forbids it",
        }
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **denied}}


def _command(name: str, server: str | None, tool_input: Any) -> str | None:
    """Return the command of a call of the shell."""
    if server is not None or name not in _SHELL_TOOLS or not isinstance(tool_input, dict):
        return None
    command = tool_input.get("command")
    return command if isinstance(command, str) else None
