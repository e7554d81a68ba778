"""What an agent declares to its clients: modes, models, options, commands, prompts and logins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from segue.model.errors import InvalidInput

if TYPE_CHECKING:
    from segue.acp.wire import LoginMethod

OFFERED = "offered"  # the session option that has the options and commands of its agent
MODE, MODEL = "mode", "model"  # the ids and the categories of two options
COMPLETE = "complete"  # in `offered`: segue adds no mode of its own
PROMPT_CONTENT = frozenset({"image", "audio", "embeddedContext"})


class Choice(msgspec.Struct, frozen=True):
    """One value of an option. `group` is the name of its group, if the option has groups."""

    value: str
    name: str
    description: str | None = None
    group: str | None = None


Choices = Mapping[str, str] | Sequence[Choice]  # a mapping has the name of each value


class Select(msgspec.Struct, frozen=True):
    """An option with one of several values; `value` is the first one by default."""

    id: str
    name: str
    choices: Choices
    value: str | None = None
    description: str | None = None
    category: str | None = None


class Switch(msgspec.Struct, frozen=True):
    """An option that is on or off."""

    id: str
    name: str
    value: bool = False
    description: str | None = None
    category: str | None = None


class Command(msgspec.Struct, frozen=True):
    """A command that users can type as the beginning of a prompt: `/name`.

    `hint` says what to type after it; without one, the command takes no input.
    """

    name: str
    description: str
    hint: str | None = None


Commands = Mapping[str, str] | Iterable[Command]  # a mapping has the description of each command


class AgentDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent offers besides answering text. Clients are offered nothing else."""

    options: tuple[Select | Switch, ...] = ()
    commands: tuple[Command, ...] = ()
    prompt_content: frozenset[str] = frozenset()
    logins: tuple[LoginMethod, ...] = ()

    def offered(self, current: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options and commands of a session, with its values where they are valid.

        `current` is what the session offered before, maybe by another version of the agent.
        """
        values = {option["id"]: option["value"] for option in current.get("options", ())}
        options = []
        for option in map(_offer, self.options):
            value = values.get(option["id"])
            options.append({**option, "value": value} if _is_valid(option, value) else option)
        return {"options": options, "commands": offered_commands(self.commands), COMPLETE: True}


def declare(
    *,
    modes: Choices = (),
    models: Choices = (),
    options: Iterable[Select | Switch] = (),
    commands: Commands = (),
    prompt: Iterable[str] = (),
    logins: Iterable[LoginMethod] = (),
) -> AgentDeclaration:
    """Return a declaration. Raises ValueError with the setting that is not valid."""
    all_options = [*options]
    if models:
        all_options.insert(0, Select(MODEL, "Model", models, category=MODEL))
    if modes:
        all_options.insert(0, Select(MODE, "Mode", modes, category=MODE))
    content = frozenset(prompt)
    if unknown := content - PROMPT_CONTENT:
        known = ", ".join(sorted(PROMPT_CONTENT))
        raise ValueError(f"unknown prompt content {sorted(unknown)[0]!r}; use {known}")
    _check_unique("option", [option.id for option in all_options])
    for option in map(_offer, all_options):
        if not _is_valid(option, option["value"]):
            raise ValueError(f"option {option['id']!r} has no value {option['value']!r}")
    all_commands = _commands(commands)
    _check_unique("command", [command.name for command in all_commands])
    for command in all_commands:
        if not command.name or any(map(str.isspace, command.name)):
            raise ValueError(f"the name of a command is one word, not {command.name!r}")
    all_logins = tuple(logins)
    _check_unique("login method", [method.id for method in all_logins])
    return AgentDeclaration(
        options=tuple(all_options),
        commands=all_commands,
        prompt_content=content,
        logins=all_logins,
    )


def with_value(offered: Mapping[str, Any], id: str, value: str | bool) -> dict[str, Any]:
    """Return offered options with another value. Raises InvalidInput if it is not one of them."""
    options = offered.get("options", ())
    option = next((option for option in options if option["id"] == id), None)
    if option is None or not _is_valid(option, value):
        raise InvalidInput(f"option {id!r} cannot be {value!r}")
    changed = [{**other, "value": value} if other is option else other for other in options]
    return {**offered, "options": changed}


def offered_commands(commands: Commands) -> list[dict[str, Any]]:
    """Return commands as a session stores them."""
    return [
        {"name": command.name, "description": command.description, "hint": command.hint}
        for command in _commands(commands)
    ]


def _commands(commands: Commands) -> tuple[Command, ...]:
    if isinstance(commands, Mapping):
        return tuple(Command(name, description) for name, description in commands.items())
    return tuple(commands)


def _offer(option: Select | Switch) -> dict[str, Any]:
    """Return an option as a session stores it, with its default value."""
    choices = [] if isinstance(option, Switch) else _choices(option.choices)
    value: Any = option.value
    if isinstance(option, Select) and value is None and choices:
        value = choices[0]["value"]
    return {
        "id": option.id,
        "name": option.name,
        "description": option.description,
        "category": option.category,
        "value": value,
        "choices": choices,
    }


def _choices(choices: Choices) -> list[dict[str, Any]]:
    if isinstance(choices, Mapping):
        choices = [Choice(value, name) for value, name in choices.items()]
    return [
        {
            "value": choice.value,
            "name": choice.name,
            "description": choice.description,
            **(
                {}
                if choice.group is None
                else {"group": {"id": choice.group, "name": choice.group}}
            ),
        }
        for choice in choices
    ]


def _is_valid(option: Mapping[str, Any], value: Any) -> bool:
    if not option["choices"]:
        return isinstance(value, bool)
    return value in [choice["value"] for choice in option["choices"]]


def _check_unique(kind: str, names: Sequence[str]) -> None:
    repeated = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if repeated is not None:
        raise ValueError(f"two {kind}s are named {repeated!r}")
