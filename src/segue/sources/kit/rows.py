"""Compute a session's row and its searchable texts from what a reader reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from segue.model import codec, ids, projection, search_text
from segue.model.content import plain_text
from segue.model.event import (
    AgentRef,
    AnyBody,
    Created,
    Event,
    Foreign,
    ForkPoint,
    InfoChanged,
    ModelCalled,
    Usage,
    UserMessage,
)
from segue.model.session import Session, settled
from segue.sources import safe_io
from segue.sources.base import agent_id
from segue.sources.index.database import IndexedFile, IndexedText
from segue.sources.index.parse_workers import ParsedFile

from .bodies import prompt_title
from .reader import (
    CREATED_SEQ,
    End,
    Item,
    Items,
    Reader,
    Resume,
    Rewritten,
    SessionFacts,
    SessionRef,
    Unreadable,
)

_SEQ_BITS = 44  # of a seq in a thread; the bits above are the thread's number
# Of a subagent that cannot be read: its session is read without it.
THREAD_ERRORS = (Unreadable, safe_io.UnreadableFile, FileNotFoundError)
MAX_PROBLEMS = 20  # kept for a session


class ReadState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the index keeps of a session besides its row: an update continues from it.

    `session` is the row after the events, without the facts. `threads` are those with texts in the
    index, in the order of their numbers; `thread_resumes` are those with a key of their own.
    """

    session: Session | None = None
    first_prompt: str | None = None
    resume: Resume | None = None
    threads: list[str] = []
    thread_resumes: dict[str, Resume] = {}
    problems: list[str] = []
    title: str | None = None  # with a text in the index


decode_state: codec.Decoder[ReadState] = codec.Decoder(ReadState)


class ThreadSeq(NamedTuple):
    """A seq in a thread of a session, encoded as a negative number in the index."""

    number: int
    seq: int

    def encode(self) -> int:
        return -(self.number << _SEQ_BITS | self.seq)

    @classmethod
    def decode(cls, encoded: int) -> ThreadSeq:
        return cls(-encoded >> _SEQ_BITS, -encoded & (1 << _SEQ_BITS) - 1)


class Reading:
    """Iterates the items of one read; `end` is known after the last one.

    Model requests without a recorded cost get an estimated one.
    """

    def __init__(self, items: Items) -> None:
        self._items = items
        self.end = End(None)

    def __iter__(self) -> Iterator[Item]:
        while True:
            try:
                item = next(self._items)
            except StopIteration as end:
                self.end = end.value
                return
            yield _with_cost(item) if isinstance(item.body, ModelCalled) else item


def _with_cost(item: Item) -> Item:
    body = item.body
    assert isinstance(body, ModelCalled)
    usage = _cost_function()(body.usage, body.model, item.at)
    return item if usage is body.usage else item._replace(body=replace(body, usage=usage))


@cache
def _cost_function() -> Callable[[Usage, str | None, int], Usage]:
    from segue.prices.estimate import with_cost  # a list does not need it

    return with_cost


def session_id(source: str, ref: SessionRef) -> str:
    """Return the id of a session: the tool's own id if that is a UUID, else a derived one."""
    return native_session_id(source, ref.identity or ref.native_id)


def native_session_id(source: str, identity: str) -> str:
    """Return the id of a session by the tool's id."""
    return ids.parse(identity) or ids.derived_id(source, identity)


def event_id(source: str, session: str, item: Item, thread: str | None = None) -> str:
    """Return the id of an event: the same at each read."""
    return ids.derived_id(source, session, thread or "", item.record or str(item.seq))


def parse_session(
    reader: Reader, ref: SessionRef, workspace: str, state: ReadState | None
) -> ParsedFile:
    """Read a session for the index, from its beginning or from where a state ends.

    Consuming the texts raises Rewritten if the state is of other content.
    """
    resumes = state is not None and state.resume is not None and reader.resumes
    reading = _IndexReading(reader, ref, state if state is not None and resumes else ReadState())

    def texts() -> Iterator[IndexedText]:
        yield from reading.texts(workspace)
        parsed.row = reading.row

    parsed = ParsedFile(texts(), extends=resumes)
    return parsed


