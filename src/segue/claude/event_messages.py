"""Messages as the Agent SDK returns them, from the events of any session."""

from __future__ import annotations

from collections.abc import Iterable

from segue.model.anthropic.sdk_types import SessionMessage
from segue.model.event import Event
from segue.model.session import Session
from segue.sources.claude.exchange import transcript_writer
from segue.sources.claude.sdk import messages


def messages_from_events(
    session: Session,
    events: Iterable[Event],
    limit: int | None = None,
    offset: int = 0,
    *,
    include_system_messages: bool = False,
) -> list[SessionMessage]:
    """Return what `get_session_messages` would return for the events of any session."""
    lines = transcript_writer.transcript_lines(session, events, resumable=False)
    entries = [entry for line in lines for entry in line.entries]
    return messages.messages_from_entries(
        entries, limit, offset, include_system=include_system_messages
    )
