"""Read and change workspace.yaml: the name, directory and branch of a Copilot session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from segue.sources import safe_io
from segue.sources.kit.reader import Unreadable

# Lines that need no YAML parser, whose import is slow: a plain scalar, or one in single quotes.
_PLAIN = re.compile(r"""(\w+): ([^\s&*!|>'"%@`\[\]{}#?,:\-][^\r]*)""")
_QUOTED = re.compile(r"(\w+): '((?:[^']|'')*)'")
_EMPTY = frozenset({"", "~", "null"})


def read_workspace(path: str) -> dict[str, str]:
    """Return the scalars of a workspace file; empty if it cannot be read."""
    data = safe_io.read_small_file(path) or b""
    text = data.decode("utf-8", "replace").replace("\0", "")
    values: dict[str, str] = {}
    others: dict[str, str] = {}
    for line in text.split("\n"):
        if match := _QUOTED.fullmatch(line):
            values[match[1]] = match[2].replace("''", "'")
        elif (match := _PLAIN.fullmatch(line)) and " #" not in line and ": " not in match[2]:
            values[match[1]] = match[2].rstrip()
        elif line.strip():
            name, _, value = line.partition(": ")
            others[name] = value.strip()
    if others:
        values |= _parse(text) or others  # a file that is no YAML may still have readable lines
    return {name: value for name, value in values.items() if value not in _EMPTY}


def _parse(text: str) -> dict[str, str]:
    import yaml

    try:
        values: Any = yaml.load(text, Loader=yaml.BaseLoader)  # all scalars are strings
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    if not isinstance(values, dict):
        return {}
    return {str(name): value for name, value in values.items() if isinstance(value, str)}


def rename(path: str, name: str | None) -> None:
    """Set the name that a person gave to a session, or remove it; other lines stay the same."""
    if safe_io.nonempty_file_status(path) is None:
        raise Unreadable("it has no workspace.yaml, so it cannot be renamed")
    fields = {"name": name, "user_named": name is not None}
    safe_io.replace_file(path, changed_workspace(path, fields))


def changed_workspace(path: str, fields: Mapping[str, str | bool | None]) -> bytes:
    """Return the content of a workspace file with other values of some fields.

    A field without a value is removed. Older versions write the name a second time.
    """
    data = safe_io.read_small_file(path) or b""
    lines: list[str] = []
    changed = dict(fields)
    is_kept = True
    for line in data.decode("utf-8", "surrogateescape").rstrip("\n").split("\n"):
        if line.strip() and not line.startswith((" ", "\t")):  # others continue a value
            key = line.partition(":")[0]
            if key == "summary" and "name" in fields:
                changed[key] = fields["name"]
            is_kept = key not in changed
        if is_kept and data:
            lines.append(line)
    lines += _lines(changed)
    return "\n".join([*lines, ""]).encode("utf-8", "surrogateescape")


def new_workspace(fields: Mapping[str, str | bool | None]) -> bytes:
    """Return the content of a workspace file; fields without a value are left out."""
    return "\n".join([*_lines(fields), ""]).encode("utf-8", "surrogateescape")


def _lines(fields: Mapping[str, str | bool | None]) -> list[str]:
    return [f"{key}: {_scalar(value)}" for key, value in fields.items() if value is not None]


def _scalar(text: str | bool) -> str:
    """Return a value as a YAML scalar; a text is quoted."""
    if isinstance(text, bool):
        return "true" if text else "false"
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    import yaml

    scalar: str = yaml.safe_dump(text, default_style='"', width=1 << 20, allow_unicode=True)
    return scalar.strip()
