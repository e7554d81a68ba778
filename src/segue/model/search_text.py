"""The searchable text of events, its tokens, and the terms of a search.

Every store uses these functions, so that a query finds the same sessions everywhere: case is
folded, compatibility forms are unified, words are split at anything that is neither letter nor
digit, and each character of Chinese, Japanese and Korean script is a token.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, lru_cache
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from msgspec import UNSET

from .ansi import strip_codes
from .content import Block, Diff, FileChange, ResourceLink, plain_text
from .event import (
    AgentMessage,
    AgentThought,
    Body,
    Compacted,
    Failed,
    Foreign,
    InfoChanged,
    PlanChanged,
    SystemMessage,
    ToolCall,
    ToolCallChanged,
    ToolResult,
    UserMessage,
)
from .session import Session, is_session_directory

MAX_EVENT_CHARS = 256_000  # of one event that are searchable
MAX_TOOL_RESULT_CHARS = 16_000  # of one tool result
_MAX_CHARS: dict[type, int | None] = {ToolResult: MAX_TOOL_RESULT_CHARS, InfoChanged: None}
# Of the parts of a session's row. PostgreSQL indexes up to 255 equal words together.
MAX_TITLE_CHARS, MAX_PATH_CHARS, MAX_LABEL_CHARS = 200, 160, 45
MAX_TOKEN_CHARS = 64
MIN_PREFIX_CHARS = 2
MAX_ACCENTS = 64  # in a row
MAX_FOLDED_CHARS = 2 * MAX_EVENT_CHARS
SLICE_CHARS = 8_192
MAX_QUERY_CHARS = 8_000
MAX_MARKED_WORDS = 64  # of a query, in a snippet
# Tokens of a term that is searched with a regular expression, whose time grows with their number.
MAX_PATTERN_TOKENS = 8

# Letters and digits; scripts written without spaces one by one, the rest in runs.
_CJK = "\u1100-\u11ff\u2e80-\u2fdf\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
_CJK += "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
_ASCII_TOKEN = re.compile(r"[a-z0-9]+")
# Accents are neither letters nor white space nor ASCII. Neither are a few symbols, which no word
# contains.
_ACCENTS = re.compile(rf"[^\w\s\x00-\x7f]{{{MAX_ACCENTS + 1},}}+")
_ODD_SPACE = re.compile(r"[^\S ]")
_PART = re.compile(r'"([^"]*)"?|(\S+)')
_start = attrgetter("start")


@cache
def _token() -> re.Pattern[str]:
    """Return the pattern of tokens. Compiled on first use: it takes as long as a session list."""
    return re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")


class Term(NamedTuple):
    """Tokens that must occur in sequence; with `prefix`, the last one may be a word's beginning."""

    tokens: tuple[str, ...]
    prefix: bool = False


def tokens(text: str) -> list[str]:
    """Return the words of a text, in order."""
    if text.isascii():
        words = _ASCII_TOKEN.findall(text.lower())
    else:
        words = _token().findall(_fold(text))
    return [token[:MAX_TOKEN_CHARS] for token in words]


def _fold(text: str) -> str:
    """Return the text in one case and one form of each character.

    Normalizing sorts the accents of a letter, in a time that grows with the square of their number.
    Only the first MAX_ACCENTS of a run of accents are kept; no word has more.
    """
    text = _ACCENTS.sub(lambda run: run[0][:MAX_ACCENTS], text)
    parts: list[str] = []
    size = 0
    for part in _slices(text):
        parts.append(unicodedata.normalize("NFKC", part).casefold())
        size += len(parts[-1])
        if size > MAX_FOLDED_CHARS:  # a character may become eighteen
            break
    return "".join(parts)


def _slices(text: str) -> Iterator[str]:
    """Yield a text in slices, between words if possible. Other threads run between two slices."""
    start = 0
    while len(text) - start > SLICE_CHARS:
        end = text.rfind(" ", start + 1, start + SLICE_CHARS)
        end = end if end >= 0 else start + SLICE_CHARS
        yield text[start:end]
        start = end
    yield text[start:]


def terms(query: str) -> list[Term]:
    """Return the terms of a search.

    Every term must occur somewhere in a session. A quoted part is a phrase. The last word, if it
    is not quoted and nothing follows it, also matches longer words. Of a very long query, only the
    beginning counts.
    """
    query = query[:MAX_QUERY_CHARS]
    parsed: list[Term] = []
    for match in _PART.finditer(query):
        words = tuple(tokens(match[0]))
        if words:
            open_ended = match[2] is not None and match.end() == len(query)
            long_enough = len(words[-1]) >= MIN_PREFIX_CHARS
            parsed.append(Term(words, prefix=open_ended and long_enough))
    return parsed


