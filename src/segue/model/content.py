"""Content blocks of messages and tool results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

MAX_PROMPT_UNITS = 200  # of a prompt in lists: UTF-16 units, as the Agent SDK counts


class _Block(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    # Fields that only one protocol has, by protocol; returned to it unchanged.
    extra: dict[str, Any] = {}


class Text(_Block, frozen=True, tag="text"):
    """Plain or Markdown text."""

    text: str


class Image(_Block, frozen=True, tag="image"):
    """A picture, as base64 data or by address."""

    mime: str = "image/png"
    data: str | None = None
    uri: str | None = None


class Audio(_Block, frozen=True, tag="audio"):
    """Sound, as base64 data."""

    mime: str
    data: str


class ResourceLink(_Block, frozen=True, tag="resource_link"):
    """A resource that is referred to but not included."""

    uri: str
    name: str = ""
    title: str | None = None
    description: str | None = None
    mime: str | None = None
    size: int | None = None


class Resource(_Block, frozen=True, tag="resource"):
    """A resource whose content is included: text, or base64 data."""

    uri: str
    text: str | None = None
    data: str | None = None
    mime: str | None = None


class Diff(_Block, frozen=True, tag="diff"):
    """A change to one file; without `old`, the file is new."""

    path: str
    new: str
    old: str | None = None


class FileChange(_Block, frozen=True, tag="file_change"):
    """A change of one file by a tool: hashes of its whole content, and a patch.

    `before_sha256` is null if the file is new. `patch` has the hunks of a unified patch, each with
    three lines of context, without headers of files. It is left out if the change is large, and if
    the file is new and the input of the tool call has all of its text.
    """

    path: str
    before_sha256: str | None
    after_sha256: str
    patch: str | None = None


class Other(_Block, frozen=True, tag="other"):
    """A block that only one protocol has, stored as it is."""

    dialect: str
    raw: Any


Block = Text | Image | Audio | ResourceLink | Resource | Diff | FileChange | Other
Content = tuple[Block, ...]


InsertedKind = Literal["command", "shell", "output", "notice", "note"]


class InsertedText(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a message's text that a program inserted and no person typed.

    `start` and `end` are offsets in the text of the block with index `block`; `inside_start` and
    `inside_end` leave out the markup around it. `label` is a line to show instead of the text.
    """

    kind: InsertedKind
    block: int = 0
    start: int = 0
    end: int
    inside_start: int
    inside_end: int
    label: str | None = None


def as_content(value: str | Block | Iterable[Block]) -> Content:
    """Return a string, a block or several blocks as content."""
    if isinstance(value, str):
        return (Text(text=value),)
    if isinstance(value, _Block):
        return (value,)
    return tuple(value)


def describe_block(block: Block) -> str:
    """Return a block's text, or a short description of a block without text."""
    match block:
        case Text() | Resource(text=str()):
            return block.text or ""
        case Diff():
            return f"{'new file' if block.old is None else 'changed'}: {block.path}"
        case FileChange():
            return f"{'new file' if block.before_sha256 is None else 'changed'}: {block.path}"
        case ResourceLink():
            name = block.title or block.name
            return f"{name}: {block.uri}" if name and name != block.uri else block.uri
        case Image() | Audio():
            return f"[{block.mime}]"
        case Resource():
            return f"[{block.uri or block.mime or 'resource'}]"
        case Other():
            return f"[{block.dialect}]"


def plain_text(content: Sequence[Block], separator: str = "\n\n") -> str:
    """Return the text in some content, without blocks of other kinds."""
    parts = []
    for block in content:
        if isinstance(block, Text | Resource) and block.text is not None:
            parts.append(block.text)
    return separator.join(parts)


def truncate_prompt(text: str) -> str:
    """Return the beginning of a prompt as lists show it, cut between characters."""
    if len(text) <= MAX_PROMPT_UNITS // 2:
        return text
    if text.isascii():
        return text if len(text) <= MAX_PROMPT_UNITS else text[:MAX_PROMPT_UNITS].rstrip() + "…"
    units = text.encode("utf-16-le", "surrogatepass")
    if len(units) <= 2 * MAX_PROMPT_UNITS:
        return text
    return units[: 2 * MAX_PROMPT_UNITS].decode("utf-16-le", "ignore").rstrip() + "…"


class PlanEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    content: str
    priority: Literal["high", "medium", "low"] = "medium"
    status: Literal["pending", "in_progress", "completed", "cancelled"] = "pending"


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One answer that a permission request offers."""

    id: str
    name: str
    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class Location(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file, and perhaps a line, that a tool call touches."""

    path: str
    line: int | None = None
