"""The options and commands of a session: segue's modes, or those that the agent offers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, UnsetType

from segue.acp import v1, v2, wire
from segue.agents.base.spec import MODE_LABELS
from segue.model.session import Session

MODE = "mode"  # id of segue's option, and category of every mode option
COMPLETE = "complete"  # in `offered`: the agent declares everything that the session offers
OFFERED = "offered"  # key of the session option that has the options and commands of its agent


def current_mode(session: Session) -> str:
    """Return the mode of a session, which is one of MODE_LABELS."""
    return session.mode if session.mode in MODE_LABELS else "default"


def options(session: Session) -> list[dict[str, Any]]:
    """Return all options: those of the agent, and segue's mode unless the agent has one."""
    agent_options = _agent_options(session)
    if session.options.get(OFFERED, {}).get(COMPLETE):
        return agent_options
    if any(option["category"] == MODE for option in agent_options):
        return agent_options
    mode = {
        "id": MODE,
        "name": "Mode",
        "category": MODE,
        "value": current_mode(session),
        "choices": [
            {"value": id, "name": name, "description": description}
            for id, (name, description) in MODE_LABELS.items()
        ],
    }
    return [mode, *agent_options]


def _agent_options(session: Session) -> list[dict[str, Any]]:
    offered: list[dict[str, Any]] = session.options.get(OFFERED, {}).get("options", [])
    return offered


def _agent_commands(session: Session) -> list[dict[str, Any]]:
    offered: list[dict[str, Any]] = session.options.get(OFFERED, {}).get("commands", [])
    return offered


def is_agent_option(session: Session, option_id: str) -> bool:
    """Return whether the agent offers an option itself."""
    return any(option["id"] == option_id for option in _agent_options(session))


def find_option(session: Session, option_id: str) -> dict[str, Any] | None:
    """Return an option by its id, or None if the session does not have it."""
    return next((option for option in options(session) if option["id"] == option_id), None)


def mode_option(session: Session) -> dict[str, Any] | None:
    """Return the option that selects the mode; None if the agent declares no modes."""
    return next((option for option in options(session) if option["category"] == MODE), None)


def mode_state(session: Session) -> v1.ModeState | UnsetType:
    """Return the modes of a session as version 1 has them."""
    option = mode_option(session)
    if option is None:
        return UNSET
    modes = [
        v1.Mode(
            id=choice["value"],
            name=choice["name"],
            description=choice.get("description"),
            meta=choice.get("meta"),
        )
        for choice in option["choices"]
    ]
    return v1.ModeState(
        current_mode_id=option["value"], available_modes=modes, meta=option.get("meta")
    )


def is_switch(option: dict[str, Any]) -> bool:
    """Return whether the value of an option is true or false, not one of several choices."""
    return isinstance(option["value"], bool)


MakeGroup = Callable[[dict[str, Any], list[wire.SelectOption]], Any]


def _group_v1(group: dict[str, Any], values: list[wire.SelectOption]) -> v1.SelectGroup:
    return v1.SelectGroup(
        group=group["id"], name=group["name"], options=values, meta=group.get("meta")
    )


def _group_v2(group: dict[str, Any], values: list[wire.SelectOption]) -> v2.SelectGroup:
    return v2.SelectGroup(
        group_id=group["id"], name=group["name"], options=values, meta=group.get("meta")
    )


def _choices(option: dict[str, Any], make_group: MakeGroup) -> list[Any] | UnsetType:
    """Return the values of an option, in groups if all of them have one."""
    if is_switch(option):
        return UNSET
    values = [
        wire.SelectOption(
            value=choice["value"],
            name=choice["name"],
            description=choice.get("description"),
            meta=choice.get("meta"),
        )
        for choice in option["choices"]
    ]
    groups: dict[str, tuple[dict[str, Any], list[wire.SelectOption]]] = {}
    for choice, value in zip(option["choices"], values, strict=True):
        if group := choice.get("group"):
            groups.setdefault(group["id"], (group, []))[1].append(value)
    if sum(len(members) for _, members in groups.values()) != len(values):
        return values
    return [make_group(group, members) for group, members in groups.values()]


def _config_fields(option: dict[str, Any], make_group: MakeGroup) -> dict[str, Any]:
    """Return the fields of a ConfigOption, which both versions have."""
    return {
        "name": option["name"],
        "type": "boolean" if is_switch(option) else "select",
        "category": option.get("category"),
        "description": option.get("description"),
        "current_value": option["value"],
        "options": _choices(option, make_group),
        "meta": option.get("meta"),
    }


def config_v1(session: Session, client: v1.ClientSession | None) -> list[v1.ConfigOption]:
    """Return the options for version 1, with switches only if the client supports them."""
    supported = client.config_options if client is not None else None
    with_switches = supported is not None and supported.boolean is not None
    return [
        v1.ConfigOption(id=option["id"], **_config_fields(option, _group_v1))
        for option in options(session)
        if with_switches or not is_switch(option)
    ]


def config_v2(session: Session) -> list[v2.ConfigOption]:
    """Return the options for version 2."""
    return [
        v2.ConfigOption(config_id=option["id"], **_config_fields(option, _group_v2))
        for option in options(session)
    ]


def commands_v1(session: Session) -> list[v1.Command]:
    """Return the commands of the agent for version 1."""
    return [
        v1.Command(
            name=command["name"],
            description=command["description"],
            input=None if command.get("hint") is None else v1.CommandInput(hint=command["hint"]),
            meta=command.get("meta"),
        )
        for command in _agent_commands(session)
    ]


def commands_v2(session: Session) -> list[v2.Command]:
    """Return the commands of the agent for version 2, whose names have no spaces."""
    return [
        v2.Command(
            name=command["name"],
            description=command["description"],
            input=None if command.get("hint") is None else v2.CommandInput(hint=command["hint"]),
            meta=command.get("meta"),
        )
        for command in _agent_commands(session)
        if not any(map(str.isspace, command["name"]))
    ]
