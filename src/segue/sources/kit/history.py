"""The events of sessions, as they were read last: a session that grew is read from its end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice

from segue.model.errors import NotFound, SegueError, StoreError
from segue.model.event import Event, ModelCalled, ToolCall, Usage
from segue.model.query import EventWindow
from segue.model.session import Session, Thread
from segue.sources import safe_io
from segue.sources.base import OverlayOnly

from .reader import (
    CREATED_SEQ,
    Item,
    Reader,
    Resume,
    Rewritten,
    SessionFacts,
    SessionRef,
    ThreadRef,
    Unreadable,
)
from .rows import Reading, creation_event, event_id

MAX_SESSIONS = 16  # their events are held in memory
MAX_BYTES = 64 << 20  # of the tool's files whose events are held; the newest stays in any case


class SessionHistory:
    """The events of one session, in order, without its creation."""

    def __init__(self, reader: Reader, id: str) -> None:
        self._reader = reader
        self._id = id
        self.events: list[Event] = []
        self.threads: dict[str, list[Event]] = {}  # with events in the session's own records
        self.facts: SessionFacts | None = None
        self.ref: SessionRef | None = None
        self._resume: Resume | None = None

    def update(self, ref: SessionRef) -> None:
        """Read what was added since the last update."""
        if self.ref is not None and self.ref.fingerprint == ref.fingerprint:
            return
        try:
            self._read(ref, self._resume)
        except Rewritten as error:
            if self._resume is None:
                raise Unreadable(str(error)) from error
            self._resume = None
            self.update(ref)

    def _read(self, ref: SessionRef, resume: Resume | None) -> None:
        reading = Reading(self._reader.read(ref, resume))
        items = list(reading)
        if resume is None:
            self.events, self.threads = [], {}
        for item in items:
            thread = item.body.thread
            events = self.events if thread is None else self.threads.setdefault(thread, [])
            event = make_event(self._reader.name, self._id, item, thread)
            if events and events[-1].seq >= event.seq:  # lines of a damaged file may be swapped
                insort(events, event, key=_seq)
            else:
                events.append(event)
        self.ref, self.facts = ref, reading.end.facts
        self._resume = reading.end.resume if self._reader.resumes else None

    def seq_of_call(self, call_id: str | None) -> int | None:
        """Return the seq of a tool call."""
        if call_id is None:
            return None
        for event in self.events:
            if isinstance(event.body, ToolCall) and event.body.call_id == call_id:
                return event.seq
        return None


def make_event(source: str, session: str, item: Item, thread: str | None = None) -> Event:
    """Return an item as an event."""
    id = event_id(source, session, item, thread)
    return Event(seq=item.seq, id=id, at=item.at, body=item.body)


class Histories:
    """The histories that were read last. Raises only errors of segue."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._histories: OrderedDict[str, SessionHistory] = OrderedDict()

    def load(self, id: str, key: str) -> SessionHistory:
        """Return the current history of a session; raises NotFound if it is gone."""
        with readable(id):
            ref = self._reader.ref(key)
            if ref is None:
                raise NotFound(f"session {id} was deleted", session=id)
            history = self._histories.pop(key, None) or SessionHistory(self._reader, id)
            history.update(ref)
        self._histories[key] = history
        self._drop_old()
        return history

    def _drop_old(self) -> None:
        held_bytes = 0
        for key in list(reversed(self._histories)):
            ref = self._histories[key].ref
            held_bytes += 0 if ref is None else ref.fingerprint.size
            newest = next(reversed(self._histories))
            too_many = len(self._histories) > MAX_SESSIONS and key == next(iter(self._histories))
            if key != newest and (held_bytes > MAX_BYTES or too_many):
                del self._histories[key]

    def threads(self, id: str, key: str) -> list[Thread]:
        """Return the subagents of a session, in the order of their start."""
        history = self.load(id, key)
        refs = thread_refs(history)
        threads = []
        for ref in refs:
            events = self._thread_events(history, ref)
            if events:
                seq = history.seq_of_call(ref.call_id)
                threads.append(make_thread(ref, seq, events))
        return sorted(threads, key=lambda thread: (thread.created_at or 0, thread.id))

    def thread_events(self, id: str, key: str, thread: str) -> list[Event]:
        """Return the events of a thread; raises NotFound if the session has no such thread."""
        history = self.load(id, key)
        for ref in thread_refs(history):
            if ref.id == thread and (events := self._thread_events(history, ref)):
                return events
        raise NotFound(f"session {id} has no thread {thread}", session=id)

    def thread_start(self, id: str, key: str, thread: str) -> int:
        """Return the seq of the session's event that started a thread."""
        history = self.load(id, key)
        calls = (ref.call_id for ref in thread_refs(history) if ref.id == thread)
        return history.seq_of_call(next(calls, None)) or CREATED_SEQ

    def _thread_events(self, history: SessionHistory, ref: ThreadRef) -> list[Event]:
        if ref.key is None:
            return history.threads.get(ref.id, [])
        try:
            return self.load(ref.id, ref.key).events
        except (NotFound, StoreError):
            return []  # it is gone, or `segue doctor` names it


def thread_refs(history: SessionHistory) -> list[ThreadRef]:
    """Return the threads of a session, those that only its events name included."""
    refs = {} if history.facts is None else {ref.id: ref for ref in history.facts.threads}
    for thread in history.threads:
        refs.setdefault(thread, ThreadRef(id=thread))
    return list(refs.values())


def make_thread(ref: ThreadRef, seq: int | None, events: Sequence[Event]) -> Thread:
    """Return a thread with the times and the usage of its events."""
    usages = (event.body.usage for event in events if isinstance(event.body, ModelCalled))
    return Thread(
        ref.id,
        seq=seq,
        parent=ref.parent,
        kind=ref.kind,
        title=ref.title,
        created_at=events[0].at,
        active_at=events[-1].at,
        usage=sum(usages, Usage()),
    )


def select(session: Session, events: Sequence[Event], window: EventWindow) -> list[Event]:
    """Return the events of a window from a history that begins with the session's creation."""
    created = creation_event(session)
    after, before = window.after, window.before
    first = bisect_right(events, after, key=_seq)
    last = len(events) if before is None else bisect_left(events, before, key=_seq)
    creation = [created] if after < created.seq and (before is None or created.seq < before) else []
    numbers = range(first, last)
    if window.backward:
        candidates = chain((events[number] for number in reversed(numbers)), creation)
    else:
        candidates = chain(creation, (events[number] for number in numbers))
    selected = list(islice(filter(window.matches, candidates), max(0, window.limit)))
    return selected[::-1] if window.backward else selected


def _seq(event: Event) -> int:
    return event.seq


@contextmanager
def readable(id: str, what: str = "read") -> Iterator[None]:
    """Raise segue's errors for what a reader raises inside a `with` block.

    `what` is what is done with the session: it is `read` or `changed`.
    """
    try:
        yield
    except (safe_io.UnreadableFile, FileNotFoundError):
        raise NotFound(f"session {id} was deleted while it was read", session=id) from None
    except (SegueError, Rewritten, OverlayOnly, MemoryError):
        raise
    except Exception as error:  # the tool's format may have anything in it
        reason = str(error) if isinstance(error, Unreadable | OSError) else repr(error)
        raise StoreError(f"session {id} cannot be {what}: {reason}", session=id) from error
