"""Hooks and environment variables that a program adds to the turns it starts.

Neither can be stored: hooks are Python callables, and variables may be secret. A turn stores only
an id, and only the process that registered the hooks under this id can run the turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from segue.model import ids
from segue.model.errors import NoAgent
from segue.model.event import ToolResult

from . import Turn
from .spec import PermissionOverride

HOOKS_KEY = "turn_hooks"  # the key of the hooks' id in an agent's specification


class HookedCall(NamedTuple):
    """A tool call as hooks receive it; `server` is set for the tool of an MCP server."""

    id: str
    name: str
    server: str | None
    input: Any


class PreToolDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of hooks about a tool call that has not run yet."""

    refusal: str | None = None  # the reason, if the call must not run
    override: PermissionOverride = None  # replaces the verdict of the policy
    input: dict[str, Any] | None = None  # replaces the model's input
    context: str | None = None  # a message for the model
    stop: bool = False  # end the turn


class PostToolDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of hooks about the result of a tool call."""

    output: str | None = None  # replaces the tool's output
    context: str | None = None  # a message for the model
    stop: bool = False  # end the turn


class Hooks(Protocol):
    """Callbacks of a program at the points of a turn where it may intervene."""

    async def before_tool(self, turn: Turn, call: HookedCall) -> PreToolDecision: ...
    async def after_tool(
        self, turn: Turn, call: HookedCall, result: ToolResult
    ) -> PostToolDecision: ...
    async def before_compaction(self, turn: Turn) -> None: ...
    async def before_stop(self, turn: Turn, *, continued: bool) -> str | None:
        """Return a reason to continue the turn, or None to let it end.

        `continued` is true if this method has already continued the turn.
        """
        ...


class TurnHooks(NamedTuple):
    """The hooks and environment variables of one session."""

    hooks: Hooks | None = None
    env: Mapping[str, str] = {}


class HookRegistry:
    """The hooks that this process has registered, by id."""

    def __init__(self) -> None:
        self._by_id: dict[str, TurnHooks] = {}

    def register(self, hooks: TurnHooks) -> str:
        """Register hooks and return their id."""
        hooks_id = ids.new_id()
        self._by_id[hooks_id] = hooks
        return hooks_id

    def unregister(self, hooks_id: str) -> None:
        """Forget the hooks with an id."""
        self._by_id.pop(hooks_id, None)

    def for_spec(self, spec: Mapping[str, Any]) -> TurnHooks:
        """Return the hooks that a turn's specification refers to.

        Raises NoAgent if another process registered them.
        """
        hooks_id = spec.get(HOOKS_KEY)
        if hooks_id is None:
            return TurnHooks()
        if hooks_id not in self._by_id:
            raise NoAgent("this turn needs hooks that only the process that started it has")
        return self._by_id[hooks_id]
