"""Read workspace.yaml: the name, directory and branch of a Copilot session."""

from __future__ import annotations

import re
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
    data = safe_io.read_small_file(path)
    if data is None:
        raise Unreadable("it has no workspace.yaml, so it cannot be renamed")
    lines: list[str] = []
    names, is_kept = ["name"], True
    for line in data.decode("utf-8", "surrogateescape").rstrip("\n").split("\n"):
        if line.strip() and not line.startswith((" ", "\t")):  # others continue a value
            key = line.partition(":")[0]
            is_kept = key not in ("name", "summary", "user_named")
            if key == "summary":  # older versions write the name twice
                names.append(key)
        if is_kept:
            lines.append(line)
    if name is not None:
        lines += [f"{key}: {_scalar(name)}" for key in names]
    lines += [f"user_named: {'false' if name is None else 'true'}", ""]
    safe_io.replace_file(path, "\n".join(lines).encode("utf-8", "surrogateescape"))


def _scalar(text: str) -> str:
    """Return a text as a quoted YAML scalar."""
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    import yaml

    scalar: str = yaml.safe_dump(text, default_style='"', width=1 << 20, allow_unicode=True)
    return scalar.strip()
