"""opencode's sessions, messages and parts, as its database and its older files have them."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from segue.sources.kit import bodies, files

MAX_RECORD_CHARS = 64 << 20  # a longer record is skipped, and named as a problem
_DEFAULT_TITLE = re.compile(r"(New|Child) session - \d{4}-\d\d-\d\dT[\d:.]+Z")


class Part(NamedTuple):
    """A part of a message; `data` is None if it cannot be read."""

    id: str
    updated_ms: int
    data: dict[str, Any] | None

    @property
    def type(self) -> str:
        return "" if self.data is None else bodies.text(self.data.get("type"))


class Message(NamedTuple):
    """A message; `data` is None if it cannot be read."""

    id: str
    created_ms: int
    data: dict[str, Any] | None
    parts: list[Part]

    @property
    def role(self) -> Any:
        return None if self.data is None else self.data.get("role")


class SessionInfo(NamedTuple):
    """What opencode keeps of a session besides its messages. Times are in milliseconds."""

    id: str
    project: str
    parent: str | None
    directory: str
    title: str
    created_ms: int
    updated_ms: int
    archived_ms: int | None
    revert: dict[str, Any] | None
    model: str | None
    agent: str | None
    branch: str | None
    extra: dict[str, Any]

    @property
    def is_untitled(self) -> bool:
        """Whether the title is the one that opencode gives to new sessions."""
        return not self.title or _DEFAULT_TITLE.fullmatch(self.title) is not None


def decode(data: Any) -> dict[str, Any] | None:
    """Return the JSON object of a column or a file; None if there is none."""
    if not isinstance(data, str | bytes) or len(data) > MAX_RECORD_CHARS:
        return None
    try:
        value = msgspec.json.decode(data)
    except files.DECODE_ERRORS:
        return None
    return value if isinstance(value, dict) else None


def millis(value: Any) -> int:
    """Return a time in milliseconds; 0 if the value is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and 0 < value < 1 << 50 else 0


def text_or_none(value: Any) -> str | None:
    """Return a string that is not empty; None for other values."""
    return bodies.text(value) or None
