"""What a child offers: ways to log in, options to choose from, and commands. Kept in one form for
both versions of the protocol, so that every door can show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from segue.acp.wire import LoginMethod

OFFERED = "offered"  # the session's option that has it
MODE = "mode"


def learned(before: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """What is offered after a child has told something: how a session was opened, or an update."""
    found: dict[str, Any] = {
        name: before[name] for name in ("options", "commands") if name in before
    }
    if isinstance(told.get("configOptions"), list):
        options = [_option(each) for each in told["configOptions"] if isinstance(each, dict)]
        modes = [each for each in found.get("options", ()) if each.get("by") == MODE]
        fresh = [each for each in options if each is not None]
        # Some tell their modes both ways; an option is the newer one.
        if not any(each["category"] == MODE for each in fresh):
            fresh = [*modes, *fresh]
        found["options"] = fresh
    if isinstance(told.get("modes"), dict) and (mode := _modes(told["modes"])):
        others = [each for each in found.get("options", ()) if each.get("by") != MODE]
        if not any(each["category"] == MODE for each in others):
            found["options"] = [mode, *others]
    if isinstance(told.get("currentModeId"), str):
        found["options"] = [
            {**each, "value": told["currentModeId"]} if each.get("by") == MODE else each
            for each in found.get("options", ())
        ]
    if isinstance(told.get("availableCommands"), list):
        commands = [_command(each) for each in told["availableCommands"] if isinstance(each, dict)]
        found["commands"] = [each for each in commands if each is not None]
    return found


def _option(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """A selection, or what is switched on and off, which has no choices."""
    id = given.get("configId", given.get("id"))
    value, choices = given.get("currentValue"), _choices(given.get("options"))
    switch = given.get("type") == "boolean" and isinstance(value, bool)
    chosen = given.get("type") == "select" and value in [each["value"] for each in choices]
    if not isinstance(id, str) or not (switch or chosen):
        return None
    return {
        "id": id,
        "name": _text(given.get("name")) or id,
        "description": _text(given.get("description")) or None,
        "category": _text(given.get("category")) or None,
        "value": value,
        "choices": [] if switch else choices,
    }


def _choices(given: Any) -> list[dict[str, Any]]:
    """The values of an option, those of groups one after the other."""
    found: list[dict[str, Any]] = []
    for each in given if isinstance(given, list) else ():
        if isinstance(each, dict) and isinstance(each.get("options"), list):
            found += _choices(each["options"])
        elif isinstance(each, dict) and isinstance(each.get("value"), str):
            name = _text(each.get("name")) or each["value"]
            text = _text(each.get("description")) or None
            found.append({"value": each["value"], "name": name, "description": text})
    return found


def _modes(given: Mapping[str, Any]) -> dict[str, Any] | None:
    modes = [
        {"value": each.get("id"), "name": each.get("name"), "description": each.get("description")}
        for each in given.get("availableModes") or ()
        if isinstance(each, dict)
    ]
    option = {
        "id": MODE,
        "name": "Mode",
        "type": "select",
        "category": MODE,
        "currentValue": given.get("currentModeId"),
        "options": modes,
    }
    found = _option(option)
    return None if found is None else {**found, "by": MODE}


def _command(given: Mapping[str, Any]) -> dict[str, Any] | None:
    name, text = given.get("name"), given.get("description")
    if not isinstance(name, str) or not name or any(map(str.isspace, name)):
        return None
    hint = given.get("input")
    hint = hint.get("hint") if isinstance(hint, dict) else None
    return {"name": name, "description": _text(text), "hint": _text(hint) or None}


def login(given: Mapping[str, Any]) -> LoginMethod | None:
    """A way to log in, of either version; None for a kind that nobody here knows."""
    id, kind = given.get("methodId", given.get("id")), given.get("type", "agent")
    if not isinstance(id, str) or kind not in ("agent", "terminal"):
        return None
    name, about = _text(given.get("name")) or id, _text(given.get("description")) or None
    if kind == "agent":
        return LoginMethod(id=id, name=name, description=about)
    args, env = given.get("args") or (), given.get("env") or {}
    if isinstance(env, list):
        env = {each.get("name"): each.get("value") for each in env if isinstance(each, dict)}
    return LoginMethod(
        id=id,
        name=name,
        description=about,
        args=tuple(map(str, args)),
        env={str(key): str(value) for key, value in env.items()},
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
