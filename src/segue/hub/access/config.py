"""Read and change the settings of a workspace, which its store holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from segue.model.errors import InvalidInput
from segue.sources import registry
from segue.store.base import Store


class Setting(NamedTuple):
    """One setting: its description, an example and how its value is written as text."""

    description: str
    example: str
    kind: type[str] | type[int] | type[bool] = str
    choices: tuple[str, ...] = ()
    check: Callable[[str, str], None] | None = None  # (name, text); raises InvalidInput

    def parse(self, name: str, text: str) -> Any:
        """Return the value of a text. Raises InvalidInput if the setting `name` cannot have it."""
        text = text.strip()
        if self.choices and text not in self.choices:
            raise InvalidInput(f"{name}: {text!r} is not one of {', '.join(self.choices)}")
        if self.kind is bool:
            if text.lower() not in ("true", "false", "yes", "no", "on", "off"):
                raise InvalidInput(f"{name}: {text!r} is neither true nor false")
            return text.lower() in ("true", "yes", "on")
        if self.kind is int:
            if not text.isascii() or not text.isdigit() or int(text) < 1:
                raise InvalidInput(f"{name}: {text!r} is not a whole number above 0")
            return int(text)
        if not text:
            raise InvalidInput(
                f"{name}: the value is empty; use `segue config unset {name}` to remove it"
            )
        if self.check is not None:
            self.check(name, text)
        return text


def _check_url(name: str, text: str) -> None:
    try:
        parts = urlsplit(text)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return
    except ValueError:
        pass
    raise InvalidInput(f"{name}: {text!r} is not a URL that begins with http:// or https://")


def _check_search_provider(name: str, text: str) -> None:
    from segue.agents.tools.base import ToolError
    from segue.agents.tools.websearch import resolve_provider

    try:
        _, url = resolve_provider(text)
    except ToolError as error:
        raise InvalidInput(str(error)) from None
    _check_url(name, url)


SETTINGS: dict[str, Setting] = {
    "model": Setting(
        "The model that answers, as provider:name. Keys come from the provider's usual"
        " environment variable. `demo` is no model: it repeats its input.",
        "anthropic:claude-sonnet-4-6",
    ),
    "model.base_url": Setting(
        "The URL of the model's server, if it is not the provider's.",
        "http://127.0.0.1:11434/v1",
        check=_check_url,
    ),
    "model.thinking": Setting(
        "How hard the model thinks. If not set, the model's default applies.",
        "high",
        choices=("minimal", "low", "medium", "high", "xhigh", "max"),
    ),
    "model.max_tokens": Setting("The maximum length of an answer in tokens.", "16000", int),
    "model.context": Setting(
        "The size of the model's context in tokens, for a model that segue does not know.",
        "128000",
        int,
    ),
    "model.max_turns": Setting(
        "The maximum number of requests to the model for one prompt.", "100", int
    ),
    **{
        setting.name: Setting(setting.about, setting.example, setting.kind)
        for definition in registry.definitions()
        for setting in definition.settings
    },
    "web.search": Setting(
        "The provider of web_search: searxng:URL, brave or tavily. If not set, web_search is off.",
        "searxng:https://search.example.org",
        check=_check_search_provider,
    ),
    "web.private": Setting(
        "Whether web_fetch and the MCP servers that clients name may use private addresses.",
        "false",
        bool,
    ),
    "bash.confine": Setting(
        "The sandbox of the local user's bash. write: it writes only to the session's directories."
        " strict: it also reads nothing else and has no network. off: no sandbox.",
        "write",
        choices=("write", "strict", "off"),
    ),
    "sandbox.cpu_seconds": Setting(
        "The processor time in seconds of each process in a strict sandbox; 3600 if not set.",
        "600",
        int,
    ),
    "sandbox.memory_mb": Setting(
        "The memory in megabytes of all programs in a strict sandbox; 4096 if not set.",
        "8192",
        int,
    ),
    "sandbox.file_mb": Setting(
        "The size in megabytes of each file that programs in a strict sandbox write; 4096 if not"
        " set.",
        "1024",
        int,
    ),
    "sandbox.disk_mb": Setting(
        "The megabytes of a session's directory, if segue made it, at which programs in a strict"
        " sandbox are ended; 10240 if not set.",
        "2048",
        int,
    ),
    "sandbox.open_files": Setting(
        "How many files each process in a strict sandbox may have open; 1024 if not set.",
        "4096",
        int,
    ),
    "sandbox.processes": Setting(
        "How many processes and threads a strict sandbox may have; 512 if not set.", "1024", int
    ),
}


class Config:
    """The settings of a store's workspaces."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self, workspace: str) -> Mapping[str, Any]:
        """Return the values of the settings that are set, by name."""
        stored = await self._store.settings(workspace)
        return {name: stored[name] for name in SETTINGS if stored.get(name) is not None}

    async def set(self, workspace: str, name: str, text: str) -> Any:
        """Set a setting from text and return its value. Raises InvalidInput for an invalid one."""
        value = _get_setting(name).parse(name, text)
        await self._store.set_setting(workspace, name, value)
        return value

    async def unset(self, workspace: str, name: str) -> None:
        """Remove a setting. Raises InvalidInput if there is no such setting."""
        _get_setting(name)
        await self._store.set_setting(workspace, name, None)

    async def model_problem(self, workspace: str) -> str | None:
        """Return why the configured model cannot be used; None if it can, or if none is set."""
        from segue.agents.base.spec import DEMO
        from segue.agents.model.models import ModelUnavailable, make_model

        values = await self.all(workspace)
        if values.get("model") in (None, DEMO):
            return None
        try:
            make_model(values["model"], values.get("model.base_url"))
        except ModelUnavailable as error:
            return str(error)
        return None


def unused_key_hint(values: Mapping[str, Any], environment: Mapping[str, str]) -> str | None:
    """Return how to use an API key that is set while no model is configured; None without one."""
    from segue.agents.model import setup

    return setup.unused_key_hint(environment) if values.get("model") is None else None


def models_with_keys(environment: Mapping[str, str]) -> list[str]:
    """Return a model for each API key that is set."""
    from segue.agents.model.setup import KEY_MODELS

    return [model for variable, model in KEY_MODELS.items() if environment.get(variable)]


def has_model_packages() -> bool:
    """Return whether the packages that models need are installed."""
    from segue.agents.model.setup import has_packages

    return has_packages()


def next_model_step(environment: Mapping[str, str]) -> str:
    """Return what a user without a model does next."""
    from segue.agents.model.setup import next_step

    return next_step(environment)


def _get_setting(name: str) -> Setting:
    if name not in SETTINGS:
        raise InvalidInput(f"there is no setting {name!r}; the settings are {', '.join(SETTINGS)}")
    return SETTINGS[name]


def check_model(text: str) -> None:
    """Raise InvalidInput if a model is not `provider:name` with a provider that exists.

    `demo` is the demo agent, which repeats its input.
    """
    from segue.agents.base.spec import DEMO, has_provider
    from segue.agents.model.models import ModelUnavailable, check_provider

    model = text.strip()
    if model == DEMO:
        return
    if not has_provider(model):
        raise InvalidInput(f"unknown model {model!r}; use provider:name, such as openai:gpt-5")
    try:
        check_provider(model.partition(":")[0])
    except ModelUnavailable as error:
        raise InvalidInput(str(error)) from None
