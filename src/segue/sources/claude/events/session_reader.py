"""The histories of the sessions that an index knows, read from the transcripts themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from msgspec.structs import replace

from segue.model.errors import NotFound
from segue.model.event import Event
from segue.model.session import Session, Thread
from segue.sources.claude.format import safe_io
from segue.sources.claude.index import index_entry, transcript_summary
from segue.sources.claude.index.transcript_summary import Known
from segue.sources.index.database import Index
from segue.sources.index.query import Spot

from . import subagent_threads
from .transcript_reader import Reader, alone
from .translator import FIRST

T = TypeVar("T")


class Ask(Protocol):
    """An answer of the index."""

    def __call__(self, question: Callable[[Index], T]) -> T: ...


class Histories:
    """All of them. NotFound is raised for what the index does not know, or what is gone."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    @contextmanager
    def reader(self, id: str) -> Iterator[Reader]:
        """A session's own history."""
        found = self._ask(lambda index: index.find(id))
        try:
            if found is None:
                raise NotFound(f"no session {id}", session=id)
            with safe_io.open_for_reading(found[0]) as (descriptor, _):
                yield Reader(descriptor, id, transcript_summary.creation(found[2]))
        except safe_io.UnreadableFile:
            raise NotFound(f"the transcript of session {id} is gone", session=id) from None

    def event(self, session: Session, spot: Spot) -> Event | None:
        """One event, where the index says that it is."""
        try:
            if spot.seq < 0:
                return self._event_of_agent(session.id, subagent_threads.Place.of(spot.seq))
            with safe_io.open_for_reading(spot.path) as (descriptor, _):
                found = alone(descriptor, session.id, spot.seq)
                return found or Reader(
                    descriptor, session.id, transcript_summary.creation(session)
                ).one(spot.seq)
        except (NotFound, safe_io.UnreadableFile):
            return None  # it went while we looked

    def _event_of_agent(self, id: str, place: subagent_threads.Place) -> Event | None:
        """What an agent said, at the place of the session's own that started the agent."""
        path, known = self._known(id)
        agent = list(known.agents)[place.number - 1]
        with self._agent(id, agent) as reader:
            found = reader.one(place.seq)
        begun = {thread.id: thread.seq for thread in subagent_threads.listed(path, known)}
        return found and replace(found, seq=begun.get(agent) or FIRST)

    def threads(self, id: str) -> list[Thread]:
        """The agents that a session started."""
        return subagent_threads.listed(*self._known(id))

    def thread(self, id: str, thread: str) -> Iterator[Event]:
        """What one of them did."""
        if thread == subagent_threads.INLINE:
            with self.reader(id) as reader:
                for event in reader.all():
                    if event.body.thread == thread:
                        yield event
            return
        with self._agent(id, thread) as reader:
            yield from reader.all(FIRST)

    def _known(self, id: str) -> tuple[str, Known]:
        """A session's transcript, and what is known of it."""
        found = self._ask(lambda index: index.find(id))
        state = found and self._ask(lambda index: index.state(found[0]))
        if found is None or state is None:
            raise NotFound(f"no session {id}", session=id)
        return found[0], index_entry.known_of(state)

    @contextmanager
    def _agent(self, id: str, agent: str) -> Iterator[Reader]:
        path, known = self._known(id)
        try:
            file = subagent_threads.transcripts(path, known.started)[agent]
            with self.reader(id) as own, safe_io.open_for_reading(file) as (descriptor, _):
                yield subagent_threads.reader(descriptor, id, agent, own.created)
        except (KeyError, safe_io.UnreadableFile):
            raise NotFound(f"session {id} has no thread {agent}", session=id) from None
