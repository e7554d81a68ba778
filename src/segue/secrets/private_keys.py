"""Find private keys: PEM blocks of all kinds, also in JSON strings, diffs and numbered lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

MAX_BLOCK_CHARS = 60_000
_BEGIN = "-----BEGIN "
_END = "-----END "
_LINES = "Private-Lines:"  # of a key of PuTTY
_DATA = re.compile(r"[A-Za-z0-9+/=]{20}")


@cache
def _label() -> re.Pattern[str]:
    return re.compile(r"(?:[A-Z0-9 ]{0,60}PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V\d)-----")


@cache
def _body() -> re.Pattern[str]:
    """Return the pattern of a key whose end is missing.

    A body has base64, headers, line breaks (also escaped ones), quotes, and marks of diffs.
    """
    return re.compile(
        r"(?:[\s\"'+>|,-]|\\+[nrt\"]|\d{1,6}(?:→|\t|: ?)|[A-Za-z-]{4,20}: [^\n\\]{0,80}"
        r"|[A-Za-z0-9+/=]{16,}|[A-Za-z0-9+/=]{1,15}(?![\w ]))+"
    )


@cache
def _putty() -> re.Pattern[str]:
    return re.compile(rf"{_LINES} \d+\s*((?:[ \t+>|-]*[A-Za-z0-9+/=]{{16,}}\s*)+)")


def find_private_keys(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start, end and first line of every private key."""
    position = text.find(_BEGIN)
    while position >= 0:
        label = _label().match(text, position + len(_BEGIN))
        if label is None or text.startswith("…", label.end()):
            position = text.find(_BEGIN, position + 1)
            continue
        end = _block_end(text, label.end())
        if _DATA.search(text, label.end(), end):
            yield position, end, text[position : label.end()]
        position = text.find(_BEGIN, max(end, label.end()))
    if _LINES in text:
        for lines in _putty().finditer(text):
            yield lines.start(1), lines.end(1), ""


def _block_end(text: str, start: int) -> int:
    limit = start + MAX_BLOCK_CHARS
    end = text.find(_END, start, limit)
    other = text.find(_BEGIN, start, limit)
    if end >= 0 and (other < 0 or end < other):
        label = _label().match(text, end + len(_END))
        return label.end() if label else end
    body = _body().match(text, start, limit if other < 0 else other)
    # A few characters after the line are no key: a text only mentions one.
    return body.end() if body and body.end() - start >= 40 else start


_PHRASE_NAMES = ("seed phrase", "recovery phrase", "mnemonic", "seed words", "recovery words")
_PHRASE = re.compile(
    r"[\w \"'`:=\\]{0,20}?(?:[:=\"'`]|\bis)\s{0,4}[\"'`]?((?:[a-z]{3,8} ){11,23}[a-z]{3,8})\b"
)
# One of these is in each text in which this module finds a secret, in lower case.
SIGNS = (_BEGIN.lower(), _LINES.lower(), "$", *_PHRASE_NAMES)
_PASSWORD_HASH = re.compile(r"\$(?:apr1|[156y]|2[abxy]|argon2id?)\$[^\s:\"'`,<>]{16,200}")


def find_phrases_and_hashes(text: str, lower: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start, end and kind of the words of a wallet's key, and of hashes of passwords."""
    for name in _PHRASE_NAMES:
        position = lower.find(name)
        while position >= 0:
            end = position + len(name)
            if match := _PHRASE.match(text, end):
                yield *match.span(1), "seed-phrase"
            position = lower.find(name, end)
    if "$" in text:
        for match in _PASSWORD_HASH.finditer(text):
            yield *match.span(), "password-hash"
