"""Change one value in the text of a JSON file with comments; everything else stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

BYTE_ORDER_MARK = "\ufeff"
_DEFAULT_INDENT = "  "
_FIRST_INDENT = re.compile(r"\n([ \t]+)\S")
_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\r\n]*|/\*.*?\*/', re.DOTALL)
_STRING_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)
_SPACE = re.compile(r"\s*")
_LINE_INDENT = re.compile(r"[ \t]*")
# What follows a value on its line: a comma, and comments that belong to the value.
_REST_OF_LINE = re.compile(r"[ \t]*(,)?(?:[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/))*")


class _Container(NamedTuple):
    """An object or a list in a text: where it and its values are, by name or number."""

    start: int
    end: int
    first: int | None
    values: dict[str | int, tuple[int, int]]
    last_value_end: int


def parse(text: str) -> Any:
    """Return the value of JSON with comments, None for an empty text; raises ValueError."""
    plain = _without_comments(text)
    return json.loads(plain, strict=False) if plain.strip() else None


def set_value(text: str, path: Sequence[str | int], value: Any) -> str:
    """Return the text with a value at a path of names and, in lists, numbers.

    Objects that are missing are added, and the number after a list's last adds an item. Raises
    ValueError if the text is not JSON with comments, or another value is in the way.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    plain = _without_comments(text)
    if not plain.strip():
        gap = newline if text.strip(BYTE_ORDER_MARK) and not text.endswith("\n") else ""
        text += f"{gap}{{{newline}}}{newline}"
        plain = _without_comments(text)
    json.loads(plain, strict=False)
    start = _after_space(plain, 0)
    for depth, name in enumerate(path):
        if plain[start] != ("{" if isinstance(name, str) else "["):
            owner = ".".join(map(str, path[:depth])) or "the file"
            raise ValueError(f"{owner} is not {'an object' if isinstance(name, str) else 'a list'}")
        container = _read_container(plain, start)
        if name not in container.values:
            for missing in reversed(path[depth + 1 :]):
                value = {missing: value}
            key = f"{json.dumps(name)}: " if isinstance(name, str) else ""
            return _with_member(text, container, key, value, newline)
        start, end = container.values[name]
    if "\n" in text[start:end]:
        written = _dump(value, text, _line_indent(text, start), newline)
    else:
        written = json.dumps(value, ensure_ascii=False)
    return text[:start] + written + text[end:]


def _without_comments(text: str) -> str:
    """Return JSON of the same length, with spaces for comments and for commas before an end."""

    def blank(match: re.Match[str]) -> str:
        matched = match[0]
        return matched if matched.startswith('"') else re.sub(r"[^\n]", " ", matched)

    plain = _STRING_OR_COMMA.sub(blank, _STRING_OR_COMMENT.sub(blank, text))
    return f" {plain[1:]}" if plain.startswith(BYTE_ORDER_MARK) else plain


def _after_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()


def _read_container(plain: str, start: int) -> _Container:
    """Return the object or list that begins at a position of valid JSON."""
    decoder = json.JSONDecoder(strict=False)
    values: dict[str | int, tuple[int, int]] = {}
    is_object = plain[start] == "{"
    end = start + 1
    first = position = _after_space(plain, end)
    while plain[position] not in "}]":
        name: str | int = len(values)
        value_start = position
        if is_object:
            name, position = decoder.raw_decode(plain, position)
            value_start = _after_space(plain, _after_space(plain, position) + 1)
        _, end = decoder.raw_decode(plain, value_start)
        values[name] = (value_start, end)
        position = _after_space(plain, end)
        if plain[position] == ",":
            position = _after_space(plain, position + 1)
    return _Container(start, position + 1, first if values else None, values, end)


def _with_member(text: str, container: _Container, key: str, value: Any, newline: str) -> str:
    """Return the text with a new last value of an object or list, after its key."""
    outer = _line_indent(text, container.start)
    end = container.last_value_end
    is_one_line = "\n" not in text[container.start : container.end]
    if container.first is None:
        indent = outer + _indent_unit(text)
        member = f"{newline}{indent}{key}{_dump(value, text, indent, newline)}"
        return text[:end] + member + (f"{newline}{outer}" if is_one_line else "") + text[end:]
    if is_one_line:
        dumped = json.dumps(value, ensure_ascii=False)
        return f"{text[:end]}, {key}{dumped}{text[end:]}"
    before = text[text.rfind("\n", 0, container.first) + 1 : container.first]
    indent = outer + _indent_unit(text) if before.strip() else before
    member = f"{newline}{indent}{key}{_dump(value, text, indent, newline)}"
    rest = _REST_OF_LINE.match(text, end)
    assert rest is not None
    if rest[1] is not None:
        return f"{text[: rest.end()]}{member},{text[rest.end() :]}"
    return f"{text[:end]},{text[end : rest.end()]}{member}{text[rest.end() :]}"


def _line_indent(text: str, position: int) -> str:
    """Return the space with which the line of a position begins."""
    match = _LINE_INDENT.match(text, text.rfind("\n", 0, position) + 1)
    assert match is not None
    return match[0]


def _indent_unit(text: str) -> str:
    match = _FIRST_INDENT.search(text)
    return match[1] if match else _DEFAULT_INDENT


def _dump(value: Any, text: str, indent: str, newline: str) -> str:
    """Return a value as it is written in a line with an indent."""
    dumped = json.dumps(value, indent=_indent_unit(text), ensure_ascii=False)
    return dumped.replace("\n", f"{newline}{indent}")
