"""What `can_use_tool` is told and may answer: True or False, or as Claude's Agent SDK has it.

There it is `async def can_use_tool(name, input, context)` and answers with an object that has a
`behavior`: `allow`, with `updated_input` and `updated_permissions`, or `deny`, with `message` and
`interrupt`. Who takes two arguments hears the tool's name as it is here, who takes three as it is
there.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from segue.agents.permission import ALWAYS_ALLOWED, MODES
from segue.model.errors import InvalidInput
from segue.model.event import ConfigChanged, PermissionAsked, ToolCall
from segue.model.session import Session

from .options import Ask, key, sdk_name

NOBODY = "nobody is there to ask: give can_use_tool, or another permission_mode"
SESSION = (None, "session")  # where a change of permissions may be kept


class Rule(NamedTuple):
    """A tool, and which of its uses; None for all."""

    tool_name: str
    rule_content: str | None = None


@dataclass
class Update:
    """A change of what is allowed, which an answer may ask for."""

    type: str
    rules: list[Rule] | None = None
    behavior: str | None = None
    mode: str | None = None
    directories: list[str] | None = None
    destination: str | None = "session"


@dataclass
class ToolContext:
    """What is known of a question beside the tool and its input."""

    tool_use_id: str | None = None
    title: str | None = None
    display_name: str | None = None
    description: str | None = None
    suggestions: list[Update] = field(default_factory=list)
    blocked_path: str | None = None
    decision_reason: str | None = None
    agent_id: str | None = None
    signal: None = None


class Permission(NamedTuple):
    """What a program says to a question."""

    allowed: bool
    note: str | None = None
    input: dict[str, Any] | None = None
    interrupt: bool = False
    updates: Sequence[Any] = ()


async def permission(ask: Ask | None, asked: PermissionAsked, call: ToolCall | None) -> Permission:
    """Ask the program; InvalidInput for an answer that cannot be."""
    if ask is None:
        return Permission(False, NOBODY)
    name, given = (asked.title, None) if call is None else (call.name, call.input)
    if _arguments(ask) < 3:
        return _read(await ask(name, given))
    server = None if call is None else call.server
    told = sdk_name(name, server)
    always = any(option.kind == "allow_always" for option in asked.options)
    context = ToolContext(
        tool_use_id=asked.call_id,
        title=asked.title,
        display_name=told,
        suggestions=[Update("addRules", [Rule(told)], "allow")] if always else [],
    )
    return _read(await ask(told, given, context))


def changes(updates: Sequence[Any], session: Session, chosen: str | None) -> list[ConfigChanged]:
    """What an answer changes in its session; InvalidInput for what cannot be true here.

    `chosen` is the mode that the program has for its own turns, which no answer changes.
    """
    found: list[ConfigChanged] = []
    allowed = set(session.options.get(ALWAYS_ALLOWED, ()))
    for update in updates:
        kind = _get(update, "type")
        if _get(update, "destination") not in SESSION:
            raise InvalidInput("updated_permissions: they are kept in the session, nowhere else")
        rules = [_rule(each) for each in _get(update, "rules") or ()]
        mode = _get(update, "mode")
        if kind == "addRules" and _get(update, "behavior") == "allow" and rules:
            allowed.update(rules)
            found.append(ConfigChanged(options={ALWAYS_ALLOWED: sorted(allowed)}))
        elif kind == "setMode" and mode in MODES and chosen is None:
            found.append(ConfigChanged(mode=mode))
        elif kind == "setMode" and mode in MODES:
            raise InvalidInput("updated_permissions: this session was opened in a mode of its own")
        else:
            raise InvalidInput(f"updated_permissions: {kind!r} with these values is not possible")
    return found


def _rule(given: Any) -> str:
    if _get(given, "rule_content", "ruleContent") is not None:
        raise InvalidInput("updated_permissions: a rule is for all uses of a tool, or none")
    return key(str(_get(given, "tool_name", "toolName")))


def _read(answer: Any) -> Permission:
    if isinstance(answer, bool):
        return Permission(answer)
    match _get(answer, "behavior"):
        case "allow":
            changed = _get(answer, "updated_input", "updatedInput")
            updates = _get(answer, "updated_permissions", "updatedPermissions") or ()
            given = None if changed is None else dict(changed)
            return Permission(True, input=given, updates=updates)
        case "deny":
            note, interrupt = _get(answer, "message"), bool(_get(answer, "interrupt"))
            return Permission(False, str(note) if note else None, interrupt=interrupt)
    raise InvalidInput(
        f"can_use_tool answers with True, False or a behavior of allow or deny, not {answer!r}"
    )


def _get(given: Any, *names: str) -> Any:
    """An attribute, or an entry of a dict."""
    for name in names:
        found = given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)
        if found is not None:
            return found
    return None


def _arguments(function: Any) -> int:
    """How many it takes; one that takes any number takes three."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return 3
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in by_place for each in parameters)
