"""Add an MCP server to the configuration files of tools; each needs another entry."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from segue.model.errors import InvalidInput

Edit = Callable[[str, str, Sequence[str]], str]
_START_SECONDS = 30  # a first start may build indexes


class McpConfig(NamedTuple):
    """A tool's configuration file, and the function that adds a server to its text."""

    path: str
    add: Edit


def mcp_config(tool: str) -> McpConfig | None:
    """Return where a tool lists its MCP servers; None if segue does not know."""
    entry = _CONFIGS.get(tool)
    return None if entry is None else McpConfig(entry[0](), entry[1])


def supported_tools() -> list[str]:
    """Return the tools whose configuration segue can change."""
    return list(_CONFIGS)


def _home(variable: str, *default: str) -> str:
    return os.environ.get(variable) or os.path.join(os.path.expanduser("~"), *default)


def _config_home() -> str:
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return base if os.path.isabs(base) else os.path.join(os.path.expanduser("~"), ".config")


def _claude_path() -> str:
    directory = os.environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~")
    return os.path.join(directory, ".claude.json")


def _opencode_path() -> str:
    if path := os.environ.get("OPENCODE_CONFIG"):
        return path
    directory = os.path.join(_config_home(), "opencode")
    names = ("opencode.jsonc", "opencode.json", "config.json")
    paths = [os.path.join(directory, name) for name in names]
    return next(filter(os.path.exists, paths), paths[1])


def _goose_path() -> str:
    if root := os.environ.get("GOOSE_PATH_ROOT"):
        return os.path.join(root, "config", "config.yaml")
    return os.path.join(_config_home(), "goose", "config.yaml")


def _json_edit(section: str, entry: Callable[[Sequence[str]], dict[str, Any]]) -> Edit:
    """Return a function that adds an entry to an object of a JSON file."""

    def add(text: str, name: str, command: Sequence[str]) -> str:
        try:
            config = json.loads(text) if text.strip() else {}
        except ValueError as error:
            raise InvalidInput(
                f"the file is not plain JSON ({error}); add this to {section!r} yourself: "
                f"{json.dumps({name: entry(command)})}"
            ) from None
        servers = config.setdefault(section, {}) if isinstance(config, dict) else None
        if not isinstance(servers, dict):
            raise InvalidInput(f"{section!r} is not an object in this file")
        servers[name] = entry(command)
        indent = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
        changed = json.dumps(config, indent=indent[1] if indent else 2, ensure_ascii=False)
        return changed + "\n"

    return add


def _toml_edit(text: str, name: str, command: Sequence[str]) -> str:
    """Add a table to a TOML file, instead of the one with the same name."""
    import tomllib

    header = f"[mcp_servers.{name}]"
    lines = [header, f"command = {json.dumps(command[0])}", f"args = {json.dumps([*command[1:]])}"]
    lines.append(f"startup_timeout_sec = {_START_SECONDS}")
    table = "\n".join(lines) + "\n"
    old = re.compile(
        rf"^\[mcp_servers\.{re.escape(name)}\][^\n]*\n(?:(?!\[)[^\n]*\n?)*", re.MULTILINE
    )
    if match := old.search(text):
        rest = text[match.end() :]
        changed = text[: match.start()] + table + ("\n" if rest else "") + rest
    else:
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        changed = text + gap + table
    try:
        before, after = tomllib.loads(text), tomllib.loads(changed)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(
            f"the file cannot be changed: {error}; add this yourself:\n{table}"
        ) from None
    before.setdefault("mcp_servers", {})[name] = after["mcp_servers"][name]
    if before != after:
        raise InvalidInput(f"the file cannot be changed safely; add this yourself:\n{table}")
    return changed


def _yaml_edit(text: str, name: str, command: Sequence[str]) -> str:
    """Add an extension to a YAML file, as text, so that its comments stay."""
    import yaml

    entry = {
        "enabled": True,
        "type": "stdio",
        "name": name,
        "description": "Earlier agent sessions",
        "cmd": command[0],
        "args": [*command[1:]],
        "envs": {},
        "timeout": 300,
    }
    block = yaml.safe_dump({name: entry}, sort_keys=False, allow_unicode=True)
    indented = "".join(f"  {line}\n" for line in block.splitlines())
    try:
        before = yaml.safe_load(text) or {}
        if name in (before.get("extensions") or {}):
            if before["extensions"][name] == entry:
                return text
            before["extensions"][name] = entry
            return str(yaml.safe_dump(before, sort_keys=False, allow_unicode=True))
        if not before.get("extensions"):
            body = re.sub(r"^extensions:.*\n?", "", text, flags=re.MULTILINE)
            gap = "" if not body or body.endswith("\n") else "\n"
            changed = f"{body}{gap}extensions:\n{indented}"
        else:
            changed = re.sub(
                r"^extensions:[ \t]*(#.*)?$", lambda m: f"{m[0]}\n{indented.rstrip()}", text,
                count=1, flags=re.MULTILINE,
            )  # fmt: skip
        after = yaml.safe_load(changed)
    except (yaml.YAMLError, AttributeError) as error:
        raise InvalidInput(
            f"the file cannot be changed: {error}; add this yourself:\n{indented}"
        ) from None
    before["extensions"] = {**(before.get("extensions") or {}), name: entry}
    if before != after:
        raise InvalidInput(f"the file cannot be changed safely; add this yourself:\n{indented}")
    return changed


def _plain(command: Sequence[str]) -> dict[str, Any]:
    return {"command": command[0], "args": [*command[1:]]}


_CONFIGS: dict[str, tuple[Callable[[], str], Edit]] = {
    "claude": (
        _claude_path,
        _json_edit("mcpServers", lambda command: {"type": "stdio", **_plain(command), "env": {}}),
    ),
    "codex": (lambda: os.path.join(_home("CODEX_HOME", ".codex"), "config.toml"), _toml_edit),
    "gemini": (
        lambda: os.path.join(_home("GEMINI_CLI_HOME"), ".gemini", "settings.json"),
        _json_edit("mcpServers", _plain),
    ),
    "qwen": (
        lambda: os.path.join(_home("QWEN_HOME", ".qwen"), "settings.json"),
        _json_edit("mcpServers", _plain),
    ),
    "opencode": (
        _opencode_path,
        _json_edit(
            "mcp", lambda command: {"type": "local", "command": [*command], "enabled": True}
        ),
    ),
    "goose": (_goose_path, _yaml_edit),
    "copilot": (
        lambda: os.path.join(_home("COPILOT_HOME", ".copilot"), "mcp-config.json"),
        _json_edit(
            "mcpServers", lambda command: {"type": "local", **_plain(command), "tools": ["*"]}
        ),
    ),
}
