"""What a person typed, out of a user's message: the line that names a session in a list."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

MAX_PROMPT_UNITS = 200  # UTF-16 units, as the other readers of these files count
# Text that a program wrote into the user's mouth, not a person.
_MACHINE = re.compile(r"\s*<[a-z][\w-]*[\s>]|\[Request interrupted by user[^\]]*\]", re.A)
_COMMAND = re.compile(r"<command-name>(.*?)</command-name>", re.S)
_SHELL = re.compile(r"<bash-input>(.*?)</bash-input>", re.S)


class Prompt(NamedTuple):
    """A person's text, or else the command they gave or what they pasted."""

    text: str = ""
    command: str = ""
    pasted: str = ""


def parse_prompt(message: Any) -> Prompt:
    """What a user's message says of its author's intent; all empty for a tool's result."""
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
        tagged = "<" in line
        if tagged and (shell := _SHELL.search(line)):
            return Prompt(truncate(f"! {shell[1].strip()}"))
        if tagged and (named := _COMMAND.search(line)):
            command = command or named[1].strip()
        elif not _MACHINE.match(line):
            return Prompt(truncate(line))
    return Prompt("", command, pasted_label(kinds))


def pasted_label(kinds: set[str]) -> str:
    """A name for a message without words."""
    return "Image" if "image" in kinds else "Document" if "document" in kinds else ""


def truncate(text: str) -> str:
    """The beginning of a text, never half a character."""
    if len(text) <= MAX_PROMPT_UNITS // 2:
        return text
    if text.isascii():
        return text if len(text) <= MAX_PROMPT_UNITS else text[:MAX_PROMPT_UNITS].rstrip() + "…"
    units = text.encode("utf-16-le", "surrogatepass")
    if len(units) <= 2 * MAX_PROMPT_UNITS:
        return text
    return units[: 2 * MAX_PROMPT_UNITS].decode("utf-16-le", "ignore").rstrip() + "…"


def replace_lone_surrogates(text: str) -> str:
    """The text without lone surrogates, which cannot be printed or sent anywhere."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
