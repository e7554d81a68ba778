"""Titles from first prompts."""

from __future__ import annotations

import re

from segue.model.content import Content, plain_text

MAX_TITLE_LENGTH = 80
# Lines that say nothing by themselves: mark-up, fences, rules.
_EMPTY = re.compile(r"^\W*$|^```|^<[a-zA-Z!/?][^>]*>$")
_COMMAND = re.compile(r"^/[a-z]")
_LEAD = re.compile(r"^(?:[#>*\-\s]|\d+[.)]\s)+")
_SPACES = re.compile(r"\s+")


def title_from_prompt(content: Content) -> str | None:
    """The first meaningful line of a prompt, cut at a word; None if it has none.

    A command (`/help`) gives the title only where nothing else does.
    """
    command: str | None = None
    for line in plain_text(content, "\n").splitlines():
        line = clean(_LEAD.sub("", line))
        if not line or _EMPTY.match(line):
            continue
        if not _COMMAND.match(line):
            return _cut(line)
        command = command or _cut(line)
    return command


def clean(line: str) -> str:
    """One line of printable text, single spaces."""
    printable = "".join(char if char.isprintable() else " " for char in line)
    return _SPACES.sub(" ", printable).strip()


def _cut(line: str) -> str:
    if len(line) <= MAX_TITLE_LENGTH:
        return line
    head = line[: MAX_TITLE_LENGTH - 1]
    word = head.rfind(" ")
    if word > MAX_TITLE_LENGTH // 2:
        head = head[:word]
    return head.rstrip(" ,;:.-") + "…"
