"""Export the conversation in a transcript as a Markdown or HTML document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from threading import Thread as SystemThread

from msgspec.structs import replace

from segue.model.content import Other, Text
from segue.model.event import AgentMessage, Event, Foreign
from segue.model.principal import LOCAL, Principal
from segue.model.session import Session, Thread
from segue.render import documents
from segue.render.reader import EventReader
from segue.sources.claude.events.transcript_reader import TranscriptReader
from segue.sources.claude.format import safe_io
from segue.sources.claude.format.paths import TranscriptFile
from segue.sources.claude.index import transcript_summary
from segue.sources.claude.index.summary import TranscriptSummary

DocumentWriter = Callable[[EventReader, Principal, Session], AsyncIterator[str]]


def export_markdown(transcript: TranscriptFile) -> str:
    """Return the conversation as Markdown. Raise UnreadableFile."""
    return _export(transcript, documents.markdown)


def export_html(transcript: TranscriptFile) -> str:
    """Return the conversation as one HTML page without scripts. Raise UnreadableFile."""
    return _export(transcript, documents.html)


class ConversationReader:
    """The events of one conversation, as render reads them. Subagents are not part of it."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events

    async def events(
        self,
        principal: Principal,
        id: str,
        /,
        *,
        after: int = 0,
        before: int | None = None,
        types: Sequence[str] = (),
        limit: int = 1000,
        backward: bool = False,
    ) -> Sequence[Event]:
        """Return events with `after < seq < before`, oldest first, whichever end is read."""
        events = [
            event
            for event in self._events
            if event.seq > after
            and (before is None or event.seq < before)
            and (not types or event.type in types)
        ]
        return events[-limit:] if backward else events[:limit]

    async def threads(self, principal: Principal, id: str, /) -> Sequence[Thread]:
        """Return no threads."""
        return []

    async def thread_events(
        self, principal: Principal, id: str, thread: str, /
    ) -> AsyncIterator[Event]:
        """Read no events."""
        return
        yield


def _export(transcript: TranscriptFile, write: DocumentWriter) -> str:
    session, events = _read_conversation(transcript)
    chunks: list[str] = []

    async def collect() -> None:
        async for chunk in write(ConversationReader(events), LOCAL, session):
            chunks.append(chunk)

    # Render is asynchronous. The caller may run an event loop, so this one gets its own thread.
    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(collect())
        except BaseException as error:
            failures.append(error)

    thread = SystemThread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return "".join(chunks)


def _read_conversation(transcript: TranscriptFile) -> tuple[Session, list[Event]]:
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
        return session, [_with_bare_block(event) for event in reader.conversation()]


def _with_bare_block(event: Event) -> Event:
    """Return an event whose bare content block (a string or number) is a message to show."""
    body = event.body
    if not isinstance(body, Foreign) or isinstance(body.raw, dict):
        return event
    is_text = isinstance(body.raw, str)
    block = Text(text=body.raw) if is_text else Other(dialect=body.dialect, raw=body.raw)
    return replace(event, body=AgentMessage(content=(block,), thread=body.thread))
