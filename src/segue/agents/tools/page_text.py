"""Extract the text of a web page in linear time. It runs in a child process with limits."""

from __future__ import annotations

import html
import re
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from .base import truncate

# Offered to servers. Each is inflated once, so that a page cannot grow by several layers.
ENCODINGS = ("gzip", "deflate")
_WHITESPACE = re.compile(r"\s+")
_TAG_NAME = re.compile(r"<(/?)([a-zA-Z][^\s/>]*+)")
# Possessive quantifiers never go back, so each character is read once.
_ATTRIBUTE = re.compile(
    r"[\s/]*+(?:([^\s/>=][^\s/>=]*+|=[^\s/>=]*+)"
    r"(?:\s*+=\s*+(?:\"([^\"]*+)\"|'([^']*+)'|((?![\"'])[^\s>]*+)))?+)"
)
_TAG_END = re.compile(r"[\s/]*+>")
_RAW_ENDS = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style")
}
_SKIPPED_TAGS = frozenset({"script", "style", "noscript", "template", "svg", "head"})
_BLOCK_TAGS = frozenset(
    {"p", "div", "section", "article", "header", "footer", "main", "li", "ul", "ol", "table"}
    | {"tr", "pre", "blockquote", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "dt", "dd"}
    | {"figure", "figcaption", "form", "nav", "aside"}
)


class Tag(NamedTuple):
    """A start or end tag, and the link in it."""

    name: str
    is_end: bool
    is_empty: bool
    href: str | None


def read_page(
    data: bytes, encoding: str, charset: str, kind: str, max_bytes: int, max_characters: int
) -> tuple[str, bool]:
    """Return the text of a response's body, and True if the body was truncated.

    `kind` is "html", or anything else for plain text.
    """
    if encoding:
        data = _inflate(data, encoding, max_bytes + 1)
    truncated = len(data) > max_bytes
    text = _decode(data[:max_bytes], charset)
    return truncate(plain_text(text) if kind == "html" else text, max_characters), truncated


def _inflate(data: bytes, encoding: str, max_bytes: int) -> bytes:
    window_bits = zlib.MAX_WBITS | 16 if encoding == "gzip" else zlib.MAX_WBITS
    try:
        return zlib.decompressobj(window_bits).decompress(data, max_bytes)
    except zlib.error:
        if encoding == "gzip":
            raise
        # Some servers send deflate without its header.
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, max_bytes)


def _decode(data: bytes, charset: str) -> str:
    try:
        return data.decode(charset, "replace")
    except (LookupError, ValueError):  # unknown, or unable to replace what is wrong
        return data.decode("utf-8", "replace")


def plain_text(page: str) -> str:
    """Return the text of an HTML page with its links, one line for each block."""
    parts: list[str] = []
    skipped: list[str] = []
    link: str | None = None
    for token in _tokens(page):
        if isinstance(token, str):
            if not skipped:
                parts.append(_WHITESPACE.sub(" ", _unescape(token)))
        elif token.name in _SKIPPED_TAGS:
            if not token.is_end and not token.is_empty:
                skipped.append(token.name)
            elif token.is_end and skipped and skipped[-1] == token.name:
                skipped.pop()
        elif token.name in _BLOCK_TAGS:
            parts.append(_block_beginning(token))
        elif token.name == "body":
            skipped.clear()  # the end tag of head is optional
        elif token.name == "a":
            if token.is_end and link and link.startswith(("http", "/")) and not skipped:
                parts.append(f" ({link})")
            link = None if token.is_end else token.href
    lines = (" ".join(line.split()) for line in "".join(parts).split("\n"))
    return "\n".join(line for line in lines if line)


def _block_beginning(tag: Tag) -> str:
    if tag.is_end:
        return "\n"
    if tag.name == "li":
        return "\n- "
    is_heading = tag.name[0] == "h" and tag.name[1:].isdigit()
    return "\n" + ("#" * int(tag.name[1:]) + " " if is_heading else "")


def _unescape(text: str) -> str:
    try:
        return html.unescape(text)
    except ValueError:  # a number of thousands of digits
        return text


def _tokens(page: str) -> Iterator[str | Tag]:
    """Yield the texts and tags of a page. A tag or comment without an end is the last token."""
    position = 0
    while (start := page.find("<", position)) >= 0:
        if start > position:
            yield page[position:start]
        if page.startswith("<!--", start):
            position = _after(page, "-->", start + 2)
        elif page.startswith(("<!", "<?"), start):
            position = _after(page, ">", start)
        elif name := _TAG_NAME.match(page, start):
            tag, position = _read_tag(page, name)
            if position < 0:
                return
            yield tag
            if tag.name in _RAW_ENDS and not tag.is_end:
                end = _RAW_ENDS[tag.name].search(page, position)
                if end is None:
                    return
                position = end.start()
        else:
            yield "<"
            position = start + 1
        if position < 0:
            return
    yield page[position:]


def _after(page: str, mark: str, start: int) -> int:
    """Return the position after the next `mark`; -1 if there is none."""
    end = page.find(mark, start)
    return end + len(mark) if end >= 0 else -1


def _read_tag(page: str, name: re.Match[str]) -> tuple[Tag, int]:
    """Return a tag and the position after it; -1 if the tag has no end."""
    position = name.end()
    href: str | None = None
    while attribute := _ATTRIBUTE.match(page, position):
        if href is None and attribute[1].lower() == "href":
            href = _unescape(attribute[2] or attribute[3] or attribute[4] or "")
        position = attribute.end()
    end = _TAG_END.match(page, position)
    is_empty = end is not None and page.endswith("/", position, end.end() - 1)
    tag = Tag(name[2].lower(), bool(name[1]), is_empty, href)
    return tag, end.end() if end else -1
