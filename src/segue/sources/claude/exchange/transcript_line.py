"""One line of a transcript, as it is imported and exported."""

from __future__ import annotations

from typing import NamedTuple

from segue.model import codec
from segue.sources.claude.format import jsonl
from segue.sources.claude.format.jsonl import Entry

# The type of the entry that holds the content of a subagent's .meta.json file.
SUBAGENT_METADATA = "agent_metadata"


class TranscriptLine(NamedTuple):
    """A line of a transcript.

    It has one entry, none if it cannot be parsed, or several if lines were joined by a crash.
    `text` is set only if encoding the entry would not give the same bytes. `inactive` is set for
    an entry that is not on the active branch.
    """

    entries: tuple[Entry, ...]
    text: str | None = None
    inactive: bool = False

    def data(self) -> bytes:
        """Return the bytes of the line, without the newline."""
        if self.text is not None:
            return self.text.encode("utf-8", "surrogateescape")
        return codec.encode(self.entries[0])


def parse_line(data: bytes) -> TranscriptLine:
    """Parse the bytes of one line."""
    entries = tuple(jsonl.parse_entries(data))
    if len(entries) == 1 and codec.encode(entries[0]) == data:
        return TranscriptLine(entries)
    return TranscriptLine(entries, data.decode("utf-8", "surrogateescape"))


def is_subagent_metadata(line: TranscriptLine) -> bool:
    """Return whether a line holds the content of a subagent's .meta.json file."""
    return len(line.entries) == 1 and line.entries[0].get("type") == SUBAGENT_METADATA


def line_uuid(line: TranscriptLine) -> str | None:
    """Return the uuid of a line with one entry, else None."""
    return jsonl.parse_text(line.entries[0].get("uuid")) if len(line.entries) == 1 else None