class _IndexReading:
    """A session that is read for the index."""

    def __init__(self, reader: Reader, ref: SessionRef, state: ReadState) -> None:
        self._reader = reader
        self._ref = ref
        self._state = state
        self._continues = state.resume is not None
        self.row: IndexedFile | None = None

    def texts(self, workspace: str) -> Iterator[IndexedText]:
        """Return the texts; afterwards, `row` is known."""
        state, reader, ref = self._state, self._reader, self._ref
        fold = RowFold(reader.name, session_id(reader.name, ref), workspace, state)
        reading = Reading(reader.read(ref, state.resume))
        for item in reading:
            thread = item.body.thread
            if thread is None:
                fold.add(item)
                yield from _indexed_texts(item.seq, item.body)
            else:
                seq = ThreadSeq(_thread_number(state, thread), item.seq)
                yield from _indexed_texts(seq.encode(), item.body)
        facts, state.resume = reading.end
        if facts is not None:
            yield from self._title_texts(facts)
            yield from self._thread_texts(facts)
            state.problems = [*facts.problems, *state.problems][:MAX_PROBLEMS]
        state.session = fold.session
        self.row = IndexedFile(
            key=ref.fingerprint,
            state=codec.encode(state),
            session=None if facts is None else finish_row(reader.name, ref, fold, facts),
            open_since=None if facts is None else facts.open_since,
        )

    def _title_texts(self, facts: SessionFacts) -> Iterator[IndexedText]:
        """Return the text of a title that is no prompt; the text of an earlier title must go."""
        is_prompt = facts.title_by == "auto" or facts.title == self._state.first_prompt
        title = None if is_prompt else facts.title
        if title != self._state.title:
            if self._continues:
                raise Rewritten("the session was renamed")
            self._state.title = title
            yield from _indexed_texts(CREATED_SEQ, InfoChanged(title=title))

    def _thread_texts(self, facts: SessionFacts) -> Iterator[IndexedText]:
        """Return the texts of threads that have files or rows of their own."""
        state = self._state
        for thread in facts.threads:
            ref = None if thread.key is None else self._reader.ref(thread.key)
            if ref is None:
                continue
            number = _thread_number(state, thread.id)
            reading = Reading(self._reader.read(ref, state.thread_resumes.get(thread.id)))
            try:
                for item in reading:
                    yield from _indexed_texts(ThreadSeq(number, item.seq).encode(), item.body)
            except THREAD_ERRORS as error:
                state.problems.append(f"its subagent {thread.id} cannot be read: {error}")
            if reading.end.resume is not None:
                state.thread_resumes[thread.id] = reading.end.resume


def _thread_number(state: ReadState, thread: str) -> int:
    if thread not in state.threads:
        state.threads.append(thread)
    return state.threads.index(thread) + 1


def _indexed_texts(seq: int, body: AnyBody) -> Iterator[IndexedText]:
    if text := search_text.searchable_text(body):
        yield IndexedText(seq, text.encode("utf-8", "surrogatepass"))


class RowFold:
    """Computes the row of a session from its events, with `segue.model.projection`."""

    def __init__(self, source: str, id: str, workspace: str, state: ReadState) -> None:
        created = Created(cwd="/", source=source, origin=source)
        first = Event(seq=CREATED_SEQ, id="", at=0, body=created)
        self._projection = projection.Projection(
            state.session or projection.start(workspace, id, first)
        )
        self._state = state

    @property
    def session(self) -> Session:
        """The row after the last event, without the facts."""
        return self._projection.session

    @property
    def first_prompt(self) -> str | None:
        """The beginning of the first prompt."""
        return self._state.first_prompt

    def add(self, item: Item) -> None:
        """Add the next event of the session's own agent."""
        body = item.body
        if item.inherited:
            self._projection.change(fork=ForkPoint(session="", seq=item.seq))
        if isinstance(body, Foreign):
            self._projection.change(last_seq=item.seq)
            return
        if (
            self._state.first_prompt is None
            and isinstance(body, UserMessage)
            and body.starts_turn
            and not body.is_removed
        ):
            self._state.first_prompt = prompt_title(plain_text(body.content))
        event = Event(seq=item.seq, id="", at=item.at, body=body)
        self._projection.add(event)


def finish_row(source: str, ref: SessionRef, fold: RowFold, facts: SessionFacts) -> Session | None:
    """Return a session's row with its facts; None if lists leave it out."""
    session = fold.session
    title = facts.title or fold.first_prompt
    if facts.parent is not None or (title is None and not session.messages):
        return None
    active_at = max(session.active_at, facts.created_at)
    updated_at = max(active_at, facts.updated_at or 0)
    real_cwd = resolve_directory(facts.cwd)
    fork = session.fork
    if facts.forked_from is not None:
        parent = native_session_id(source, facts.forked_from)
        fork = ForkPoint(session=parent, seq=CREATED_SEQ if fork is None else fork.seq)
    return replace(
        session,
        native_id=None if session.id == ref.native_id else ref.native_id,
        cwd=facts.cwd,
        real_cwd=None if real_cwd == facts.cwd else real_cwd,
        created_at=facts.created_at,
        active_at=active_at,
        updated_at=updated_at,
        title=title,
        title_by="auto" if facts.title is None else facts.title_by,
        archived_at=facts.archived_at,
        deleted_at=facts.deleted_at,
        git_branch=facts.git_branch,
        fork=fork,
        open_calls=(),
        lines=settled(session.lines),
        agent=AgentRef(
            id=_agent_id(session.workspace, source),
            overrides={} if facts.model is None else {"model": facts.model},
        ),
        extra={source: facts.extra} if facts.extra else {},
    )


def creation_event(session: Session) -> Event:
    """Return the first event of a session, which no record of the tool says."""
    body = Created(
        cwd=session.cwd,
        real_cwd=session.real_cwd,
        origin=session.source,
        source=session.source,
        native_id=session.native_id,
        git_branch=session.git_branch,
        fork=session.fork,
    )
    id = ids.derived_id(session.source, session.id, "", "created")
    return Event(seq=CREATED_SEQ, id=id, at=session.created_at, body=body)


@lru_cache(64)
def _agent_id(workspace: str, source: str) -> str:
    return agent_id(workspace, source)


@lru_cache(4096)
def resolve_directory(cwd: str) -> str:
    """Return a working directory with links resolved, as lists compare it."""
    try:
        return os.path.realpath(cwd)
    except (OSError, ValueError):  # a NUL in the path, or a loop of links
        return cwd
