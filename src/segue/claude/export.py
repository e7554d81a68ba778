"""Export the conversation in a transcript as a Markdown or HTML document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

from segue.model.principal import LOCAL, Principal
from segue.model.session import Session
from segue.render import documents
from segue.render.reader import ConversationReader, EventReader, MaskedReader
from segue.secrets.events import mask_session
from segue.sources.claude.exchange.document import read_conversation
from segue.sources.claude.format.paths import TranscriptFile

DocumentWriter = Callable[[EventReader, Principal, Session], AsyncIterator[str]]


def export_markdown(transcript: TranscriptFile, *, mask: bool = True) -> str:
    """Return the conversation as Markdown, with masks instead of secrets. Raise UnreadableFile."""
    return _export(transcript, documents.markdown, mask=mask)


def export_html(transcript: TranscriptFile, *, mask: bool = True) -> str:
    """Return the conversation as one HTML page without scripts, with masks instead of secrets.

    Raise UnreadableFile.
    """
    return _export(transcript, documents.html, mask=mask)


def _export(transcript: TranscriptFile, write: DocumentWriter, *, mask: bool) -> str:
    session, events = read_conversation(transcript)
    reader: EventReader = ConversationReader(events)
    if mask:
        reader, session = MaskedReader(reader), mask_session(session)

    async def collect() -> str:
        chunks = write(reader, LOCAL, session)
        return "".join([chunk async for chunk in chunks])

    # Render is asynchronous. The caller may run an event loop, so this one gets its own thread.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(collect())).result()
