"""Answers of tools: Markdown of a limited size, with a note if something was cut."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from segue.model import clock
from segue.model.ansi import one_line
from segue.model.errors import InvalidInput
from segue.model.session import Session

DEFAULT_CHARS = 12_000
MAX_CHARS = 60_000
MIN_CHARS = 500
MAX_RESULTS = 50
_MAX_AGE_DIGITS = 9
_UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Answer:
    """Collects the parts of an answer up to a size. A part that does not fit is left out."""

    def __init__(self, max_chars: int) -> None:
        self._left = min(max(max_chars, MIN_CHARS), MAX_CHARS)
        self._parts: list[str] = []
        self.notes: list[str] = []

    @property
    def is_empty(self) -> bool:
        """Return whether no part was added."""
        return not self._parts

    @property
    def chars_left(self) -> int:
        """Return how many characters may still be added."""
        return self._left

    def add(self, part: str, *, cut: bool = False) -> bool:
        """Add a part. Returns False if it does not fit; a first part, or with `cut`, is cut."""
        if len(part) > self._left:
            if self._parts and not cut:
                return False
            self.notes.append(f"Cut after {self._left:,} of {len(part):,} characters.")
            part = part[: self._left]
        self._left -= len(part)
        self._parts.append(part)
        return True

    def text(self) -> str:
        """Return the answer."""
        notes = [f"Note: {note}" for note in self.notes]
        return "\n\n".join([*self._parts, *notes])


def session_line(session: Session, title: str) -> str:
    """Return a session's title, as the caller may see it, its id and facts on two lines."""
    facts = [
        session.source,
        session.cwd,
        session.git_branch or "",
        stamp(session.active_at),
        f"{session.messages} messages",
        "" if session.status == "idle" else session.status,
    ]
    return f"**{one_line(title)}** `{session.id}`\n{' · '.join(filter(None, facts))}"


def stamp(at: int) -> str:
    """Return a time as people read it, in UTC."""
    return clock.to_datetime(at).strftime("%Y-%m-%d %H:%M")


def shorten(text: str, width: int) -> str:
    """Return the beginning of a text, with its line breaks."""
    text = text.strip()
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def quoted(text: str) -> str:
    """Return a text as a Markdown quotation."""
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def parse_time(text: str | None, field: str, *, end: bool = False) -> int | None:
    """Return a time: an age such as `7d` or `12h`, a date, or a date with a time.

    With `end`, a date is the end of its day. Raises InvalidInput for anything else.
    """
    if text is None:
        return None
    number, unit = text[:-1], text[-1:]
    if unit in _UNITS and number.isdecimal() and len(number) <= _MAX_AGE_DIGITS:
        return max(0, clock.now() - int(number) * _UNITS[unit] * 1_000_000)
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        if end and len(text) <= len("2026-01-31"):
            at += timedelta(days=1)
        return max(0, int(at.timestamp() * 1_000_000))
    except (ValueError, OverflowError):
        raise InvalidInput(f"{field}: {text!r} is no age such as 7d and no date") from None


def parse_offset(cursor: str | None) -> int:
    """Return the position of a cursor that is a number; raises InvalidInput for anything else."""
    if cursor is None:
        return 0
    if not cursor.isdecimal() or len(cursor) > 9:
        raise InvalidInput(f"cursor: {cursor!r} is not a cursor of this tool")
    return int(cursor)
