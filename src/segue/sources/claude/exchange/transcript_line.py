"""One line of a transcript, as it is imported and exported."""

from __future__ import annotations

from typing import Any, NamedTuple

from segue.model import codec
from segue.sources.claude.format import jsonl
from segue.sources.claude.format.jsonl import Entry

RELOCATED = "relocated"  # the type of the entry that says where a session's project went
SUBAGENT_METADATA = (
    "agent_metadata"  # the type of the entry that stands for the small file beside an agent's
)


class TranscriptLine(NamedTuple):
    """A line of a transcript: its entry; none if it cannot be read, several if lines are glued.

    `text` is there only where the line is not just what its entry would be written as. `left` says
    that it is on a branch which the conversation has left.
    """

    entries: tuple[Entry, ...]
    text: str | None = None
    left: bool = False

    def data(self) -> bytes:
        """The line as it is in a file, without its end."""
        if self.text is not None:
            return self.text.encode("utf-8", "surrogateescape")
        return codec.encode(self.entries[0])


def is_subagent_metadata(line: TranscriptLine) -> bool:
    """Whether a line stands for the small file beside an agent's transcript."""
    return len(line.entries) == 1 and line.entries[0].get("type") == SUBAGENT_METADATA


def parse_line(data: bytes) -> TranscriptLine:
    """A line of a file."""
    found = tuple(jsonl.parse_entries(data))
    if len(found) == 1 and codec.encode(found[0]) == data:
        return TranscriptLine(found)
    return TranscriptLine(found, data.decode("utf-8", "surrogateescape"))


def line_uuid(line: TranscriptLine) -> str | None:
    """The id of a line with one entry."""
    return nonempty_text(line.entries[0].get("uuid")) if len(line.entries) == 1 else None


def relocated_cwd(entry: Entry) -> str | None:
    """Where an entry says that the session's project went."""
    return nonempty_text(entry.get("relocatedCwd")) if entry.get("type") == RELOCATED else None


def nonempty_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
