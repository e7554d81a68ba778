"""Compare two sessions side by side, from the point at which one was forked or both were.

Turns are aligned by their order after that point. Sessions without a common ancestor, such as two
runs of one task, are compared from their beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from starlette.responses import Response

from segue.interfaces.web.request import WebRequest
from segue.model.errors import InvalidInput, NotFound
from segue.model.event import Event
from segue.model.query import Query
from segue.model.session import OWN, Session
from segue.render import threads, turns
from segue.render.chunks import Chunk, SessionView, render_chunks
from segue.render.items import build_items
from segue.render.pairing import read_pairs
from segue.render.relative_paths import with_relative_paths
from segue.render.tools.changes import ChangedFile, changed_files
from segue.render.turns import TurnSummary

from . import listing, transcript

MAX_EVENTS = 2000  # of each session after the common part
MAX_ANCESTORS = 50
MAX_CANDIDATES = 20
SCANNED_SESSIONS = 500  # the last active ones, as candidates


class Branch(NamedTuple):
    """Where two sessions part: the last common event of each, and the ancestor that has it.

    Without a common ancestor, both seqs are 0.
    """

    first: int = 0
    second: int = 0
    ancestor: str | None = None


class Side(NamedTuple):
    """One of the two sessions: its turns after the common part as HTML, and what they did."""

    view: SessionView
    turns: list[str]
    summary: TurnSummary | None
    files: list[ChangedFile]
    complete: bool


async def page(request: WebRequest) -> Response:
    """GET /compare: two sessions, `a` and `b`; without `b`, sessions to compare `a` with."""
    first = await _session(request, "a")
    values: dict[str, Any] = {"first": first}
    if request.param("b"):
        second = await _session(request, "b")
        if first.id == second.id:
            raise InvalidInput("these are the same session; choose another one to compare with")
        branch = await _branch(request, first, second)
        sides = [
            await _side(request, first, branch.first, "a"),
            await _side(request, second, branch.second, "b"),
        ]
        count = max(len(side.turns) for side in sides)
        values |= {
            "sides": sides,
            "branch": branch,
            "rows": [
                [side.turns[number] if number < len(side.turns) else "" for side in sides]
                for number in range(count)
            ],
            "files": _files(sides),
        }
    else:
        values["candidates"] = await _candidates(request, first)
    template, values = await listing.with_sidebar(request, "compare.html", values)
    return request.render_page(template, **values)


async def _session(request: WebRequest, name: str) -> Session:
    return await request.session_named(request.param(name))


async def _lineage(request: WebRequest, session: Session) -> dict[str, int]:
    """Return the session and its ancestors, each with the last seq that the session has of it."""
    lineage = {session.id: session.last_seq}
    last = session.last_seq
    while session.fork is not None and len(lineage) < MAX_ANCESTORS:
        last = min(last, session.fork.seq)
        lineage[session.fork.session] = last
        try:
            session = await request.hub.sessions.get(request.principal, session.fork.session)
        except NotFound:
            break
    return lineage


async def _branch(request: WebRequest, first: Session, second: Session) -> Branch:
    """Return where two sessions part."""
    lineages = [await _lineage(request, session) for session in (first, second)]
    ancestor = next((id for id in lineages[0] if id in lineages[1]), None)
    if ancestor is None:
        return Branch()
    # A fork has the seqs of its parent, unless the parent is in the files of another tool.
    common = min(
        lineage[ancestor]
        for session, lineage in zip((first, second), lineages, strict=True)
        if session.id != ancestor
    )
    seqs = [
        await _same_event(request, session, other, common) if session.id == ancestor else common
        for session, other in ((first, second), (second, first))
    ]
    return Branch(seqs[0], seqs[1], ancestor)


async def _same_event(request: WebRequest, session: Session, fork: Session, seq: int) -> int:
    """Return the seq in a session of the event that its fork has at `seq`."""
    read = request.hub.history.events
    copied = await read(request.principal, fork.id, after=seq - 1, before=seq + 1, limit=1)
    own = await read(request.principal, session.id, after=seq - 1, before=seq + 1, limit=1)
    if not copied:
        return min(seq, session.last_seq)
    if session.owner == OWN and own and _is_copy(own[0], copied[0]):
        return seq
    earlier = await read(request.principal, session.id, until=copied[0].at, limit=50, backward=True)
    same = [event.seq for event in earlier if _is_copy(event, copied[0])]
    return same[-1] if same else earlier[-1].seq if earlier else 0


def _is_copy(event: Event, other: Event) -> bool:
    return event.at == other.at and event.type == other.type


async def _side(request: WebRequest, session: Session, after: int, prefix: str) -> Side:
    """Read and render the turns of a session after an event."""
    reader, principal = request.hub.history, request.principal
    events = await reader.events(principal, session.id, after=after, limit=MAX_EVENTS)
    before = session.last_seq + 1
    pairs = await read_pairs(reader, principal, session, events, after=after, before=before)
    view = (await transcript.view_of(request, session))._replace(writable=False, prefix=prefix)
    rendered = []
    for turn in _split(events):
        items = build_items(session, turn, pairs)
        summary = turns.summarize(turn)
        ended = {} if summary is None else {session.last_seq + 1: summary}
        if items:
            rendered.append(await render_chunks(view, [Chunk(0, items, ended)]))
    shortened = [with_relative_paths(event, session) for event in events]
    files = await threads.render_in_thread(changed_files, shortened)
    return Side(
        view,
        rendered,
        turns.summarize(events) if events else None,
        files,
        len(events) < MAX_EVENTS,
    )


def _split(events: Sequence[Event]) -> list[list[Event]]:
    """Return events as turns, each of which begins with a prompt."""
    split: list[list[Event]] = [[]]
    for event in events:
        if turns.is_prompt(event) and split[-1]:
            split.append([])
        split[-1].append(event)
    # What comes before the first prompt, such as the name of a fork, belongs to the first turn.
    if len(split) > 1 and not turns.is_prompt(split[0][0]) and turns.summarize(split[0]) is None:
        split[:2] = [split[0] + split[1]]
    return [turn for turn in split if turn]


def _files(sides: list[Side]) -> list[tuple[str, list[ChangedFile | None]]]:
    """Return the files that either side changed, by path."""
    by_path = [{file.path: file for file in side.files} for side in sides]
    paths = sorted({path for files in by_path for path in files})
    return [(path, [files.get(path) for files in by_path]) for path in paths]


async def _candidates(request: WebRequest, session: Session) -> list[Session]:
    """Return sessions to compare with: relatives first, then others of the project."""
    query = Query(limit=SCANNED_SESSIONS, archived="include")
    listed = await request.hub.sessions.list(request.principal, query, bind_filters=False)
    parent = None if session.fork is None else session.fork.session
    relatives, others = [], []
    for other in listed.sessions:
        if other.id == session.id:
            continue
        their_parent = None if other.fork is None else other.fork.session
        is_relative = other.id == parent or their_parent in ({session.id, parent} - {None})
        if is_relative:
            relatives.append(other)
        elif other.directory == session.directory:
            others.append(other)
    return [*relatives, *others][:MAX_CANDIDATES]
