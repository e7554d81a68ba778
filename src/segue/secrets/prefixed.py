"""Find keys that begin with a text of their own, or have one in their middle."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from segue.secrets.formats import (
    PrefixRule,
    alternatives,
    escaped_prefix_pattern,
    infix_rules,
    prefix_pattern,
    prefix_rules,
)
from segue.secrets.randomness import is_varied, looks_random

# Prefixes that are recognised in the middle of a word too.
_UNMISTAKABLE = ("sk-ant-", "sk-proj-", "github_pat_", "ghp_", "glpat-", "xoxb-", "sk_live_")
_MAX_BREAKS = 6  # line breaks in one key
_MAX_KEY_CHARACTERS = 700  # characters that a key with line breaks may have
_MIN_PREFIX_CHARS = 3  # of a key with line breaks


class PrefixedKey(NamedTuple):
    start: int
    end: int
    kind: str
    prefix: str


@cache
def _break() -> re.Pattern[str]:
    """Return the pattern of a break inside a key.

    It is the end of a line with what begins the next one, or the end and the beginning of two
    strings that are joined.
    """
    line_end = r"[ \t]*\\?(?:\r?\n|\\r\\n|\\n)[ \t]*[+>|-]?[ \t]*(?:\d{1,6}[→\t])?"
    strings = rf"\\*[\"'][ \t]*[+.\\&]?[ \t]*(?:{line_end})?[ \t]*[+.]?[ \t]*[rbf]?\\*[\"']"
    return re.compile(rf"(?:{strings}|{line_end})(?=[A-Za-z0-9_/+=.-])")


_DATA = re.compile(r"[A-Za-z0-9+/]{40}")  # before a prefix: it is a part of longer data
_KEY_TEXT = re.compile(r"[A-Za-z0-9_/+=.~%$-]*")


@cache
def _broken_key() -> re.Pattern[str]:
    """Return the pattern of the beginning of a key that continues on the next line or string."""
    prefixes = {
        prefix
        for prefix, rules in prefix_rules().items()
        if any(_may_be_broken(rule) for rule in rules)
    }
    start = rf"(?:(?<![A-Za-z0-9])|(?<=%[0-9A-F]{{2}})){alternatives(sorted(prefixes))}"
    anywhere = "|".join(map(re.escape, _UNMISTAKABLE))
    return re.compile(rf"(?:{start}|{anywhere}){_KEY_TEXT.pattern}{_break().pattern}")


def has_broken_keys(text: str) -> bool:
    """Return whether a text may have a key that is split over lines or joined strings."""
    is_split = "\n" in text or '"' in text or "'" in text
    return is_split and _broken_key().search(text) is not None


def _may_be_broken(rule: PrefixRule) -> bool:
    """Return whether keys of a format are also found if a line break is in them."""
    return not rule.random and len(rule.prefix) >= _MIN_PREFIX_CHARS


def find_prefixed(text: str) -> Iterator[PrefixedKey]:
    """Yield the keys that begin with the prefix of a format."""
    yield from _find_pattern(text, prefix_pattern())
    if "\\" in text or "%" in text:
        yield from _find_pattern(text, escaped_prefix_pattern())
    for prefix in _UNMISTAKABLE:
        start = text.find(prefix)
        while start >= 0:
            if start and text[start - 1].isalnum():
                yield from _match_prefix(text, start, prefix)
            start = text.find(prefix, start + len(prefix))


def _find_pattern(text: str, pattern: re.Pattern[str]) -> Iterator[PrefixedKey]:
    position = 0
    while match := pattern.search(text, position):
        position = match.end()
        for key in _match_prefix(text, match.start(1), match[1]):
            yield key
            position = max(position, key.end)


def _match_prefix(text: str, start: int, prefix: str) -> Iterator[PrefixedKey]:
    """Yield the key that begins with a prefix, or with a shorter one of another format."""
    rules = prefix_rules()
    for length in range(len(prefix), 0, -1):
        for rule in rules.get(prefix[:length], ()):
            if key := _match_rule(text, start, rule):
                yield key
                return


def _match_rule(text: str, start: int, rule: PrefixRule) -> PrefixedKey | None:
    after = start + len(rule.prefix)
    if rule.kind == "jwt" and start and text[start - 1] in "_-":
        return None
    if rule.random and _DATA.fullmatch(text, max(0, start - 40), start):
        return None
    match = rule.rest.match(text, after)
    if match is not None:
        if looks_random(match[0], 0.6) if rule.random else is_varied(match[0]):
            return PrefixedKey(start, match.end(), rule.kind, rule.prefix)
        return None
    if not _may_be_broken(rule):
        return None
    end = _broken_end(text, start, after, rule.rest)
    return None if end is None else PrefixedKey(start, end, rule.kind, rule.prefix)


def _broken_end(text: str, start: int, after: int, rest: re.Pattern[str]) -> int | None:
    """Return the end of a key that is split over lines or joined strings."""
    pieces = [text[start:after]]
    starts: list[tuple[int, int]] = []  # positions of the pieces: in the key, and in the text
    size, position = after - start, after
    for _ in range(_MAX_BREAKS):
        piece = _KEY_TEXT.match(text, position, after + _MAX_KEY_CHARACTERS)
        assert piece is not None
        starts.append((size, position))
        pieces.append(piece[0])
        size += len(piece[0])
        gap = _break().match(text, piece.end(), after + _MAX_KEY_CHARACTERS)
        if gap is None:
            break
        position = gap.end()
    if len(starts) < 2:
        return None
    joined = "".join(pieces)
    match = rest.match(joined, after - start)
    if match is None or not is_varied(match[0]):
        return None
    size, position = next(pair for pair in reversed(starts) if pair[0] < match.end())
    return position + match.end() - size


def find_infixed(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start, end and kind of keys that have a known text in their middle."""
    for kind, infix, before, after, reach in infix_rules():
        position = text.find(infix)
        while position >= 0:
            end = position + len(infix)
            match = after.match(text, end)
            if match is not None:
                window = text[max(0, position - reach) : position]
                start = before.search(window)
                if start is not None and is_varied(match[0] + start[0]):
                    yield position - len(window) + start.start(), match.end(), kind
                    end = match.end()
            position = text.find(infix, max(end, position + 1))