def query_of(search_terms: Sequence[Term]) -> str:
    """Return a query that has these terms. Only the last one may be a prefix."""
    last = len(search_terms) - 1
    parts = []
    for number, term in enumerate(search_terms):
        text = " ".join(term.tokens)
        is_exact = number < last or term.prefix  # without quotes, the last word is a prefix
        parts.append(text if len(term.tokens) == 1 and is_exact else f'"{text}"')
    return " ".join(parts)


def words_have_term(term: Term, words: Sequence[str]) -> bool:
    """Return whether a term occurs in a text's words. Tests compare every index with this."""
    return _needle(term) in f" {' '.join(words)} "


def _needle(term: Term) -> str:
    """Return what a text's words, joined by spaces, contain if they have a term.

    Python finds a string in linear time, however often its beginning occurs.
    """
    return f" {' '.join(term.tokens)}{'' if term.prefix else ' '}"


def text_has_term(term: Term, text: str) -> bool:
    """Return whether a term occurs in a text, faster than splitting it into words."""
    if not text.isascii():
        folded = _fold(text)
        return all(token in folded for token in term.tokens) and words_have_term(term, tokens(text))
    if len(term.tokens) > MAX_PATTERN_TOKENS:
        return words_have_term(term, tokens(text))
    return any(_term_ranges(term, text.lower()))


def count_occurrences(term: Term, text: str) -> int:
    """Return how often a term occurs in a text."""
    if text.isascii() and len(term.tokens) <= MAX_PATTERN_TOKENS:
        return sum(1 for _ in _term_ranges(term, text.lower()))
    needle, words = _needle(term), f" {' '.join(tokens(text))} "
    count, at = 0, words.find(needle)
    while at >= 0:
        count, at = count + 1, words.find(needle, at + 1)
    return count


def _term_ranges(term: Term, folded: str) -> Iterator[range]:
    """Yield the ranges of a term's first word in lower-case ASCII text."""
    first = term.tokens[0]
    if first not in folded:
        return
    is_single = len(term.tokens) == 1
    is_prefix = (is_single and term.prefix) or len(first) == MAX_TOKEN_CHARS
    pattern = None if is_single else _sequence_pattern(term)
    for match_range in _word_ranges(first, folded, len(folded), is_prefix=is_prefix):
        if pattern is None or pattern.match(folded, match_range.start):
            yield match_range


@lru_cache(64)
def _sequence_pattern(term: Term) -> re.Pattern[str]:
    """Return a pattern of the term's words in sequence, for ASCII text."""
    words = [
        token + ("[a-z0-9]*" if len(token) == MAX_TOKEN_CHARS else "") for token in term.tokens
    ]
    end = "" if term.prefix else "(?![a-z0-9])"
    return re.compile("[^a-z0-9]+".join(words) + end)


def has_word_with_prefix(prefix: str, text: str) -> bool:
    """Return whether a text has a word with a prefix."""
    if text.isascii():
        return any(_word_ranges(prefix, text.lower(), 0, is_prefix=True))
    return any(word.startswith(prefix) for word in tokens(text))


def searchable_text(body: Body) -> str:
    """Return the text by which an event can be found, without terminal codes.

    It is empty for most kinds of events.
    """
    return strip_codes(_text_of_event(body), _MAX_CHARS.get(type(body), MAX_EVENT_CHARS))


def searchable_row(session: Session) -> str:
    """Return the text by which a session can be found besides its events.

    It has the title, the tag, the project's path, the branch and the source.
    """
    directory = session.directory
    path = "" if is_session_directory(directory) else _path_in_home(directory)
    labels = (session.tag, session.git_branch, session.source)
    parts = [
        (session.title or "")[:MAX_TITLE_CHARS],
        path[-MAX_PATH_CHARS:],
        *((label or "")[:MAX_LABEL_CHARS] for label in labels),
    ]
    return strip_codes("\n".join(filter(None, parts)))


def _path_in_home(directory: str) -> str:
    """Return a path without the home directory at its beginning, which many sessions share."""
    parts = directory.replace("\\", "/").split("/")
    if parts[1:2] in (["home"], ["Users"]):
        return "/".join(parts[3:])
    return "/".join(parts[2:] if parts[1:2] == ["root"] else parts)


