"""Read the events of indexed sessions from their transcripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from msgspec.structs import replace

from segue.model.errors import NotFound
from segue.model.event import Event
from segue.model.session import Session, Thread
from segue.sources import safe_io
from segue.sources.index.database import Index
from segue.sources.index.query import TextPosition

from . import subagent_threads, transcript_summary
from .summary import TranscriptSummary, decode_summary
from .transcript_reader import TranscriptReader
from .translator import CREATED_SEQ

T = TypeVar("T")


class AskIndex(Protocol):
    """Answers a question with the index."""

    def __call__(self, question: Callable[[Index], T]) -> T: ...


class SessionReader:
    """Reads the events of sessions. Raises NotFound for a session or file that does not exist."""

    def __init__(self, ask: AskIndex) -> None:
        self._ask = ask

    @contextmanager
    def open_transcript(self, id: str) -> Iterator[TranscriptReader]:
        """Open a session's own transcript."""
        row = self._ask(lambda index: index.find(id))
        try:
            if row is None:
                raise NotFound(f"no session {id}", session=id)
            path, _, session = row
            with safe_io.open_for_reading(path) as (descriptor, _):
                yield TranscriptReader(descriptor, id, transcript_summary.creation_event(session))
        except safe_io.UnreadableFile:
            raise NotFound(f"the transcript of session {id} was deleted", session=id) from None

    def read_event(self, session: Session, position: TextPosition) -> Event | None:
        """Return the event at a position of the index; None if its file was deleted meanwhile."""
        try:
            if position.seq < 0:
                subagent_seq = subagent_threads.SubagentSeq.decode(position.seq)
                return self._read_subagent_event(session.id, subagent_seq)
            with safe_io.open_for_reading(position.path) as (descriptor, _):
                created = transcript_summary.creation_event(session)
                return TranscriptReader(descriptor, session.id, created).read_event(position.seq)
        except (NotFound, safe_io.UnreadableFile):
            return None

    def _read_subagent_event(
        self, id: str, subagent_seq: subagent_threads.SubagentSeq
    ) -> Event | None:
        """Return a subagent's event, with the seq of the session's event that started it."""
        path, summary = self._summary(id)
        agent = list(summary.agents)[subagent_seq.number - 1]
        with self._open_subagent(id, agent) as reader:
            event = reader.read_event(subagent_seq.seq)
        threads = subagent_threads.list_threads(path, summary)
        start_seqs = {thread.id: thread.seq for thread in threads}
        return event and replace(event, seq=start_seqs.get(agent) or CREATED_SEQ)

    def threads(self, id: str) -> list[Thread]:
        """Return the subagents of a session."""
        return subagent_threads.list_threads(*self._summary(id))

    def thread_events(self, id: str, thread: str) -> Iterator[Event]:
        """Return the events of one subagent."""
        if thread == subagent_threads.INLINE_THREAD:
            with self.open_transcript(id) as reader:
                for event in reader.all():
                    if event.body.thread == thread:
                        yield event
            return
        with self._open_subagent(id, thread) as reader:
            yield from reader.all(CREATED_SEQ)

    def _summary(self, id: str) -> tuple[str, TranscriptSummary]:
        """Return the path and the summary of a session's transcript."""
        row = self._ask(lambda index: index.find(id))
        state = row and self._ask(lambda index: index.parser_state(row[0]))
        if row is None or state is None:
            raise NotFound(f"no session {id}", session=id)
        return row[0], decode_summary(state)

    @contextmanager
    def _open_subagent(self, id: str, agent: str) -> Iterator[TranscriptReader]:
        path, summary = self._summary(id)
        try:
            file = subagent_threads.find_transcripts(path, summary.started)[agent]
            with (
                self.open_transcript(id) as session_reader,
                safe_io.open_for_reading(file) as (descriptor, _),
            ):
                yield TranscriptReader(descriptor, f"{id}/{agent}", session_reader.created)
        except (KeyError, safe_io.UnreadableFile):
            raise NotFound(f"session {id} has no thread {agent}", session=id) from None
