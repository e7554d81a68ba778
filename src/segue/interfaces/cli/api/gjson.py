"""`--transform`: the paths of GJSON that people use.

Keys and indices with dots between, `\\.` for a dot in a key, `*` and `?` in keys, `#` for an
array's length or each of its elements, `#(key==value)` for the first that fits and `#(…)#` for all,
`{a,b}` and `[a,b]` for several, `|` to go on with all that was found, `!"text"` for a value of
one's own, and the modifiers `@this`, `@reverse`, `@keys`, `@values`, `@flatten`, `@join`, `@group`,
`@dig`, `@tostr`, `@fromstr`, `@valid`, `@ugly` and `@pretty`, some with an argument: `@dig:id`,
`@flatten:{"deep":true}`. How values are written is `--format`'s business: the last two change
nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

_QUERY = re.compile(r"#\((.*)\)(#?)", re.DOTALL)
_SIGN = re.compile(r"==|!=|<=|>=|<|>|!%|%|=")
_OPEN, _CLOSE = "([{", ")]}"


class Missing(Exception):
    """The path leads nowhere."""


def get(value: Any, path: str) -> Any:
    """What a path leads to; Missing if that is nothing."""
    for stage in _parts(path, "|"):
        value = _walk(value, _parts(stage, "."))
    return value


def _walk(value: Any, parts: list[str]) -> Any:
    for place, part in enumerate(parts):
        rest = parts[place + 1 :]
        if part == "#" and isinstance(value, list):
            return _each(value, rest) if rest else len(value)
        if match := _QUERY.fullmatch(part):
            found = [item for item in _list(value) if _fits(item, match[1])]
            if match[2]:
                return _each(found, rest) if rest else found
            if not found:
                raise Missing(part)
            value = found[0]
        else:
            value = _step(value, part)
    return value


def _each(values: list[Any], rest: list[str]) -> list[Any]:
    found = []
    for value in values:
        try:
            found.append(_walk(value, rest))
        except Missing:
            continue
    return found


def _step(value: Any, part: str) -> Any:
    if part.startswith("@"):
        name, _, argument = part.partition(":")
        return _modified(value, name, argument)
    if part.startswith("!"):
        return _literal(part[1:])
    if part[:1] in ("{", "[") and part[-1:] in ("}", "]"):
        return _several(value, part)
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
    raise Missing(part)


def _several(value: Any, part: str) -> Any:
    found: dict[str, Any] = {}
    for each in _parts(part[1:-1], ","):
        name, colon, path = each.strip().partition(":")
        if not colon:
            path = name
        name = name.strip('"') if colon else _parts(path, "|.")[-1]
        try:
            found[name] = get(value, path)
        except Missing:
            continue
    return found if part[0] == "{" else list(found.values())


def _modified(value: Any, name: str, argument: str) -> Any:
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
            return _flat(value, deep=_option(argument, "deep"))
        case "@join", list():
            return _joined(value)
        case "@group", dict():
            return _grouped({key: each for key, each in value.items() if isinstance(each, list)})
        case "@dig", _:
            return list(_dug(value, argument))
        case "@tostr", _:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        case "@fromstr", str():
            return _literal(value)
    raise Missing(name)


def _option(argument: str, name: str) -> bool:
    try:
        given = json.loads(argument or "{}")
    except ValueError:
        return False
    return isinstance(given, dict) and given.get(name) is True


def _flat(values: list[Any], *, deep: bool) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, list):
            found += _flat(value, deep=True) if deep else value
        else:
            found.append(value)
    return found


def _joined(values: list[Any]) -> dict[str, Any]:
    """Objects as one; of a key that several have the last counts."""
    found: dict[str, Any] = {}
    for value in values:
        if isinstance(value, dict):
            found |= value
    return found


def _grouped(columns: dict[str, list[Any]]) -> list[Any]:
    """Lists side by side as objects, one of each place in them."""
    rows = range(max(map(len, columns.values()), default=0))
    return [{key: each[at] for key, each in columns.items() if at < len(each)} for at in rows]


def _dug(value: Any, path: str) -> Iterator[Any]:
    """What a path leads to from the value and from everything within it."""
    with suppress(Missing):
        yield get(value, path)
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _dug(each, path)


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise Missing(text) from None


def _fits(item: Any, test: str) -> bool:
    path = _parts(test, "=!<>%")[0]  # a sign within brackets belongs to what is in them
    try:
        left = get(item, path.strip()) if path.strip() else item
    except Missing:
        return False
    match = _SIGN.match(test, len(path))
    if match is None:
        return True  # that it is there was all that was asked
    sign, text = match[0], test[match.end() :].strip()
    right: Any
    try:
        right = json.loads(text)
    except ValueError:
        right = text
    if sign in ("%", "!%"):
        return isinstance(left, str) and fnmatchcase(left, str(right)) == (sign == "%")
    if sign in ("=", "==", "!="):
        return (left == right and type(left) is type(right)) == (sign != "!=")
    if type(left) is not type(right) and not _numbers(left, right):
        return False
    return bool(
        {"<": left < right, ">": left > right, "<=": left <= right}.get(sign, left >= right)
    )


def _numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Missing("#")
    return value


def _parts(path: str, ends: str) -> list[str]:
    """The path cut at these characters, but not within brackets, quotes or after a backslash."""
    parts, depth, quoted, part = [], 0, False, ""
    characters = iter(path)
    for char in characters:
        if char == "\\":
            part += char + next(characters, "")
            continue
        quoted ^= char == '"'
        if not quoted:
            depth += (char in _OPEN) - (char in _CLOSE)
            if depth == 0 and char in ends:
                parts.append(part)
                part = ""
                continue
        part += char
    return [*parts, part]
