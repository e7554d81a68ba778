"""The facts about a session that the index keeps of its transcript."""

from __future__ import annotations

import msgspec

from segue.model import codec
from segue.model.event import Usage
from segue.model.session import ChangedLines
from segue.sources.claude.format.facts import SessionFacts

from .translator import CREATED_SEQ


class TranscriptSummary(SessionFacts, kw_only=True):
    """What the lines of a transcript before `end` contain. Times are microseconds."""

    end: int = 0
    tail: bytes = b""  # the bytes before `end`, which recognise the file
    last_seq: int = CREATED_SEQ
    active_at: int | None = None
    prompted_at: int | None = None
    mode: str | None = None
    model: str | None = None
    forked_seq: int = CREATED_SEQ
    messages: int = 0
    turns: int = 0
    tool_calls: int = 0
    lines: ChangedLines = ChangedLines()
    errors: int = 0
    models: dict[str, Usage] = msgspec.field(default_factory=dict)
    responses: dict[str, int] = msgspec.field(default_factory=dict)  # output tokens, see `usage`
    costs: dict[str, int] = msgspec.field(default_factory=dict)  # by model
    days: dict[str, int] = msgspec.field(default_factory=dict)  # messages by day
    calls: dict[str, int] = msgspec.field(default_factory=dict)  # seqs of calls of subagents
    started: dict[str, int] = msgspec.field(default_factory=dict)  # the same seqs by subagent
    inline: int | None = None  # the seq of the first line of a subagent in this transcript
    agents: dict[str, TranscriptSummary] = msgspec.field(default_factory=dict)


_decode_summary: codec.Decoder[TranscriptSummary] = codec.Decoder(TranscriptSummary)


def decode_summary(state: bytes) -> TranscriptSummary:
    """Decode a stored summary; an unreadable one is empty, so that the file is read from 0."""
    try:
        return _decode_summary(state)
    except msgspec.DecodeError:
        return TranscriptSummary()
