"""What a program lends the turns that it asks for: hooks, and variables for its tools' programs.

Neither can be stored. A turn names what it was lent, and only the process that has it runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from segue.model import ids
from segue.model.errors import NoAgent
from segue.model.event import ToolResult

from .base import Turn

HOOKS_KEY = "turn_hooks"  # the name in an agent's specification


class HookedCall(NamedTuple):
    """A tool call, as hooks are told of it; one of an MCP server names that."""

    id: str
    name: str
    server: str | None
    input: Any


class PreToolDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What hooks say to a call that is about to be made."""

    refusal: str | None = None
    override: Literal["allow", "ask"] | None = None  # instead of what the policy says
    input: dict[str, Any] | None = None  # instead of what the model gave
    context: str | None = None  # for the model to know
    stop: bool = False  # the turn ends


class PostToolDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What they say to its result."""

    output: str | None = None  # instead of what the tool gave
    context: str | None = None
    stop: bool = False


class Hooks(Protocol):
    """A program that watches over a turn."""

    async def before_tool(self, turn: Turn, call: HookedCall) -> PreToolDecision: ...
    async def after_tool(
        self, turn: Turn, call: HookedCall, result: ToolResult
    ) -> PostToolDecision: ...
    async def before_compaction(self, turn: Turn) -> None: ...
    async def before_stop(self, turn: Turn, *, continued: bool) -> str | None:
        """Why the agent should go on after all, if it should; `again`, when it did already."""
        ...


class TurnHooks(NamedTuple):
    """All of it, for one session."""

    hooks: Hooks | None = None
    env: Mapping[str, str] = {}


class HookRegistry:
    """What this process has lent, by the name that turns have for it."""

    def __init__(self) -> None:
        self._lent: dict[str, TurnHooks] = {}

    def register(self, lent: TurnHooks) -> str:
        name = ids.new_id()
        self._lent[name] = lent
        return name

    def unregister(self, name: str) -> None:
        self._lent.pop(name, None)

    def for_spec(self, spec: Mapping[str, Any]) -> TurnHooks:
        """What a turn was lent; NoAgent where that was another process."""
        name = spec.get(HOOKS_KEY)
        if name is None:
            return TurnHooks()
        if name not in self._lent:
            raise NoAgent("this turn has hooks or variables of the program that asked for it")
        return self._lent[name]
