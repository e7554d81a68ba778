"""Evaluate GJSON paths, for `--transform`.

Supported are keys and indices separated by dots, `\\.` for a dot in a key, `*` and `?` in keys,
`#` for an array's length or each of its elements, `#(key==value)` for the first match and `#(…)#`
for all matches, `{a,b}` and `[a,b]` for several paths, `|` to apply a path to a whole result,
`!"text"` for a literal, and the modifiers `@this`, `@reverse`, `@keys`, `@values`, `@flatten`,
`@join`, `@group`, `@dig`, `@tostr`, `@fromstr`, `@valid`, `@ugly` and `@pretty`, some with an
argument: `@dig:id`, `@flatten:{"deep":true}`. `--format` decides how values are printed, so `@ugly`
and `@pretty` change nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

_QUERY = re.compile(r"#\((.*)\)(#?)", re.DOTALL)
_OPERATOR = re.compile(r"==|!=|<=|>=|<|>|!%|%|=")
_OPENING, _CLOSING = "([{", ")]}"


class PathNotFound(Exception):
    """A value has nothing at a path."""


def get(value: Any, path: str) -> Any:
    """Return the value at a path. Raises PathNotFound if there is none."""
    for stage in _split(path, "|"):
        value = _walk(value, _split(stage, "."))
    return value


def _walk(value: Any, parts: list[str]) -> Any:
    for index, part in enumerate(parts):
        rest = parts[index + 1 :]
        if part == "#" and isinstance(value, list):
            return _walk_all(value, rest) if rest else len(value)
        if query := _QUERY.fullmatch(part):
            matches = [item for item in _as_list(value) if _matches(item, query[1])]
            if query[2]:
                return _walk_all(matches, rest) if rest else matches
            if not matches:
                raise PathNotFound(part)
            value = matches[0]
        else:
            value = _step(value, part)
    return value


def _walk_all(values: list[Any], parts: list[str]) -> list[Any]:
    """Return what each value has at a path, without those that have nothing there."""
    results = []
    for value in values:
        with suppress(PathNotFound):
            results.append(_walk(value, parts))
    return results


def _step(value: Any, part: str) -> Any:
    if part.startswith("@"):
        name, _, argument = part.partition(":")
        return _apply_modifier(value, name, argument)
    if part.startswith("!"):
        return _parse_literal(part[1:])
    if part[:1] in ("{", "[") and part[-1:] in ("}", "]"):
        return _multipath(value, part)
    if isinstance(value, list):
        if part.isdecimal() and int(part) < len(value):
            return value[int(part)]
    elif isinstance(value, dict):
        key = re.sub(r"\\(.)", r"\1", part)
        if key in value:
            return value[key]
        if "*" in part or "?" in part:
            for name in value:
                if fnmatchcase(name, key.replace("[", "[[]")):
                    return value[name]
    raise PathNotFound(part)


def _multipath(value: Any, part: str) -> Any:
    """Return the values at several paths: `{name:path,…}` as an object, `[path,…]` as a list."""
    results: dict[str, Any] = {}
    for item in _split(part[1:-1], ","):
        name, colon, path = item.strip().partition(":")
        if not colon:
            path = name
        name = name.strip('"') if colon else _split(path, "|.")[-1]
        with suppress(PathNotFound):
            results[name] = get(value, path)
    return results if part[0] == "{" else list(results.values())


def _apply_modifier(value: Any, name: str, argument: str) -> Any:
    match name, value:
        case (("@this" | "@valid" | "@ugly" | "@pretty"), _):
            return value
        case "@reverse", list():
            return value[::-1]
        case "@reverse", dict():
            return dict(reversed(value.items()))
        case "@keys", dict():
            return list(value)
        case "@values", dict():
            return list(value.values())
        case "@flatten", list():
            return _flatten(value, deep=_option(argument, "deep"))
        case "@join", list():
            return _join(value)
        case "@group", dict():
            return _group({key: item for key, item in value.items() if isinstance(item, list)})
        case "@dig", _:
            return list(_dig(value, argument))
        case "@tostr", _:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        case "@fromstr", str():
            return _parse_literal(value)
    raise PathNotFound(name)


def _option(argument: str, name: str) -> bool:
    try:
        options = json.loads(argument or "{}")
    except ValueError:
        return False
    return isinstance(options, dict) and options.get(name) is True


def _flatten(values: list[Any], *, deep: bool) -> list[Any]:
    flat: list[Any] = []
    for value in values:
        if isinstance(value, list):
            flat += _flatten(value, deep=True) if deep else value
        else:
            flat.append(value)
    return flat


def _join(values: list[Any]) -> dict[str, Any]:
    """Merge objects into one; the last value of a key wins."""
    merged: dict[str, Any] = {}
    for value in values:
        if isinstance(value, dict):
            merged |= value
    return merged


def _group(columns: dict[str, list[Any]]) -> list[Any]:
    """Turn an object of lists into a list of objects, one per index."""
    rows = range(max(map(len, columns.values()), default=0))
    return [
        {key: column[row] for key, column in columns.items() if row < len(column)} for row in rows
    ]


def _dig(value: Any, path: str) -> Iterator[Any]:
    """Yield what the value, and every value inside of it, has at a path."""
    with suppress(PathNotFound):
        yield get(value, path)
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _dig(item, path)


def _parse_literal(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise PathNotFound(text) from None


def _matches(item: Any, test: str) -> bool:
    """Return True if an item passes a query's test, such as `key==value`."""
    path = _split(test, "=!<>%")[0]  # an operator inside of brackets belongs to the path
    try:
        left = get(item, path.strip()) if path.strip() else item
    except PathNotFound:
        return False
    match = _OPERATOR.match(test, len(path))
    if match is None:
        return True  # without an operator, the path only has to exist
    operator, text = match[0], test[match.end() :].strip()
    right: Any
    try:
        right = json.loads(text)
    except ValueError:
        right = text
    if operator in ("%", "!%"):
        return isinstance(left, str) and fnmatchcase(left, str(right)) == (operator == "%")
    if operator in ("=", "==", "!="):
        return (left == right and type(left) is type(right)) == (operator != "!=")
    if type(left) is not type(right) and not _are_numbers(left, right):
        return False
    return bool(
        {"<": left < right, ">": left > right, "<=": left <= right}.get(operator, left >= right)
    )


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _as_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise PathNotFound("#")
    return value


def _split(path: str, separators: str) -> list[str]:
    """Split a path at characters outside of brackets and quotes, unless a backslash precedes."""
    parts, depth, quoted, part = [], 0, False, ""
    characters = iter(path)
    for char in characters:
        if char == "\\":
            part += char + next(characters, "")
            continue
        quoted ^= char == '"'
        if not quoted:
            depth += (char in _OPENING) - (char in _CLOSING)
            if depth == 0 and char in separators:
                parts.append(part)
                part = ""
                continue
        part += char
    return [*parts, part]
