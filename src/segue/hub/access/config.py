"""What a workspace has configured: a few named settings, kept in its store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from segue.model.errors import InvalidInput
from segue.sources import registry
from segue.store.base import Store


class Setting(NamedTuple):
    """One thing that can be configured, and how its value is written."""

    description: str
    example: str
    kind: type[str] | type[int] | type[bool] = str
    choices: tuple[str, ...] = ()
    check: Callable[[str, str], None] | None = None  # InvalidInput for what cannot be meant

    def parse(self, name: str, text: str) -> Any:
        """The value that somebody wrote."""
        text = text.strip()
        if self.choices and text not in self.choices:
            raise InvalidInput(f"{name}: {text!r} is not one of {', '.join(self.choices)}")
        if self.kind is bool:
            if text.lower() not in ("true", "false", "yes", "no", "on", "off"):
                raise InvalidInput(f"{name}: {text!r} is neither true nor false")
            return text.lower() in ("true", "yes", "on")
        if self.kind is int:
            if not text.isascii() or not text.isdigit() or int(text) < 1:
                raise InvalidInput(f"{name}: {text!r} is no number above 0")
            return int(text)
        if not text:
            raise InvalidInput(f"{name}: a value is needed; `unset` removes it")
        if self.check is not None:
            self.check(name, text)
        return text


def _address(name: str, text: str) -> None:
    try:
        parts = urlsplit(text)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return
    except ValueError:
        pass
    raise InvalidInput(f"{name}: {text!r} is no address that begins with http:// or https://")


def _search(name: str, text: str) -> None:
    from segue.agents.tools.base import ToolError
    from segue.agents.tools.websearch import resolve_provider

    try:
        _, where = resolve_provider(text)
    except ToolError as error:
        raise InvalidInput(str(error)) from None
    _address(name, where)


SETTINGS: dict[str, Setting] = {
    "model": Setting(
        "The model that answers, as provider:name. Keys come from the provider's usual"
        " environment variable.",
        "anthropic:claude-sonnet-4-6",
    ),
    "model.base_url": Setting(
        "The address of the model's server, for one of your own.",
        "http://127.0.0.1:11434/v1",
        check=_address,
    ),
    "model.thinking": Setting(
        "How hard the model thinks; without it, as it does by default.",
        "high",
        choices=("minimal", "low", "medium", "high", "xhigh", "max"),
    ),
    "model.max_tokens": Setting("The longest answer, in tokens.", "16000", int),
    "model.context": Setting(
        "The size of the model's context in tokens, where it is not known.", "128000", int
    ),
    "model.max_turns": Setting("The most requests to the model for one prompt.", "100", int),
    **{
        setting.name: Setting(setting.about, setting.example, setting.kind)
        for definition in registry.definitions()
        for setting in definition.settings
    },
    "web.search": Setting(
        "The provider of web_search: searxng:ADDRESS, brave or tavily; off without one.",
        "searxng:https://search.example.org",
        check=_search,
    ),
    "web.private": Setting(
        "Whether web_fetch, and MCP servers that others name, may be at private addresses.",
        "false",
        bool,
    ),
    "bash.confine": Setting(
        "How the local user's bash is confined: it writes only to the session's directories"
        " (write), also reads nothing else and has no network (strict), or not at all (off).",
        "write",
        choices=("write", "strict", "off"),
    ),
}


class Config:
    """The settings of a store's workspaces."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self, workspace: str) -> Mapping[str, Any]:
        """What is set, by name."""
        stored = await self._store.settings(workspace)
        return {name: stored[name] for name in SETTINGS if stored.get(name) is not None}

    async def set(self, workspace: str, name: str, text: str) -> Any:
        """Set one from text; its value."""
        value = _known(name).parse(name, text)
        await self._store.set_setting(workspace, name, value)
        return value

    async def unset(self, workspace: str, name: str) -> None:
        _known(name)
        await self._store.set_setting(workspace, name, None)


def _known(name: str) -> Setting:
    if name not in SETTINGS:
        raise InvalidInput(f"there is no setting {name!r}; there are {', '.join(SETTINGS)}")
    return SETTINGS[name]
