"""Render Markdown for a terminal."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from .width import wrap

MAX_CHARACTERS = 20_000  # of a text that is rendered; a longer one is only wrapped
_MAX_NESTING = 60  # of blocks; text below is not shown
_CODE_THEME = "ansi_dark"


def render_markdown(text: str, columns: int, *, dim: bool = False) -> str:
    """Return Markdown as text with styles, at most `columns` wide and without a last newline."""
    from rich.console import Console

    console = Console(
        width=columns,
        force_terminal=True,
        no_color=bool(os.environ.get("NO_COLOR")),
        highlight=False,
    )
    with console.capture() as captured:
        console.print(markdown(text, columns), style="dim" if dim else None, end="")
    lines = (line.rstrip() for line in captured.get().split("\n"))
    rendered = "\n".join(lines).strip("\n")
    # Definitions of links, for example, are no text. They are shown if there is nothing else.
    return rendered if rendered else "\n".join(wrap(text, columns))


def markdown(text: str, columns: int) -> Any:
    """Return Markdown as a value that rich prints; links show their addresses."""
    from markdown_it import MarkdownIt
    from rich import markdown as rich_markdown
    from rich.text import Text

    if len(text) > MAX_CHARACTERS:
        return Text("\n".join(wrap(text, columns)))

    class LeftHeading(rich_markdown.Heading):
        def __rich_console__(self, console: Any, options: Any) -> Any:
            self.text.justify = "left"
            yield self.text

    class Markdown(rich_markdown.Markdown):
        elements: ClassVar[Any] = {
            **rich_markdown.Markdown.elements,
            "heading_open": LeftHeading,
        }

    rendered = Markdown("", code_theme=_CODE_THEME, hyperlinks=False)
    # rich's own parser would drop tags, and blocks that are nested deeply.
    options = {"html": False, "maxNesting": _MAX_NESTING}
    parser = MarkdownIt("commonmark", options).enable(["strikethrough", "table"])
    rendered.markup, rendered.parsed = text, parser.parse(text)
    return rendered


class MarkdownBlocks:
    """Splits streamed text into Markdown blocks, so that each can be rendered when it is complete.

    A block ends at an empty line that is not inside of a code block. Lists are not split: the
    numbers of their entries depend on each other.
    """

    def __init__(self) -> None:
        self.rest = ""  # the block that has not ended

    def add(self, text: str) -> str:
        """Add a piece; return the blocks that it ends, or an empty text."""
        self.rest += text
        end = _last_boundary(self.rest)
        blocks, self.rest = self.rest[:end], self.rest[end:]
        return blocks


def _last_boundary(text: str) -> int:
    """Return where the last block of a text begins."""
    boundary = position = 0
    fence = ""
    was_empty = False
    for line in text.splitlines(keepends=True):
        content = line.strip()
        starts_block = was_empty and not fence and line[:1] not in (" ", "\t", "\n")
        if starts_block and not _is_entry(content):
            boundary = position
        if fence:
            fence = "" if content.startswith(fence) else fence
        elif content.startswith(("```", "~~~")):
            fence = content[:3]
        was_empty = not content and line.endswith("\n")
        position += len(line)
    return boundary


def _is_entry(line: str) -> bool:
    """Return whether a line begins an entry of a list, or may do so when it is complete."""
    return line[:1] in ("-", "*", "+", "") or line[:1].isdecimal()
