"""Make a session's title from its first prompt."""

from __future__ import annotations

import re

from segue.model.content import Content, plain_text
from segue.model.event import Body, InfoChanged, UserMessage

MAX_TITLE_LENGTH = 80
# Lines without words of their own: punctuation, code fences and single tags.
_MEANINGLESS = re.compile(r"^\W*$|^```|^<[a-zA-Z!/?][^>]*>$")
_COMMAND = re.compile(r"^/[a-z]")
_MARKDOWN_PREFIX = re.compile(r"^(?:[#>*\-\s]|\d+[.)]\s)+")
_SPACES = re.compile(r"\s+")


def title_change(body: Body) -> InfoChanged | None:
    """Return the change of the title by a message that names its session; None for others."""
    if not isinstance(body, UserMessage) or not body.names_session:
        return None
    title = title_from_prompt(body.content)
    return None if title is None else InfoChanged(title=title, by="auto")


def title_from_prompt(content: Content) -> str | None:
    """Return the first meaningful line of a prompt, shortened; None if it has none.

    A command (`/help`) is the title only if no other line is.
    """
    command: str | None = None
    for raw_line in plain_text(content, "\n").splitlines():
        line = _to_plain_line(_MARKDOWN_PREFIX.sub("", raw_line))
        if not line or _MEANINGLESS.match(line):
            continue
        if not _COMMAND.match(line):
            return _shorten(line)
        command = command or _shorten(line)
    return command


def _to_plain_line(text: str) -> str:
    """Return printable text on one line, with single spaces."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return _SPACES.sub(" ", printable).strip()


def _shorten(line: str) -> str:
    """Return at most MAX_TITLE_LENGTH characters, cut at a word if one ends in the second half."""
    if len(line) <= MAX_TITLE_LENGTH:
        return line
    head = line[: MAX_TITLE_LENGTH - 1]
    last_space = head.rfind(" ")
    if last_space > MAX_TITLE_LENGTH // 2:
        head = head[:last_space]
    return head.rstrip(" ,;:.-") + "…"
