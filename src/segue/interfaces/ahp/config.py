"""The settings of a session that a client can change: segue's mode, and the agent's options."""

from __future__ import annotations

from typing import Any

from segue.agents.base.spec import MODE_LABELS
from segue.model.session import Session

MODE = "mode"  # id of segue's own setting, and category of every mode of an agent
MODEL = "model"  # category of an agent's models
OFFERED = "offered"  # key of the session option that has the options of its agent


def agent_options(session: Session) -> list[dict[str, Any]]:
    """Return the options that the agent of a session offers, with their values."""
    options: list[dict[str, Any]] = session.options.get(OFFERED, {}).get("options", [])
    return options


def agent_option(session: Session, id: str) -> dict[str, Any] | None:
    """Return an option of the agent by its id."""
    return next((option for option in agent_options(session) if option["id"] == id), None)


def model_option(session: Session) -> dict[str, Any] | None:
    """Return the option by which the agent of a session lets the user choose a model."""
    return next(
        (option for option in agent_options(session) if option.get("category") == MODEL), None
    )


def has_value(option: dict[str, Any], value: Any) -> bool:
    """Return whether an option can have a value. An option without choices is true or false."""
    if not option["choices"]:
        return isinstance(value, bool)
    return any(choice["value"] == value for choice in option["choices"])


def new_session_config(mode: str | None) -> dict[str, Any]:
    """Return the settings of a session that is not created yet, with their values."""
    value = mode if mode in MODE_LABELS else "default"
    return {
        "schema": {"type": "object", "properties": {MODE: _mode_schema()}},
        "values": {MODE: value},
    }


def session_config(session: Session) -> dict[str, Any]:
    """Return the settings of a session, with their values: the agent's, and segue's mode.

    Segue's mode is left out if the agent has modes of its own.
    """
    options = agent_options(session)
    properties = {option["id"]: _option_schema(option) for option in options}
    values = {option["id"]: option["value"] for option in options}
    if not any(option.get("category") == MODE for option in options):
        own = new_session_config(session.mode)
        properties = {**own["schema"]["properties"], **properties}
        values = {**own["values"], **values}
    return {"schema": {"type": "object", "properties": properties}, "values": values}


def _mode_schema() -> dict[str, Any]:
    labels = {id: label for id, (label, _) in MODE_LABELS.items()}
    return {
        "type": "string",
        "title": "Mode",
        "description": "When segue's agent asks before it acts",
        "enum": list(labels),
        "enumLabels": list(labels.values()),
        "enumDescriptions": [description for _, description in MODE_LABELS.values()],
        "default": "default",
        "sessionMutable": True,
    }


def _option_schema(option: dict[str, Any]) -> dict[str, Any]:
    choices = option["choices"]
    schema: dict[str, Any] = {
        "type": "string" if choices else "boolean",
        "title": option["name"],
        "default": option["value"],
        "sessionMutable": True,
    }
    if option.get("description"):
        schema["description"] = option["description"]
    if choices:
        schema["enum"] = [choice["value"] for choice in choices]
        schema["enumLabels"] = [choice["name"] for choice in choices]
        schema["enumDescriptions"] = [choice.get("description") or "" for choice in choices]
    return schema
