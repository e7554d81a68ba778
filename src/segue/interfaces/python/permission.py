"""Call a program's `can_use_tool` and read its answer.

It takes two or three arguments. With two, `async def can_use_tool(name, input)` gets segue's name
of the tool. With three, `async def can_use_tool(name, input, context)` gets the Agent SDK's name.
It returns True, False or an object as in the Agent SDK, whose `behavior` is `allow` (with
`updated_input` and `updated_permissions`) or `deny` (with `message` and `interrupt`).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from segue.agents.base.spec import MODES
from segue.model.errors import InvalidInput
from segue.model.event import ConfigChanged, PermissionAsked, ToolCall
from segue.model.session import ALWAYS_ALLOWED, Session
from segue.model.tools.titles import request_title

from .options import CanUseTool, always_allow_name, sdk_tool_name

NO_CAN_USE_TOOL = "no can_use_tool answers permission requests; pass it or another permission_mode"
SESSION_DESTINATIONS = (None, "session")  # of permission updates


class PermissionRule(NamedTuple):
    """A tool, and a pattern for some of its calls; None for all calls."""

    tool_name: str
    rule_content: str | None = None


@dataclass
class PermissionUpdate:
    """A change of permissions that an answer may request."""

    type: str
    rules: list[PermissionRule] | None = None
    behavior: str | None = None
    mode: str | None = None
    directories: list[str] | None = None
    destination: str | None = "session"


@dataclass
class ToolContext:
    """The third argument of `can_use_tool`, with the fields of the Agent SDK."""

    tool_use_id: str | None = None
    title: str | None = None
    display_name: str | None = None
    description: str | None = None
    suggestions: list[PermissionUpdate] = field(default_factory=list)
    blocked_path: str | None = None
    decision_reason: str | None = None
    agent_id: str | None = None
    signal: None = None


class PermissionDecision(NamedTuple):
    """A program's answer to a permission request."""

    allowed: bool
    note: str | None = None
    input: dict[str, Any] | None = None
    interrupt: bool = False
    updates: Sequence[Any] = ()


async def request_permission(
    can_use_tool: CanUseTool | None, request: PermissionAsked, call: ToolCall | None
) -> PermissionDecision:
    """Ask the program; without `can_use_tool` the request is refused.

    Raises InvalidInput for a malformed answer.
    """
    if can_use_tool is None:
        return PermissionDecision(allowed=False, note=NO_CAN_USE_TOOL)
    title = request_title(request, call)
    name, tool_input = (title, None) if call is None else (call.name, call.input)
    if _count_arguments(can_use_tool) < 3:
        return _read_answer(await can_use_tool(name, tool_input))
    sdk_name = sdk_tool_name(name, None if call is None else call.server)
    can_always_allow = any(option.kind == "allow_always" for option in request.options)
    suggestion = PermissionUpdate("addRules", [PermissionRule(sdk_name)], "allow")
    context = ToolContext(
        tool_use_id=request.call_id,
        title=title,
        display_name=sdk_name,
        suggestions=[suggestion] if can_always_allow else [],
    )
    return _read_answer(await can_use_tool(sdk_name, tool_input, context))


def session_changes(
    updates: Sequence[Any], session: Session, own_mode: str | None
) -> list[ConfigChanged]:
    """Return the changes of the session that permission updates mean.

    `own_mode` is the mode of the program's own turns, which no update changes. Raises InvalidInput
    for an update that a session cannot store.
    """
    changes: list[ConfigChanged] = []
    allowed = set(session.options.get(ALWAYS_ALLOWED, ()))
    for update in updates:
        kind = _get(update, "type")
        destination = _get(update, "destination")
        if destination not in SESSION_DESTINATIONS:
            raise InvalidInput(
                f"updated_permissions: destination {destination!r} is not supported; use session"
            )
        rules = [_rule_name(rule) for rule in _get(update, "rules") or ()]
        mode = _get(update, "mode")
        if kind == "addRules" and _get(update, "behavior") == "allow" and rules:
            allowed.update(rules)
            changes.append(ConfigChanged(options={ALWAYS_ALLOWED: sorted(allowed)}))
        elif kind == "setMode" and mode in MODES and own_mode is None:
            changes.append(ConfigChanged(mode=mode))
        elif kind == "setMode" and mode in MODES:
            raise InvalidInput(
                f"updated_permissions: cannot set mode {mode!r}, because the session was opened"
                f" with permission_mode {own_mode!r}"
            )
        else:
            raise InvalidInput(
                f"updated_permissions: {kind!r} with these values is not supported;"
                " use addRules with behavior allow, or setMode"
            )
    return changes


def _rule_name(rule: Any) -> str:
    content = _get(rule, "rule_content", "ruleContent")
    if content is not None:
        raise InvalidInput(
            f"updated_permissions: rule content {content!r} is not supported;"
            " a rule allows all calls of a tool"
        )
    return always_allow_name(str(_get(rule, "tool_name", "toolName")))


def _read_answer(answer: Any) -> PermissionDecision:
    if isinstance(answer, bool):
        return PermissionDecision(answer)
    match _get(answer, "behavior"):
        case "allow":
            new_input = _get(answer, "updated_input", "updatedInput")
            return PermissionDecision(
                allowed=True,
                input=None if new_input is None else dict(new_input),
                updates=_get(answer, "updated_permissions", "updatedPermissions") or (),
            )
        case "deny":
            message = _get(answer, "message")
            return PermissionDecision(
                allowed=False,
                note=str(message) if message else None,
                interrupt=bool(_get(answer, "interrupt")),
            )
    raise InvalidInput(
        f"can_use_tool answers with True, False or a behavior of allow or deny, not {answer!r}"
    )


def _get(value: Any, *names: str) -> Any:
    """Return the first attribute, or entry of a dict, that is not None."""
    for name in names:
        item = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        if item is not None:
            return item
    return None


def _count_arguments(function: Any) -> int:
    """Return how many positional arguments a function takes; 3 if it takes any number."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return 3
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in positional for parameter in parameters)
