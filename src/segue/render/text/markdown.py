"""Render untrusted Markdown and code as safe HTML, within limits of time and memory.

Texts that are cheap by construction are rendered in this process, others in a child process. A text
that is too costly is shown without highlighted code, or as plain text.
"""

from __future__ import annotations

import html
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from segue.model.ansi import strip_colors
from segue.render import threads
from segue.untrusted import PARSERS, ParsersBusy, ParsingFailed

from .colors import colored
from .markdown_parser import (
    can_highlight,
    code_element,
    highlight,
    parse_markdown,
    parse_markdown_without_lexers,
)

if TYPE_CHECKING:
    from markupsafe import Markup

MAX_MARKDOWN_CHARACTERS = 60_000  # a longer text is shown as plain text
MAX_CACHED_CHARACTERS = 16_000_000
LINE_CHARACTERS = 40  # of prose, which take as long to parse as the beginning of a line
CALL_CHARACTERS = 20  # render in the time that a text from the cache takes to find
# Highlighted in this process, because its lexer loops over the characters and uses no regular
# expressions.
INLINE_LANGUAGE = "json"

_MARKS = re.compile(r"[^\w\s.,:;?!'\"()/%$=-]|_")
_FENCES = ("```", "~~~")
_SLICE_CHARACTERS = 1 << 18
# Control characters, lone surrogates, noncharacters, and marks that change the direction of text:
# a command must not look like another one.
_NONCHARACTERS = "".join(chr(plane << 16 | end) for plane in range(17) for end in (0xFFFE, 0xFFFF))
_DIRECTION_MARKS = "\u202a-\u202e\u2066-\u2069"
_UNSENDABLE = re.compile(
    rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{_DIRECTION_MARKS}\ud800-\udfff\ufdd0-\ufdef{_NONCHARACTERS}]"
)


def markdown(text: str) -> Markup:
    """Return Markdown as safe HTML."""
    if len(text) > MAX_MARKDOWN_CHARACTERS:
        return _plain(text)
    return _markdown(text)


def _markdown(text: str) -> Markup:
    return _cached("markdown", text, lambda: _render_markdown(sendable(text)))


def _render_markdown(text: str) -> str:
    with_code = any(fence in text for fence in _FENCES)
    cost = _cost(text)
    if cost <= threads.MAX_INLINE_CHARACTERS and not with_code:
        threads.use_characters(cost)
        return parse_markdown_without_lexers(text)
    parsers = (parse_markdown,) if with_code else ()
    for parse in (*parsers, parse_markdown_without_lexers):
        try:
            return _parse_in_child(parse, text)
        except ParsersBusy:
            raise
        except ParsingFailed:
            continue
    return str(_plain(text))


def _cost(text: str) -> int:
    """Return an upper limit of the time to parse a text without code, in characters of prose.

    For each character that has a meaning in Markdown, the parser may read the whole text.
    """
    if len(text) > threads.MAX_INLINE_CHARACTERS:
        return len(text)
    marks = len(_MARKS.findall(text))
    return len(text) * (4 + marks) // 4 + LINE_CHARACTERS * text.count("\n")


def code(text: str, language: str = "") -> Markup:
    """Return code as HTML, highlighted if the language is known."""
    from markupsafe import Markup

    text = sendable(strip_colors(text))
    if not can_highlight(text, language):
        threads.use_characters(len(text) // 10)
        return Markup(code_element(html.escape(text)))
    return _cached(language, text, lambda: code_element(_highlight(text, language)))


def terminal_output(text: str) -> Markup:
    """Return the output of a command as HTML, with its colours."""
    from markupsafe import Markup

    threads.use_characters(len(text) // 4)
    return Markup(code_element(sendable(colored(text))))


def _highlight(text: str, language: str) -> str:
    if language == INLINE_LANGUAGE:
        threads.use_characters(len(text))
        return highlight(text, language)
    try:
        return _parse_in_child(highlight, text, language)
    except ParsersBusy:
        raise
    except ParsingFailed:
        return html.escape(text)


def _parse_in_child(function: Callable[..., str], *arguments: object) -> str:
    if not threads.may_use_child():
        raise ParsersBusy("the page took too long")
    return PARSERS.call(function, *arguments)


def _plain(text: str) -> Markup:
    from markupsafe import Markup

    return Markup('<div class="plain">{}</div>').format(sendable(text))


def _cached(kind: str, text: str, render: Callable[[], str]) -> Markup:
    """Return rendered HTML from the cache, or render it. If no parser is free, return plain text.

    The result of a text that was too costly is cached as well, so that it costs time only once.
    """
    from markupsafe import Markup

    threads.use_characters(CALL_CHARACTERS)
    key = (kind, text)
    rendered = _cache().get(key)
    if rendered is None:
        try:
            rendered = render()
        except ParsersBusy:
            return _plain(text)
        _cache().put(key, rendered)
    return Markup(rendered)


class _Cache:
    """The most recently used texts, as HTML."""

    def __init__(self) -> None:
        self._rendered: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._characters = 0
        self._lock = threading.Lock()

    def get(self, key: tuple[str, str]) -> str | None:
        with self._lock:
            rendered = self._rendered.get(key)
            if rendered is not None:
                self._rendered.move_to_end(key)
            return rendered

    def put(self, key: tuple[str, str], rendered: str) -> None:
        with self._lock:
            if key in self._rendered:
                return
            self._rendered[key] = rendered
            self._characters += len(key[1]) + len(rendered)
            while self._characters > MAX_CACHED_CHARACTERS:
                (_, text), oldest = self._rendered.popitem(last=False)
                self._characters -= len(text) + len(oldest)


@cache
def _cache() -> _Cache:
    return _Cache()


def format_backticks(message: str) -> Markup:
    """Return one of segue's own messages as HTML, with text in backticks as code."""
    from markupsafe import Markup

    parts = html.escape(sendable(message)).split("`")
    if len(parts) % 2 == 0:
        return Markup("`".join(parts))
    return Markup(
        "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))
    )


def sendable(text: str) -> str:
    """Return the text with U+FFFD for every character that a page must not contain."""
    if text.isprintable():  # a fast check that most texts pass
        return text
    if len(text) <= _SLICE_CHARACTERS:
        return _UNSENDABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    # Other threads can run between two slices, but not during one.
    return "".join(
        _UNSENDABLE.sub("\N{REPLACEMENT CHARACTER}", text[start : start + _SLICE_CHARACTERS])
        for start in range(0, len(text), _SLICE_CHARACTERS)
    )