def _text_of_event(body: Body) -> str:
    match body:
        case UserMessage() | AgentMessage() | AgentThought() | SystemMessage() | ToolResult():
            return _text(body.content)
        case ToolCall():
            title = body.title or _computed_title()(body)
            return " ".join(filter(None, (title, body.name, _text(body.content))))
        case ToolCallChanged():
            content = () if body.content is UNSET else body.content
            title = body.title if isinstance(body.title, str) else None
            return " ".join(filter(None, (title, _text(content))))
        case InfoChanged():
            return " ".join(part for part in (body.title, body.tag) if isinstance(part, str))
        case PlanChanged():
            return "\n".join(entry.content for entry in body.entries)
        case Compacted():
            return _text(body.summary)
        case Failed():
            return body.message
        case Foreign():
            return body.words
    return ""


@cache
def _computed_title() -> Callable[[ToolCall], str | None]:
    from .tools.titles import computed_title  # late: lists and searches index nothing

    return computed_title


def _text(content: Sequence[Block]) -> str:
    parts = [plain_text(content)]
    for block in content:
        if isinstance(block, Diff | FileChange):
            parts.append(block.path)
        elif isinstance(block, ResourceLink):
            parts.append(f"{block.name} {block.uri}")
    return " ".join(part for part in parts if part)


def snippet(text: str, search_terms: Sequence[Term], width: int = 160) -> tuple[str, list[range]]:
    """Return a piece of `text` around the first match, and the ranges of matches in it."""
    hits = _hits(text, _words(tuple(search_terms)), width)
    first = hits[0].start if hits else 0
    start = max(0, first - width // 3)
    if start:
        space = text.find(" ", start, first)
        start = space + 1 if space >= 0 else start
    piece = text[start : start + width]
    head = "…" if start else ""
    tail = "…" if start + width < len(text) else ""
    moved = len(head) - start
    marks = [
        range(hit.start + moved, hit.stop + moved)
        for hit in hits
        if hit.start >= start and hit.stop <= start + len(piece)
    ]
    # One character for another, so that the ranges stay correct.
    printable = piece if piece.isprintable() else _ODD_SPACE.sub(" ", piece)
    return head + printable + tail, marks


@lru_cache(64)
def _words(search_terms: tuple[Term, ...]) -> frozenset[tuple[str, bool]]:
    """Return the first words of terms, each with whether it is a prefix."""
    words = (
        (token, (term.prefix and index == len(term.tokens) - 1) or len(token) == MAX_TOKEN_CHARS)
        for term in search_terms
        for index, token in enumerate(term.tokens)
    )
    return frozenset(islice(words, MAX_MARKED_WORDS))


def _hits(text: str, words: Collection[tuple[str, bool]], width: int) -> list[range]:
    """Return the ranges of the words, from the first match on, within `width` characters."""
    if text.isascii():  # folding does not change positions
        folded = text.lower()
        if len(words) == 1:
            ((token, is_prefix),) = words
            return list(_word_ranges(token, folded, width, is_prefix=is_prefix))
        ranges = {
            hit
            for token, is_prefix in words
            for hit in _word_ranges(token, folded, width, is_prefix=is_prefix)
        }
    else:
        ranges = _folded_hits(text, words)
    hits = sorted(ranges, key=_start)
    return [hit for hit in hits if hit.start <= hits[0].start + width]


def _word_ranges(token: str, folded: str, width: int, *, is_prefix: bool) -> Iterator[range]:
    """Yield the ranges of a word in lower-case ASCII text, within `width` of the first one.

    With `is_prefix`, longer words match too.
    """
    at, stop = folded.find(token), len(folded)
    while 0 <= at <= stop:
        end = at + len(token)
        if not at or not folded[at - 1].isalnum():
            while is_prefix and folded[end : end + 1].isalnum():
                end += 1
            if not folded[end : end + 1].isalnum():
                stop = min(stop, at + width)
                yield range(at, end)
        at = folded.find(token, end)


def _folded_hits(text: str, words: Collection[tuple[str, bool]]) -> set[range]:
    exact = {token for token, is_prefix in words if not is_prefix}
    prefixes = tuple(token for token, is_prefix in words if is_prefix)
    hits: set[range] = set()
    for match in _token().finditer(text):
        # Folding word by word keeps the positions of the original text.
        for token in tokens(match[0])[:1]:
            if token in exact or (prefixes and token.startswith(prefixes)):
                hits.add(range(match.start(), match.end()))
    return hits
