"""Read and render a session's history in chunks of neighbouring events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from segue.model.event import Event, ToolCall
from segue.model.principal import Principal
from segue.model.session import OWN, Session

from . import templates, threads
from .items import Item, StartedThread, build_items, build_thread_items
from .pairing import Pairs, find_openings, read_pairs
from .reader import EventReader
from .turns import Steps, TurnSummary, group_steps, summarize_turns

CHUNK_EVENTS = 10  # in sessions whose seqs count events


class Chunk(NamedTuple):
    """One chunk of a history, ready to be rendered.

    `turns` has the turns that end in the chunk, by the seq of the item before which each ends.
    """

    number: int
    items: list[Item]
    turns: Mapping[int, TurnSummary] = {}

    @property
    def groups(self) -> list[Item | Steps | TurnSummary]:
        """Return the items with consecutive tool calls as groups, and with the ends of turns."""
        groups: list[Item | Steps | TurnSummary] = []
        run: list[Item] = []
        for item in self.items:
            if turn := self.turns.get(item.event.seq):
                groups += [*group_steps(run), turn]
                run = []
            run.append(item)
        groups += group_steps(run)
        last = self.items[-1].event.seq if self.items else 0
        return groups + [turn for seq, turn in self.turns.items() if seq > last]


class SessionView(NamedTuple):
    """What a template shows: a session, its URL (`base`) and what the reader may do with it.

    A `standalone` file contains all text and links to nothing on the server. `owner_label`
    names the source in whose files the session lives; it is imported before a prompt. `thread` is
    the thread that a page shows instead of the session. `prefix` begins the ids of its elements.
    `pinned` says that the user has pinned the session.
    """

    session: Session
    base: str
    writable: bool
    csrf: str = ""
    standalone: bool = False
    owner_label: str = ""
    thread: str | None = None
    prefix: str = "e"
    pinned: bool = False


def chunk_size(session: Session) -> int:
    """Return how many seqs a chunk spans.

    In a source's transcript, seqs are offsets and far apart. The size is then CHUNK_EVENTS times a
    power of two, so that it seldom changes while the session grows.
    """
    if session.owner == OWN:
        return CHUNK_EVENTS
    distance = session.last_seq // max(1, session.messages)
    return CHUNK_EVENTS << (distance // 2).bit_length()


def chunk_number(session: Session, seq: int) -> int:
    """Return the number of the chunk that contains an event."""
    return max(0, seq - 1) // chunk_size(session)


async def read_chunks(
    reader: EventReader, principal: Principal, session: Session, first: int, last: int
) -> list[Chunk]:
    """Read the chunks `first` to `last`, with the threads that were started there."""
    size = chunk_size(session)
    after, before = first * size, (last + 1) * size + 1
    all_events = await reader.events(
        principal, session.id, after=after, before=before, limit=(last - first + 1) * size
    )
    events = [event for event in all_events if event.body.thread is None]
    pairs = await read_pairs(reader, principal, session, events, after=after, before=before)
    by_chunk: dict[int, list[Event]] = {number: [] for number in range(first, last + 1)}
    for event in events:
        by_chunk[chunk_number(session, event.seq)].append(event)
    chunks = []
    openings = dict(pairs.openings)
    turns = await summarize_turns(reader, principal, session, events)
    for number, chunk_events in by_chunk.items():
        items = build_items(session, chunk_events, Pairs(pairs.outcomes, openings))
        seqs = {event.seq for event in chunk_events}
        if session.last_seq in seqs:
            seqs.add(session.last_seq + 1)
        ended = {seq: turn for seq, turn in turns.items() if seq in seqs}
        chunks.append(Chunk(number, items, ended))
        openings |= find_openings(chunk_events)
    if any(isinstance(event.body, ToolCall) for event in events):
        chunks = await _add_threads(reader, principal, session, chunks, events)
    return chunks


async def _add_threads(
    reader: EventReader,
    principal: Principal,
    session: Session,
    chunks: Sequence[Chunk],
    events: Sequence[Event],
) -> list[Chunk]:
    """Attach to each tool call the threads that it started, without their events."""
    calls = {event.body.call_id: event.seq for event in events if isinstance(event.body, ToolCall)}
    seqs = set(calls.values())
    by_call: dict[int, tuple[StartedThread, ...]] = {}
    for thread in await reader.threads(principal, session.id):
        seq = calls.get(thread.call_id or "") if thread.is_own else thread.seq
        if seq is not None and seq in seqs:
            by_call[seq] = (*by_call.get(seq, ()), StartedThread(thread))

    def attach(item: Item) -> Item:
        threads = () if item.kind == "fork" else by_call.get(item.event.seq, ())
        return item._replace(threads=threads)

    return [chunk._replace(items=[attach(item) for item in chunk.items]) for chunk in chunks]


async def load_threads(
    reader: EventReader, principal: Principal, session: Session, chunk: Chunk
) -> Chunk:
    """Return the chunk with the events of the threads that were started there."""

    async def load(started: StartedThread) -> StartedThread:
        thread_id = started.thread.id
        events = [event async for event in reader.thread_events(principal, session.id, thread_id)]
        return started._replace(items=build_thread_items(session, events))

    return chunk._replace(
        items=[
            item._replace(threads=tuple([await load(started) for started in item.threads]))
            for item in chunk.items
        ]
    )


async def render_chunks(view: SessionView, chunks: Sequence[Chunk]) -> str:
    """Return chunks as HTML."""
    render = templates.macros("items.html").chunks
    if view.standalone:
        return str(await threads.render_in_thread(render, view, chunks))
    return str(await threads.render(render, view, chunks))
