"""What a whole transcript comes to: the session's row.

Everything is learnt in one pass, line by line, and kept in a small value, so a transcript that
grew is read from where it ended. The rules are those of lists that read only both ends of a file;
but here a title counts wherever it stands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

import msgspec

from segue.model import clock
from segue.model.event import (
    AgentMessage,
    AgentRef,
    AnyBody,
    ConfigChanged,
    Created,
    Event,
    Failed,
    ForkPoint,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.model.session import Session
from segue.sources.base import agent_id
from segue.sources.claude.conversation import entry_table
from segue.sources.claude.events import transcript_reader, usage
from segue.sources.claude.events.transcript_reader import Line
from segue.sources.claude.events.translator import FIRST, Translator, event_id, seq
from segue.sources.claude.format import jsonl, paths, safe_io, sidecar
from segue.sources.claude.format.facts import SessionFacts
from segue.sources.claude.format.jsonl import Entry
from segue.sources.claude.format.paths import SOURCE

MANY = 4096  # days, models or agents that are told apart; nobody has as many
_STARTING = frozenset({"Task", "Agent"})
_LONG = 128  # characters of a call's id
_NAME = re.compile(r"[\w-]{1,64}", re.ASCII)  # of an agent
_EARLIEST = 1_740_355_200_000_000  # February 24, 2025: before it there was no Claude Code
_MARK = 64  # bytes before the end, by which a file is known again


class Known(SessionFacts, kw_only=True):
    """What the lines of a transcript before `end` say. Times are microseconds."""

    end: int = 0
    mark: bytes = b""
    last_seq: int = FIRST
    active_at: int | None = None
    prompted_at: int | None = None
    mode: str | None = None
    model: str | None = None
    forked_from: str | None = None
    forked_seq: int = FIRST
    messages: int = 0
    turns: int = 0
    errors: int = 0
    models: dict[str, Usage] = msgspec.field(default_factory=dict)
    responses: dict[str, int] = msgspec.field(default_factory=dict)  # see `spending`
    costs: dict[str, int] = msgspec.field(default_factory=dict)
    days: dict[str, int] = msgspec.field(default_factory=dict)
    # Of the agents that it started: the places of calls and which agent came of them, that of the
    # first line of one among its own, and what their transcripts say.
    calls: dict[str, int] = msgspec.field(default_factory=dict)
    started: dict[str, int] = msgspec.field(default_factory=dict)
    inline: int | None = None
    agents: dict[str, Known] = msgspec.field(default_factory=dict)


def begin(descriptor: int, known: Known | None) -> Known:
    """What to go on from: what is known, if this file still begins with it."""
    if known is None or not known.end:
        return Known()
    start = max(0, known.end - _MARK)
    seen = safe_io.read_at(descriptor, start, known.end - start + 1)
    whole = known.mark.endswith(b"\n") or seen[known.end - start :] in (b"", b"\n")
    if seen[: known.end - start] != known.mark or not whole:
        return Known()
    return msgspec.structs.replace(
        known,
        models={**known.models},
        responses={**known.responses},
        days={**known.days},
        calls={**known.calls},
        started={**known.started},
        agents={**known.agents},
    )


def scan(descriptor: int, known: Known) -> Iterator[tuple[int, AnyBody]]:
    """What is said behind what is known, and its place; when all was taken, it is known too."""
    status = os.fstat(descriptor)
    translator = Translator("")
    for line in transcript_reader.walk(descriptor, known.end, translator):
        found = jsonl.parse_entries(line.data) if line.is_held else _ends(line)
        place = seq(line.offset, 0)
        for entry in found:
            at = _learn(known, entry)
            inherited = _inherited(known, entry)
            usage.spend(known, entry, inherited)
            if known.inline is None and entry.get("isSidechain") is True:
                known.inline = place
            for body in translator.bodies(line.offset, entry) if line.is_held else ():
                known.last_seq = place
                if inherited:
                    known.forked_seq = place
                _count(known, body, at, inherited)
                _start(known, entry, body, place)
                yield place, body
                place += 1
        if not found and line.data.strip(jsonl.BLANK_BYTES):
            known.last_seq = place  # no entry, and kept as it is
        known.end = line.offset + line.size + 1
    known.end = min(known.end, os.fstat(descriptor).st_size)  # a last line may lack its newline
    start = max(0, known.end - _MARK)
    known.mark = safe_io.read_at(descriptor, start, known.end - start)
    known.size, known.mtime_ns = status.st_size, status.st_mtime_ns


def _ends(line: Line) -> list[Entry]:
    """A line that is too long to be held, as far as its ends show what it is."""
    found = entry_table.header_from_ends(line.data)
    return [{name: getattr(found, name) for name in found.__struct_fields__}]


def _learn(known: Known, entry: Entry) -> int | None:
    """What an entry says of its session; gives its time."""
    kind, at = entry.get("type"), jsonl.parse_timestamp(entry.get("timestamp"))
    known.learn_entry(entry)
    if kind in ("user", "assistant"):
        known.active_at = _later(known.active_at, at)
    elif "forkedFrom" in entry:
        # The last entry of a fork, of whatever kind, is dated when it was forked.
        known.active_at = _later(known.active_at, at)
    if kind in ("user", "attachment") and sidecar.is_human_prompt(entry):
        known.turns += 1
        known.prompted_at = _later(known.prompted_at, at)
    return at


def _inherited(known: Known, entry: Entry) -> bool:
    """Whether a fork took an entry over from the session that it left."""
    told = entry.get("forkedFrom")
    parent = told.get("sessionId") if isinstance(told, dict) else None
    if not isinstance(parent, str) or not paths.is_uuid(parent):
        return False
    known.forked_from = parent.lower()
    return True


def _count(known: Known, body: AnyBody, at: int | None, inherited: bool) -> None:
    """What a body adds to the totals; what an inherited one cost was the parent's."""
    if isinstance(body, UserMessage | AgentMessage):
        known.messages += 1
        if inherited:
            return
        day = str((known.created_at or 0 if at is None else at) // clock.DAY)
        if day in known.days or len(known.days) < MANY:
            known.days[day] = known.days.get(day, 0) + 1
    elif isinstance(body, Failed):
        known.errors += 1
    elif isinstance(body, ConfigChanged) and isinstance(body.mode, str):
        known.mode = body.mode


def _start(known: Known, entry: Entry, body: AnyBody, place: int) -> None:
    """Which call started an agent: the result of the call names it."""
    if isinstance(body, ToolCall):
        if body.name in _STARTING and len(known.calls) < MANY and len(body.call_id) <= _LONG:
            known.calls[body.call_id] = place
    elif isinstance(body, ToolResult):
        agent = agent_of(entry)
        if agent is not None and len(known.started) < MANY:
            known.started[agent] = known.calls.get(body.call_id, place)


def agent_of(entry: Entry) -> str | None:
    """The agent that an entry with the result of its call names."""
    told = entry.get("toolUseResult")
    agent = told.get("agentId") if isinstance(told, dict) else None
    return agent if isinstance(agent, str) and _NAME.fullmatch(agent) else None


def session(
    known: Known, id: str, path: str, workspace: str, beside: bool = True
) -> Session | None:
    """The row of a session; None for what lists leave out. `beside`: it has a directory too."""
    title, by = _title(known, path, beside)
    if known.is_sidechain or not title:
        return None
    changed = min(known.mtime_ns // 1000, clock.now())  # a pin dates the file ahead
    begun = known.created_at
    if begun is None:
        # Files with nothing but the summary of another session tell no time, and the file's own
        # would put them before all in which something was said.
        begun = changed if known.messages else min(changed, _EARLIEST)
    active = begun if known.active_at is None else max(begun, known.active_at)
    cwd = known.directory or "/"
    real = _real(cwd)
    used = usage.models(known)
    fork = None
    if known.forked_from is not None:
        fork = ForkPoint(session=known.forked_from, seq=known.forked_seq)
    return Session(
        id=id.lower(),
        native_id=None if id.islower() or id.isdigit() else id,
        workspace=workspace,
        source=SOURCE,
        origin=SOURCE,
        agent=AgentRef(
            id=_agent(workspace),
            overrides={} if known.model is None else {"model": known.model},
        ),
        cwd=cwd,
        real_cwd=None if real == cwd else real,
        created_at=begun,
        active_at=active,
        updated_at=max(active, changed),
        last_seq=known.last_seq,
        title=title,
        title_by=by,
        tag=known.tag or None,
        archived_at=_archived(known, path) if beside else None,
        mode=known.mode,
        git_branch=known.git_branch,
        fork=fork,
        messages=known.messages,
        turns=known.turns,
        errors=known.errors,
        usage=sum(used.values(), Usage()),
        models=used,
        days=known.days,
    )


def _title(known: Known, path: str, beside: bool) -> tuple[str | None, Literal["person", "auto"]]:
    own = known.custom_title or (sidecar.read_title(path) if beside else None)
    if own:
        return own, "person"
    return known.generated_title, "auto"


def _archived(known: Known, path: str) -> int | None:
    mark = sidecar.read_archive_mark(path)
    if mark is None or not mark.archived:
        return None
    return mark.at if known.prompted_at is None or known.prompted_at <= mark.at else None


def creation(session: Session) -> Event:
    """The first event of a session, which no line tells."""
    body = Created(
        cwd=session.cwd,
        real_cwd=session.real_cwd,
        origin=session.origin,
        source=session.source,
        native_id=session.native_id,
        git_branch=session.git_branch,
        fork=session.fork,
    )
    return Event(seq=FIRST, id=event_id(session.id, -1, 0), at=session.created_at, body=body)


@lru_cache(64)
def _agent(workspace: str) -> str:
    return agent_id(workspace, SOURCE)


@lru_cache(4096)
def _real(cwd: str) -> str:
    return paths.resolve_directory(cwd)


def _later(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else max(one, other)
