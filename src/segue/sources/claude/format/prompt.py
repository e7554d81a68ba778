"""Extract what a person typed from a user message, to name a session in a list."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from segue.model.content import truncate_prompt

INTERRUPTION_PREFIX = "[Request interrupted by user"  # of the message that Claude Code inserts
# Text that a program, not a person, put into a user message.
_PROGRAM_TEXT = re.compile(rf"\s*<[a-z][\w-]*[\s>]|{re.escape(INTERRUPTION_PREFIX)}[^\]]*\]", re.A)
_COMMAND = re.compile(r"<command-name>(.*?)</command-name>", re.S)
_SHELL_INPUT = re.compile(r"<bash-input>(.*?)</bash-input>", re.S)


class Prompt(NamedTuple):
    """A person's text, or else the slash command or a label for the pasted content."""

    text: str = ""
    command: str = ""
    pasted: str = ""


def parse_prompt(message: Any) -> Prompt:
    """Return what the author of a user message typed; all empty for a tool result."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        texts, kinds = [content], set[str]()
    elif isinstance(content, list):
        blocks = [block for block in content if isinstance(block, dict)]
        kinds = {kind for block in blocks if isinstance(kind := block.get("type"), str)}
        if "tool_result" in kinds:
            return Prompt()
        texts = [text for block in blocks if isinstance(text := block.get("text"), str)]
    else:
        return Prompt()
    command = ""
    for text in texts:
        line = text.replace("\n", " ").strip()
        if not line:
            continue
        has_markup = "<" in line
        if has_markup and (shell := _SHELL_INPUT.search(line)):
            return Prompt(truncate_prompt(f"! {shell[1].strip()}"))
        if has_markup and (slash_command := _COMMAND.search(line)):
            command = command or slash_command[1].strip()
        elif not _PROGRAM_TEXT.match(line):
            return Prompt(truncate_prompt(line))
    return Prompt("", command, pasted_label(kinds))


def pasted_label(kinds: set[str]) -> str:
    """Return a label for a message that has no text."""
    return "Image" if "image" in kinds else "Document" if "document" in kinds else ""


def replace_lone_surrogates(text: str) -> str:
    """Return the text without lone surrogates, which no output can encode."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
