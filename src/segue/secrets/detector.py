"""Find the secrets in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from segue.secrets import assignments, options, private_keys, terminal_codes, urls
from segue.secrets.assignments import find_by_words
from segue.secrets.kubernetes import find_in_kubernetes_secrets
from segue.secrets.options import find_in_options, has_options
from segue.secrets.prefixed import find_infixed, find_prefixed, has_broken_keys
from segue.secrets.private_keys import find_phrases_and_hashes, find_private_keys
from segue.secrets.runs import find_runs, has_keys
from segue.secrets.terminal_codes import plain_view
from segue.secrets.urls import find_in_connections, find_in_urls
from segue.secrets.values import is_generated_password

MIN_SECRET_CHARS = 6
_MAX_DEPTH = 2  # how often a secret may be encoded


class Secret(NamedTuple):
    """One secret of a text: where it is, its kind, and the public text that it begins with."""

    start: int
    end: int
    kind: str
    prefix: str = ""


def find_secrets(text: str) -> list[Secret]:
    """Return the secrets of a text, in order and without overlaps.

    The time is proportional to the length of the text.
    """
    return _find(text, 0) if may_have_secrets(text) else []


def _find(text: str, depth: int) -> list[Secret]:
    if len(text) < MIN_SECRET_CHARS:
        return []
    secrets = list(_find_all(text, depth))
    if (view := plain_view(text)) is not None:
        for secret in _find_all(view.text, depth):
            start, end = view.span(secret.start, secret.end)
            secrets.append(secret._replace(start=start, end=end))
    for start, broken in _with_line_breaks(text):
        for matches in (find_in_options(broken), find_by_words(broken, _lower(broken))):
            secrets += [Secret(first + start, end + start, kind) for first, end, kind in matches]
    for start, joined in _with_joined_arguments(text):
        for first, end, kind in find_in_options(joined):
            secrets.append(Secret(first + start, end + start, kind))
    return _merged(secrets)


# The arguments of a program in a list: `["curl", "-u", "ada:…"]`.
_BETWEEN_ARGUMENTS = re.compile(r"(?<!\\)\\*+[\"'],\s{0,40}\\*+[\"']")
_ARGUMENT = re.compile(r"[\"'],\s{0,40}\\*+[\"']-{1,2}[a-zA-Z]")
_MAX_ARGUMENTS_CHARS = 500


def _with_joined_arguments(text: str) -> Iterator[tuple[int, str]]:
    """Yield lists of arguments with spaces instead of their quotes, and their positions."""
    end = 0
    while argument := _ARGUMENT.search(text, end):
        start = max(end, argument.start() - _MAX_ARGUMENTS_CHARS)
        end = argument.end() + _MAX_ARGUMENTS_CHARS
        while following := _ARGUMENT.search(text, argument.end(), end):
            argument, end = following, following.end() + _MAX_ARGUMENTS_CHARS
        yield start, _BETWEEN_ARGUMENTS.sub(lambda match: " " * len(match[0]), text[start:end])


_ESCAPED_BREAK = re.compile(r"(?<!\\)\\++(?:[nrt]|u0000)")


def _with_line_breaks(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that have escaped line breaks, with real ones instead, and their positions.

    A program or a setting may begin after an escaped line break. The length stays the same.
    """
    if "\\" not in text:
        return
    end = 0
    while escape := _ESCAPED_BREAK.search(text, end):
        start = text.rfind("\n", end, escape.start()) + 1 or end
        end = text.find("\n", escape.end())
        end = end if end >= 0 else len(text)
        line = text[start:end]
        yield start, _ESCAPED_BREAK.sub(lambda match: " " * (len(match[0]) - 1) + "\n", line)


_SIGNS = (
    *assignments.SIGNS,
    *options.SIGNS,
    *private_keys.SIGNS,
    *terminal_codes.SIGNS,
    *urls.SIGNS,
)


def may_have_secrets(text: str) -> bool:
    """Return whether a text has a sign of a secret, which is quicker than to search it.

    Each part of the detector says what a text has in which it finds a secret.
    """
    lower = text.lower()
    if any(sign in lower for sign in _SIGNS):
        return True
    return has_keys(text) or has_options(text) or has_broken_keys(text)


def _find_all(text: str, depth: int) -> Iterator[Secret]:
    lower = _lower(text)
    for start, end, line in find_private_keys(text):
        yield Secret(start, end, "private-key", line)
    for start, end, kind in find_phrases_and_hashes(text, lower):
        yield Secret(start, end, kind)
    for key in find_prefixed(text):
        yield Secret(*key)
    for matches in (
        find_infixed(text),
        find_in_urls(text),
        find_in_connections(text, lower),
        find_in_options(text),
        find_in_kubernetes_secrets(text),
        find_by_words(text, lower),
        find_runs(text, lower, lambda decoded: _has_secret(decoded, depth), decoded=depth > 0),
    ):
        for start, end, kind in matches:
            yield Secret(start, end, kind)
    if depth and is_generated_password(text.strip(), 0.75):
        yield Secret(0, len(text), "password")


def _has_secret(decoded: str, depth: int) -> bool:
    return depth < _MAX_DEPTH and bool(_find(decoded, depth + 1))


def _lower(text: str) -> str:
    """Return the text in lower case, with the same length."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(c.lower() if c.isascii() else c for c in text)


def _merged(secrets: list[Secret]) -> list[Secret]:
    """Return the secrets in order; overlapping ones become one, named after the most precise."""
    secrets.sort(key=lambda secret: (secret.start, not secret.prefix, -secret.end))
    merged: list[Secret] = []
    for secret in secrets:
        if merged and secret.start < merged[-1].end:
            last = merged[-1]
            named = last if last.prefix or not secret.prefix else secret
            prefix = named.prefix if named.start == last.start else ""
            merged[-1] = Secret(last.start, max(last.end, secret.end), named.kind, prefix)
        else:
            merged.append(secret)
    return merged
