"""Run a program's hooks around its turns, with the inputs and outputs of Claude's Agent SDK.

A hook is `async def hook(input, tool_use_id, context)` and returns a dict. Hooks run one after the
other, in order. If a hook fails before a tool call, the call is refused: the hook may be a guard.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import msgspec

from segue.agents.base import Turn
from segue.agents.base.spec import PermissionOverride
from segue.agents.base.turn_hooks import HookedCall, PostToolDecision, PreToolDecision
from segue.model.anthropic.content_blocks import result_block
from segue.model.content import Text, plain_text
from segue.model.errors import AgentFailed, InvalidInput
from segue.model.event import ToolResult
from segue.model.session import Session

from .options import sdk_tool_name

Hook = Callable[[Any, str | None, Any], Awaitable[Mapping[str, Any]]]

EVENTS = (
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "UserPromptSubmit",
    "PreCompact",
    "Stop",
)
DEFAULT_TIMEOUT_SECONDS = 60.0
_MATCHER_FIELDS = ("matcher", "hooks", "timeout")
# The Agent SDK's keys of what a hook returns, with the types or the values that they may have.
_OUTPUT_KEYS: dict[str, tuple[Any, ...]] = {
    "continue_": (bool,),
    "continue": (bool,),
    "async_": (bool,),
    "async": (bool,),
    "asyncTimeout": (int,),
    "suppressOutput": (bool,),
    "stopReason": (str,),
    "decision": ("block", "deny", "approve"),
    "systemMessage": (str,),
    "reason": (str,),
    "hookSpecificOutput": (Mapping,),
}
_CONTEXT: dict[str, tuple[Any, ...]] = {"hookEventName": (str,), "additionalContext": (str,)}
_SPECIFIC_KEYS: dict[str, dict[str, tuple[Any, ...]]] = {
    "PreToolUse": {
        **_CONTEXT,
        "permissionDecision": ("allow", "ask", "deny"),
        "permissionDecisionReason": (str,),
        "updatedInput": (Mapping,),
    },
    "PostToolUse": {**_CONTEXT, "updatedToolOutput": (object,), "updatedMCPToolOutput": (object,)},
    "PostToolUseFailure": _CONTEXT,
    "UserPromptSubmit": {
        **_CONTEXT,
        "sessionTitle": (str,),
        "suppressOriginalPrompt": (bool,),
    },
    "PreCompact": _CONTEXT,
    "Stop": _CONTEXT,
}
_TOOL_NAMES = re.compile(r"[\w|]+")

log = logging.getLogger("segue.hooks")


class _Matcher(NamedTuple):
    """Hooks for the tools whose name matches a pattern; without one, for all tools."""

    pattern: re.Pattern[str] | None
    hooks: tuple[Hook, ...]
    timeout_seconds: float

    def matches(self, tool_name: str | None) -> bool:
        if self.pattern is None or tool_name is None:
            return True
        return self.pattern.search(tool_name) is not None


def check_matchers(matchers: Mapping[str, Any]) -> None:
    """Raise InvalidInput for an unknown event, or hooks of an event that are not a list."""
    if unknown := sorted(matchers.keys() - set(EVENTS)):
        raise InvalidInput(
            f"hooks: unknown event {unknown[0]!r}; known events are {', '.join(EVENTS)}"
        )
    for event, value in matchers.items():
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
            raise InvalidInput(
                f"hooks: {event} must be a list of matchers, not {value!r};"
                ' write [{"hooks": [function]}]'
            )


class ProgramHooks:
    """All hooks of a session."""

    def __init__(self, matchers: Mapping[str, Iterable[Any]]) -> None:
        """Read hooks by event: lists of objects or dicts with `matcher`, `hooks` and `timeout`.

        Raises InvalidInput for an unknown event or a malformed matcher.
        """
        check_matchers(matchers)
        self._matchers = {
            event: [_read_matcher(event, matcher) for matcher in matchers[event]]
            for event in matchers
        }

    async def before_prompt(self, session: Session, mode: str | None, text: str) -> str | None:
        """Return what hooks add to a prompt. Raises InvalidInput if a hook blocks it."""
        context: list[str] = []
        event = _HookEvent("UserPromptSubmit", session, mode, prompt=text)
        for hook in self._matching(event):
            output = await event.run(hook)
            if output.stops or output.blocks:
                raise InvalidInput(f"a hook blocked the prompt: {output.reason}")
            context += output.context
        return _join(context)

    # The protocol `segue.agents.base.turn_hooks.Hooks`.

    async def before_tool(self, turn: Turn, call: HookedCall) -> PreToolDecision:
        """Decide about a tool call. A failing hook refuses it."""
        event = _HookEvent("PreToolUse", turn.session, turn.session.mode, call)
        context: list[str] = []
        override: PermissionOverride = None
        for hook in self._matching(event):
            try:
                output = await event.run(hook)
            except AgentFailed as error:
                return PreToolDecision(refusal=error.message)
            decision = output.specific.get("permissionDecision")
            new_input = output.specific.get("updatedInput")
            if output.stops or output.blocks or decision == "deny":
                return PreToolDecision(
                    refusal=f"this was refused: {output.reason}", stop=output.stops
                )
            context += output.context
            if decision is not None:
                override = "ask" if "ask" in (override, decision) else "allow"
            if new_input is not None:
                event.input["tool_input"] = dict(new_input)
        tool_input = event.input["tool_input"]
        return PreToolDecision(
            override=override,
            input=None if tool_input == call.input else tool_input,
            context=_join(context),
        )

    async def after_tool(
        self, turn: Turn, call: HookedCall, result: ToolResult
    ) -> PostToolDecision:
        """Change or add to the result of a tool call. Raises AgentFailed if a hook fails."""
        failed = result.status != "completed"
        name = "PostToolUseFailure" if failed else "PostToolUse"
        fields = (
            {"error": plain_text(result.content)}
            if failed
            else {"tool_response": _tool_response(result)}
        )
        event = _HookEvent(name, turn.session, turn.session.mode, call, **fields)
        context: list[str] = []
        new_output: str | None = None
        stop = False
        for hook in self._matching(event):
            output = await event.run(hook)
            context += [*output.context, *([output.reason] if output.blocks else [])]
            stop = stop or output.stops
            for key in ("updatedToolOutput", "updatedMCPToolOutput"):
                if (response := output.specific.get(key)) is not None and not failed:
                    event.input["tool_response"] = response
                    new_output = response if isinstance(response, str) else _to_json(response)
        return PostToolDecision(output=new_output, context=_join(context), stop=stop)

    async def before_compaction(self, turn: Turn) -> None:
        """Run the hooks for a compaction; their output has no effect."""
        fields: dict[str, Any] = {"trigger": "auto", "custom_instructions": None}
        event = _HookEvent("PreCompact", turn.session, turn.session.mode, **fields)
        for hook in self._matching(event):
            await event.run(hook)

    async def before_stop(self, turn: Turn, *, continued: bool) -> str | None:
        """Return why the agent should continue after all; None if it may stop."""
        event = _HookEvent("Stop", turn.session, turn.session.mode, stop_hook_active=continued)
        reasons: list[str] = []
        stops = False
        for hook in self._matching(event):
            output = await event.run(hook)
            stops = stops or output.stops
            reasons += [output.reason] if output.blocks else []
        return None if stops else _join(reasons)

    def _matching(self, event: _HookEvent) -> list[tuple[Hook, float]]:
        """Return the hooks for an event, each with its timeout in seconds."""
        tool_name = event.input.get("tool_name")
        return [
            (hook, matcher.timeout_seconds)
            for matcher in self._matchers.get(event.name, ())
            if matcher.matches(tool_name)
            for hook in matcher.hooks
        ]


class _HookEvent:
    """The input of the hooks for one event; each hook sees the changes of the hooks before it."""

    def __init__(
        self,
        name: str,
        session: Session,
        mode: str | None,
        call: HookedCall | None = None,
        **fields: Any,
    ) -> None:
        self.name = name
        self._call = call
        self.input: dict[str, Any] = {
            "hook_event_name": name,
            "session_id": session.id,
            "transcript_path": "",  # sessions are in a store, not in a file
            "cwd": session.cwd,
            "permission_mode": mode or "default",
            **fields,
        }
        if call is not None:
            self.input |= {
                "tool_name": sdk_tool_name(call.name, call.server),
                "tool_input": call.input,
                "tool_use_id": call.id,
            }

    async def run(self, hook: tuple[Hook, float]) -> _HookOutput:
        """Return the output of a hook. Raises AgentFailed if it fails or takes too long."""
        function, timeout_seconds = hook
        try:
            async with asyncio.timeout(timeout_seconds):
                own_copy = deepcopy(self.input)  # a hook that changes its input changes nothing
                result = await function(own_copy, self._call and self._call.id, {"signal": None})
            output = _HookOutput(self.name, result)
        except Exception as error:
            message = str(error) or f"it took longer than {timeout_seconds:g} s"
            raise AgentFailed(
                f"a hook for {self.name} failed: {type(error).__name__}: {message}"
            ) from error
        if output.warning:
            log.warning("%s: %s", self.name, output.warning)
        return output


class _HookOutput:
    """The output of a hook. `continue_` stands for `continue`, which is a keyword in Python."""

    def __init__(self, event: str, result: Mapping[str, Any] | None) -> None:
        result = {} if result is None else result
        _check_output("its answer", result, _OUTPUT_KEYS)
        self.specific: Mapping[str, Any] = result.get("hookSpecificOutput") or {}
        _check_output("hookSpecificOutput", self.specific, _SPECIFIC_KEYS[event])
        named_event = self.specific.get("hookEventName", event)
        if named_event != event:
            raise ValueError(f"a hook for {event} returned output for {named_event}")
        self.stops = result.get("continue_", result.get("continue", True)) is False
        self.blocks = result.get("decision") in ("block", "deny")
        self.warning = result.get("systemMessage")
        reason = self.specific.get("permissionDecisionReason") or result.get("reason")
        self.reason = str(reason or result.get("stopReason") or "the hook gave no reason")

    @property
    def context(self) -> list[str]:
        """What the hook adds for the model."""
        context = self.specific.get("additionalContext")
        return [str(context)] if context else []


def _check_output(name: str, value: Any, keys: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise ValueError for a key or a value that a hook cannot return; None is no value."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a dict, not {value!r}")
    for key, item in value.items():
        if key not in keys:
            raise ValueError(f"{name} has the unknown key {key!r}; use {', '.join(keys)}")
        types = tuple(allowed for allowed in keys[key] if isinstance(allowed, type))
        if item is None or (isinstance(item, types) if types else item in keys[key]):
            continue
        names = [
            "dict" if kind is Mapping else getattr(kind, "__name__", kind) for kind in keys[key]
        ]
        raise ValueError(f"{key} must be {' or '.join(names)}, not {item!r}")


def _read_matcher(event: str, value: Any) -> _Matcher:
    def get(name: str) -> Any:
        return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)

    fields = value.keys() if isinstance(value, Mapping) else _set_fields(value)
    if unknown := sorted(map(str, set(fields) - set(_MATCHER_FIELDS))):
        raise InvalidInput(
            f"hooks: a matcher of {event} has the unknown field {unknown[0]!r};"
            f" the fields are {', '.join(_MATCHER_FIELDS)}"
        )
    functions = get("hooks")
    hooks = tuple(functions) if isinstance(functions, Iterable) else ()
    if not hooks or not all(callable(hook) for hook in hooks):
        raise InvalidInput(f"hooks: {event} needs matchers, each with a list of functions")
    matcher, timeout = get("matcher"), get("timeout")
    timeout = DEFAULT_TIMEOUT_SECONDS if timeout is None else timeout
    if not isinstance(matcher, str | None):
        raise InvalidInput(f"hooks: a matcher must be a string, not {matcher!r}")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise InvalidInput(f"hooks: a timeout must be more than 0 seconds, not {timeout!r}")
    for hook in hooks:
        if not _is_async(hook):
            raise InvalidInput(f"hooks: {event} needs async functions; {hook!r} is not one")
    try:
        pattern = None if matcher in (None, "", "*") else _compile(matcher)
    except re.error as error:
        raise InvalidInput(f"hooks: matcher {matcher!r} is not a valid pattern: {error}") from None
    return _Matcher(pattern, hooks, timeout)


def _set_fields(matcher: Any) -> list[str]:
    """Return the fields of a matcher such as the Agent SDK's that have another value than None."""
    return [name for name, value in getattr(matcher, "__dict__", {}).items() if value is not None]


def _is_async(function: Any) -> bool:
    """Return whether calling a function, a method, a partial or an object gives an awaitable."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )


def _compile(matcher: str) -> re.Pattern[str]:
    """Return a pattern: tool names joined by `|` match exactly, anything else is a regex."""
    return re.compile(rf"^(?:{matcher})$" if _TOOL_NAMES.fullmatch(matcher) else matcher)


def _tool_response(result: ToolResult) -> Any:
    """Return a result as text, or as blocks if it contains more than text."""
    is_text = all(isinstance(block, Text) for block in result.content)
    return plain_text(result.content) if is_text else result_block(result)["content"]


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _join(texts: Iterable[str]) -> str | None:
    return "\n\n".join(texts) or None
