"""Read the conversation in a transcript, for a document."""

from __future__ import annotations

from msgspec.structs import replace

from segue.model.content import Other, Text
from segue.model.event import AgentMessage, Event, Foreign
from segue.model.source_command import Conversation
from segue.sources import safe_io
from segue.sources.claude.events import transcript_summary
from segue.sources.claude.events.summary import TranscriptSummary
from segue.sources.claude.events.transcript_reader import TranscriptReader
from segue.sources.claude.format.paths import TranscriptFile


def read_conversation(transcript: TranscriptFile) -> Conversation:
    """Return a session, even one that lists leave out, and its conversation.

    Raises UnreadableFile.
    """
    with safe_io.open_for_reading(transcript.path) as (descriptor, _):
        summary = TranscriptSummary()
        for _ in transcript_summary.scan_lines(descriptor, summary):
            pass
        # Lists leave such a session out, but a caller who names its id wants the document.
        summary.is_sidechain = False
        if summary.is_nameless:
            summary.custom_title = transcript.id
        session = transcript_summary.session_from_summary(
            summary, transcript.id, transcript.path, "local"
        )
        assert session is not None
        reader = TranscriptReader(
            descriptor, session.id, transcript_summary.creation_event(session)
        )
        return Conversation(session, [_with_bare_block(event) for event in reader.conversation()])


def _with_bare_block(event: Event) -> Event:
    """Return an event whose bare content block (a string or number) is a message to show."""
    body = event.body
    if not isinstance(body, Foreign) or isinstance(body.raw, dict):
        return event
    is_text = isinstance(body.raw, str)
    block = Text(text=body.raw) if is_text else Other(dialect=body.dialect, raw=body.raw)
    return replace(event, body=AgentMessage(content=(block,), thread=body.thread))
