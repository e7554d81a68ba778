"""Export the conversation in a transcript as a Markdown or HTML document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from threading import Thread

from segue.model.principal import LOCAL, Principal
from segue.model.session import Session
from segue.render import documents
from segue.render.reader import ConversationReader, EventReader
from segue.sources.claude.exchange.document import read_conversation
from segue.sources.claude.format.paths import TranscriptFile

DocumentWriter = Callable[[EventReader, Principal, Session], AsyncIterator[str]]


def export_markdown(transcript: TranscriptFile) -> str:
    """Return the conversation as Markdown. Raise UnreadableFile."""
    return _export(transcript, documents.markdown)


def export_html(transcript: TranscriptFile) -> str:
    """Return the conversation as one HTML page without scripts. Raise UnreadableFile."""
    return _export(transcript, documents.html)


def _export(transcript: TranscriptFile, write: DocumentWriter) -> str:
    session, events = read_conversation(transcript)
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

    thread = Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return "".join(chunks)
