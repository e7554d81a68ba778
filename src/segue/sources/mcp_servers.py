"""The MCP settings of programs: the entry that adds a server, and how a call names its session."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from segue import jsonc
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


def _vscode_path() -> str:
    mac = os.path.expanduser("~/Library/Application Support")
    base = mac if sys.platform == "darwin" else _config_home()
    return os.path.join(base, "Code", "User", "mcp.json")


# What the new entry decides, and what shows that an old one was of another kind: a server's URL.
_OWN_FIELDS = ("type", "name", "command", "cmd", "args", "enabled")
_REMOTE_FIELDS = ("url", "httpUrl", "uri")


def _is_remote(entry: Any) -> bool:
    """Return whether an entry has no settings that one of a command could keep."""
    return not isinstance(entry, dict) or any(field in entry for field in _REMOTE_FIELDS)


def _merged(old: Any, new: dict[str, Any]) -> dict[str, Any]:
    """Return a new entry with the further settings of the one that it replaces."""
    if _is_remote(old):
        return new
    own = {field: new[field] for field in _OWN_FIELDS if field in new}
    return {**new, **old, **own}


def _json_edit(section: str, entry: Callable[[Sequence[str]], dict[str, Any]]) -> Edit:
    """Return a function that adds an entry to an object of a JSON file, with or without comments.

    An entry of the same name keeps its comments and its further settings.
    """

    def add(text: str, name: str, command: Sequence[str]) -> str:
        new = entry(command)
        try:
            config = jsonc.parse(text) or {}
            old = config.get(section, {}).get(name)
            if old is None or _is_remote(old):
                return jsonc.set_value(text, [section, name], new)
            for field, value in new.items():
                if field not in old or (field in _OWN_FIELDS and old[field] != value):
                    text = jsonc.set_value(text, [section, name, field], value)
        except (ValueError, AttributeError, RecursionError) as error:
            raise InvalidInput(
                f"the file cannot be changed: {error}; add this to {section!r} yourself: "
                f"{json.dumps({name: new})}"
            ) from None
        return text

    return add


def _toml_edit(text: str, name: str, command: Sequence[str]) -> str:
    """Add a table to a TOML file, instead of the one with the same name."""
    import tomllib

    mark, text = _split_mark(text)
    newline = _newline(text)
    header = f"[mcp_servers.{name}]"
    new = {**_plain(command), "startup_timeout_sec": _START_SECONDS}
    table = _toml_table(header, new)
    old = re.compile(
        rf"^\[mcp_servers\.{re.escape(name)}\][^\n]*\n(?:(?!\[)[^\n]*\n?)*", re.MULTILINE
    )
    try:
        before = tomllib.loads(text)
        servers = before.setdefault("mcp_servers", {})
        merged = _merged(servers.get(name), new)
        if match := old.search(text):
            # Tables of the entry, such as its environment, have headers of their own.
            fields = {
                field: value
                for field, value in merged.items()
                if not isinstance(value, dict)
                or re.search(rf"^\s*{re.escape(field)}\s*=", match[0], re.M)
            }
            replaced = _without_last_comments(match[0])
            rest = text[match.start() + len(replaced) :]
            table = _toml_table(header, fields)
            if tomllib.loads(replaced) == tomllib.loads(table):
                return mark + text
            if "#" in replaced:
                raise ValueError(f"{header} has comments")
            changed = text[: match.start()] + table.replace("\n", newline) + rest
        else:
            gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
            changed = text + (gap + table).replace("\n", newline)
        after = tomllib.loads(changed)
        servers[name] = merged
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidInput(
            f"the file cannot be changed: {error}; add this yourself:\n{table}"
        ) from None
    if before != after:
        raise InvalidInput(f"the file cannot be changed safely; add this yourself:\n{table}")
    return mark + changed


def _split_mark(text: str) -> tuple[str, str]:
    """Return the byte order mark of a file, if it has one, and the text after it."""
    rest = text.removeprefix(jsonc.BYTE_ORDER_MARK)
    return text[: len(text) - len(rest)], rest


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _without_last_comments(table: str) -> str:
    """Return a table of a TOML file without what stands before the next one: comments, spaces."""
    lines = table.splitlines(keepends=True)
    while not lines[-1].strip() or lines[-1].lstrip().startswith("#"):
        lines.pop()
    return "".join(lines)


def _toml_table(header: str, fields: dict[str, Any]) -> str:
    return "\n".join([header, *(f"{k} = {_toml_value(v)}" for k, v in fields.items())]) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(k)} = {_toml_value(v)}' for k, v in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)


def _yaml_edit(text: str, name: str, command: Sequence[str]) -> str:
    """Add an extension to a YAML file, as text, so that its comments stay."""
    import yaml

    new = {
        "enabled": True,
        "type": "stdio",
        "name": name,
        "description": "Earlier agent sessions",
        "cmd": command[0],
        "args": [*command[1:]],
        "envs": {},
        "timeout": 300,
    }
    mark, text = _split_mark(text)
    try:
        before = yaml.safe_load(text) or {}
        extensions = before.get("extensions") or {}
        entry = _merged(extensions.get(name), new)
        if extensions.get(name) == entry:
            return mark + text
        block = yaml.safe_dump({name: entry}, sort_keys=False, allow_unicode=True)
        if extensions:
            changed = _with_extension(text, name, block)
        else:
            changed = _with_first_extension(text, block, named="extensions" in before)
        after = yaml.safe_load(changed)
    except (yaml.YAMLError, ValueError, AttributeError) as error:
        block = yaml.safe_dump({name: new}, sort_keys=False, allow_unicode=True)
        raise InvalidInput(
            f"the file cannot be changed: {error}; add this to 'extensions' yourself:\n{block}"
        ) from None
    before["extensions"] = {**extensions, name: entry}
    if before != after:
        raise InvalidInput(
            f"the file cannot be changed safely; add this to 'extensions' yourself:\n{block}"
        )
    return mark + changed


_EMPTY_EXTENSIONS = re.compile(
    r"^extensions:(?:[ \t]+(?:\{[ \t]*\}|null|~))?(?P<comment>[ \t]+#[^\r\n]*|[ \t]*)"
    r"(?P<end>\r?\n|\Z)",
    re.MULTILINE,
)


def _with_first_extension(text: str, block: str, *, named: bool) -> str:
    """Return a YAML text without extensions with a block as the first one.

    `named` says that the text has the key `extensions`.
    """
    newline = _newline(text)
    body = _indented(block, "  ", newline)
    if not named:
        gap = newline if text and not text.endswith("\n") else ""
        return f"{text}{gap}extensions:{newline}{body}"
    match = _EMPTY_EXTENSIONS.search(text)
    if match is None:
        raise ValueError("'extensions' is not a block")
    head = f"extensions:{match['comment']}{match['end'] or newline}"
    return text[: match.start()] + head + body + text[match.end() :]


def _with_extension(text: str, name: str, block: str) -> str:
    """Return a YAML text with a block among its extensions, instead of the one of that name."""
    lines = text.splitlines(keepends=True)
    first = next(
        (i + 1 for i, line in enumerate(lines) if re.match(r"extensions:[ \t]*(#.*)?\r?$", line)),
        None,
    )
    if first is None:
        raise ValueError("'extensions' is not a block")
    indent = next(m[1] for line in lines[first:] if (m := re.match(r"([ \t]*)[^\s#]", line)))
    start = end = first
    for number in range(first, len(lines)):
        depth = re.match(r"([ \t]*)[^\s#]", lines[number])
        if depth is None:
            continue  # an empty line or a comment
        if start < end and len(depth[1]) <= len(indent):
            break
        if start < end or re.match(rf"{indent}[\"']?{re.escape(name)}[\"']?:", lines[number]):
            start = start if start < end else number
            end = number + 1
        elif not depth[1] and indent:
            break
    if any("#" in line for line in lines[start:end]):
        raise ValueError(f"the extension {name!r} has comments")
    return "".join([*lines[:start], _indented(block, indent, _newline(text)), *lines[end:]])


def _indented(block: str, indent: str, newline: str) -> str:
    return "".join(f"{indent}{line}{newline}" for line in block.splitlines())


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
    "cursor": (lambda: os.path.expanduser("~/.cursor/mcp.json"), _json_edit("mcpServers", _plain)),
    "vscode": (
        _vscode_path,
        _json_edit("servers", lambda command: {"type": "stdio", **_plain(command)}),
    ),
    "zed": (
        lambda: os.path.join(_config_home(), "zed", "settings.json"),
        _json_edit("context_servers", _plain),
    ),
}


# Variables in which programs give the id of their session to the servers that they start.
_SESSION_VARIABLES = (
    "SEGUE_SESSION_ID",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_SESSION_ID",
    "CODEX_THREAD_ID",
    "GEMINI_SESSION_ID",
    "QWEN_SESSION_ID",
)
# Names under which programs send the id of their session with each call.
_SESSION_FIELDS = ("agent-session-id", "sessionId", "session_id", "threadId", "thread_id")
_NESTED_FIELDS = ("x-codex-turn-metadata",)


def named_caller(meta: Mapping[str, Any], environment: Mapping[str, str]) -> str | None:
    """Return the id of the calling program's session, if the program sends one."""
    fields: list[Mapping[str, Any]] = [meta]
    fields += [nested for name in _NESTED_FIELDS if isinstance(nested := meta.get(name), dict)]
    for values in fields:
        for name in _SESSION_FIELDS:
            if isinstance(id := values.get(name), str) and id:
                return id
    return next((environment[name] for name in _SESSION_VARIABLES if environment.get(name)), None)
