"""What can be chosen in a session: our modes, or what its agent offers itself; and commands."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from segue.acp import v1, v2, wire
from segue.model.session import Session

MODES: dict[str, tuple[str, str]] = {
    "default": ("Ask", "Ask before anything that changes files or runs programs"),
    "acceptEdits": ("Accept edits", "Change files without asking; ask before running programs"),
    "plan": ("Plan", "Read and plan only"),
    "bypassPermissions": ("Do not ask", "Never ask for permission"),
}
MODE = "mode"  # the option, and its category
OFFERED = "offered"  # where an agent with options of its own keeps them


def current_mode(session: Session) -> str:
    return session.mode if session.mode in MODES else "default"


def options(session: Session) -> list[dict[str, Any]]:
    """All options: the agent's own, and our mode unless it has one."""
    offered: list[dict[str, Any]] = session.options.get(OFFERED, {}).get("options", [])
    if any(each["category"] == MODE for each in offered):
        return offered
    choices = [
        {"value": id, "name": name, "description": text} for id, (name, text) in MODES.items()
    ]
    ours = {"id": MODE, "name": "Mode", "category": MODE, "value": current_mode(session)}
    return [{**ours, "choices": choices}, *offered]


def is_offered(session: Session, option: str) -> bool:
    """Whether an option is the agent's own."""
    offered = session.options.get(OFFERED, {}).get("options", [])
    return any(each["id"] == option for each in offered)


def find(session: Session, option: str) -> dict[str, Any] | None:
    return next((each for each in options(session) if each["id"] == option), None)


def mode_option(session: Session) -> dict[str, Any]:
    return next(each for each in options(session) if each["category"] == MODE)


def mode_state(session: Session) -> v1.ModeState:
    option = mode_option(session)
    modes = [
        v1.Mode(id=each["value"], name=each["name"], description=each.get("description"))
        for each in option["choices"]
    ]
    return v1.ModeState(current_mode_id=option["value"], available_modes=modes)


def is_switch(option: dict[str, Any]) -> bool:
    """Whether an option is on or off, rather than one of several values."""
    return isinstance(option["value"], bool)


def _kind(option: dict[str, Any]) -> Literal["select", "boolean"]:
    return "boolean" if is_switch(option) else "select"


def _choices(option: dict[str, Any]) -> list[wire.SelectOption] | UnsetType:
    if is_switch(option):
        return UNSET
    return [
        wire.SelectOption(
            value=each["value"], name=each["name"], description=each.get("description")
        )
        for each in option["choices"]
    ]


def config_v1(session: Session, client: v1.ClientSession | None) -> list[v1.ConfigOption]:
    """The options; switches for clients that know of them."""
    known = client.config_options if client is not None else None
    switches = known is not None and known.boolean is not None
    return [
        v1.ConfigOption(
            id=each["id"],
            name=each["name"],
            type=_kind(each),
            category=each.get("category"),
            description=each.get("description"),
            current_value=each["value"],
            options=_choices(each),
        )
        for each in options(session)
        if switches or not is_switch(each)
    ]


def config_v2(session: Session) -> list[v2.ConfigOption]:
    return [
        v2.ConfigOption(
            config_id=each["id"],
            name=each["name"],
            type=_kind(each),
            category=each.get("category"),
            description=each.get("description"),
            current_value=each["value"],
            options=_choices(each),
        )
        for each in options(session)
    ]


def commands_v1(session: Session) -> list[v1.Command]:
    return [
        v1.Command(
            name=each["name"],
            description=each["description"],
            input=None if each.get("hint") is None else v1.CommandInput(hint=each["hint"]),
        )
        for each in session.options.get(OFFERED, {}).get("commands", [])
    ]


def commands_v2(session: Session) -> list[v2.Command]:
    return [
        v2.Command(
            name=each["name"],
            description=each["description"],
            input=None if each.get("hint") is None else v2.CommandInput(hint=each["hint"]),
        )
        for each in session.options.get(OFFERED, {}).get("commands", [])
    ]
