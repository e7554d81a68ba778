"""Summarise a transcript in one pass, and make the session's row from the summary.

The summary is small, so a transcript that grew is read from where the last pass ended. The rules
are those of the Agent SDK's lists, which read only both ends of a file. Here a title also counts in
the middle.
"""

from __future__ import annotations

import os
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
from segue.model.session import Session, settled
from segue.model.tools.changed_lines import count_lines
from segue.sources import safe_io
from segue.sources.base import agent_id
from segue.sources.claude.conversation import entry_table
from segue.sources.claude.format import jsonl, paths, sidecar, subagents
from segue.sources.claude.format.facts import fork_parent
from segue.sources.claude.format.jsonl import Entry
from segue.sources.claude.format.paths import SOURCE

from . import transcript_reader, usage
from .summary import TranscriptSummary
from .transcript_reader import FileLine
from .translator import CREATED_SEQ, Translator, event_id, event_seq

MAX_ITEMS = 4096  # days, calls or subagents that are counted
_SUBAGENT_TOOLS = frozenset({"Task", "Agent"})
_MAX_CALL_ID_LENGTH = 128
_FIRST_RELEASE_MICROS = 1_740_355_200_000_000  # Claude Code was released on February 24, 2025
_TAIL_BYTES = 64


def resume_summary(descriptor: int, summary: TranscriptSummary | None) -> TranscriptSummary:
    """Return a copy of the summary if the file still begins with its lines, else an empty one."""
    if summary is None or not summary.end:
        return TranscriptSummary()
    start = max(0, summary.end - _TAIL_BYTES)
    data = safe_io.read_at(descriptor, start, summary.end - start + 1)
    tail, next_byte = data[: summary.end - start], data[summary.end - start :]
    is_line_end = summary.tail.endswith(b"\n") or next_byte in (b"", b"\n")
    if tail != summary.tail or not is_line_end:
        return TranscriptSummary()
    return msgspec.structs.replace(
        summary,
        models={**summary.models},
        responses={**summary.responses},
        days={**summary.days},
        calls={**summary.calls},
        started={**summary.started},
        agents={**summary.agents},
    )


def scan_lines(descriptor: int, summary: TranscriptSummary) -> Iterator[tuple[int, AnyBody]]:
    """Return the event bodies after the summary's end, with their seqs, and extend the summary.

    The summary is valid again after the last body.
    """
    status = os.fstat(descriptor)
    translator = Translator("")
    for line in transcript_reader.read_file_lines(descriptor, summary.end, translator):
        entries = jsonl.parse_entries(line.data) if line.is_held else _entries_from_ends(line)
        seq = event_seq(line.offset, 0)
        for entry in entries:
            at = add_entry(summary, entry)
            inherited = fork_parent(entry) is not None
            usage.add_usage(summary, entry, at, inherited=inherited)
            if summary.inline is None and entry.get("isSidechain") is True:
                summary.inline = seq
            for body in translator.entry_bodies(line.offset, entry) if line.is_held else ():
                summary.last_seq = seq
                if inherited:
                    summary.forked_seq = seq
                _add_body(summary, body, at, inherited=inherited)
                add_subagent(summary, entry, body, seq)
                yield seq, body
                seq += 1
        if not entries and line.data.strip(jsonl.BLANK_BYTES):
            summary.last_seq = seq  # an unreadable line becomes one event
        summary.end = line.offset + line.size + 1
    summary.end = min(summary.end, os.fstat(descriptor).st_size)  # a last line may lack its newline
    start = max(0, summary.end - _TAIL_BYTES)
    summary.tail = safe_io.read_at(descriptor, start, summary.end - start)
    summary.size, summary.mtime_ns = status.st_size, status.st_mtime_ns


def _entries_from_ends(line: FileLine) -> list[Entry]:
    """Return what the two ends show of a line that is too long to hold."""
    header = entry_table.header_from_ends(line.data)
    return [{name: getattr(header, name) for name in header.__struct_fields__}]


def add_entry(summary: TranscriptSummary, entry: Entry) -> int | None:
    """Add an entry's facts about the session, and return the entry's time."""
    kind, at = entry.get("type"), jsonl.parse_timestamp(entry.get("timestamp"))
    summary.learn_entry(entry)
    # The last entry of a fork, of whatever kind, has the time of the fork.
    if kind in ("user", "assistant") or "forkedFrom" in entry:
        summary.active_at = _latest(summary.active_at, at)
    if kind in ("user", "attachment") and sidecar.is_human_prompt(entry):
        summary.turns += 1
        summary.prompted_at = _latest(summary.prompted_at, at)
    return at


def _add_body(
    summary: TranscriptSummary, body: AnyBody, at: int | None, *, inherited: bool
) -> None:
    """Add an event to the totals; the days of inherited events count for the parent."""
    if isinstance(body, UserMessage | AgentMessage):
        summary.messages += 1
        if inherited:
            return
        day = str((summary.created_at or 0 if at is None else at) // clock.DAY)
        if day in summary.days or len(summary.days) < MAX_ITEMS:
            summary.days[day] = summary.days.get(day, 0) + 1
    elif isinstance(body, ToolCall):
        summary.tool_calls += 1
        summary.lines = count_lines(summary.lines, body)
    elif isinstance(body, ToolResult):
        summary.lines = count_lines(summary.lines, body)
    elif isinstance(body, Failed):
        summary.errors += 1
    elif isinstance(body, ConfigChanged) and isinstance(body.mode, str):
        summary.mode = body.mode


def add_subagent(summary: TranscriptSummary, entry: Entry, body: AnyBody, seq: int) -> None:
    """Note which call started a subagent; the result of the call has the subagent's id."""
    if isinstance(body, ToolCall):
        if (
            body.name in _SUBAGENT_TOOLS
            and len(summary.calls) < MAX_ITEMS
            and len(body.call_id) <= _MAX_CALL_ID_LENGTH
        ):
            summary.calls[body.call_id] = seq
    elif isinstance(body, ToolResult):
        agent = subagents.parse_agent_id(entry)
        if agent is not None and len(summary.started) < MAX_ITEMS:
            summary.started[agent] = summary.calls.get(body.call_id, seq)


def session_from_summary(
    summary: TranscriptSummary, id: str, path: str, workspace: str, *, has_sidecar: bool = True
) -> Session | None:
    """Return the session's row, or None if lists leave it out.

    `has_sidecar` says whether the session has a directory with further files.
    """
    title, title_by = _title(summary, path, has_sidecar=has_sidecar)
    if summary.is_sidechain or not title:
        return None
    created_at, active_at, updated_at = _times(summary)
    cwd = summary.directory or "/"
    real_cwd = _resolve_directory(cwd)
    models = usage.usage_by_model(summary)
    fork = None
    if summary.forked_from is not None:
        fork = ForkPoint(session=summary.forked_from, seq=summary.forked_seq)
    return Session(
        id=id.lower(),
        native_id=None if id.islower() or id.isdigit() else id,
        workspace=workspace,
        owner=SOURCE,
        origin=SOURCE,
        agent=AgentRef(
            id=_agent_id(workspace),
            overrides={} if summary.model is None else {"model": summary.model},
        ),
        cwd=cwd,
        real_cwd=None if real_cwd == cwd else real_cwd,
        created_at=created_at,
        active_at=active_at,
        updated_at=updated_at,
        last_seq=summary.last_seq,
        title=title,
        title_by=title_by,
        tag=summary.tag or None,
        archived_at=_archived_at(summary, path) if has_sidecar else None,
        mode=summary.mode,
        git_branch=summary.git_branch,
        fork=fork,
        messages=summary.messages,
        turns=summary.turns,
        tool_calls=summary.tool_calls,
        lines=settled(summary.lines),
        errors=summary.errors,
        usage=sum(models.values(), Usage()),
        models=models,
        days=summary.days,
    )


def _times(summary: TranscriptSummary) -> tuple[int, int, int]:
    """Return when a session was created, was last active and was last changed."""
    changed_at = min(summary.mtime_ns // 1000, clock.now())  # a pin sets the file's time ahead
    created_at = summary.created_at
    if created_at is None:
        # A file with only the summary of another session has no times. The time of the file would
        # put it before sessions with messages.
        created_at = changed_at if summary.messages else min(changed_at, _FIRST_RELEASE_MICROS)
    active_at = created_at if summary.active_at is None else max(created_at, summary.active_at)
    return created_at, active_at, max(active_at, changed_at)


def _title(
    summary: TranscriptSummary, path: str, *, has_sidecar: bool
) -> tuple[str | None, Literal["person", "auto"]]:
    """Return the title and its author."""
    custom_title = summary.custom_title or (sidecar.read_title(path) if has_sidecar else None)
    if custom_title:
        return custom_title, "person"
    return summary.generated_title, "auto"


def _archived_at(summary: TranscriptSummary, path: str) -> int | None:
    mark = sidecar.read_archive_mark(path)
    if mark is None or not mark.archived:
        return None
    return mark.at if summary.prompted_at is None or summary.prompted_at <= mark.at else None


def creation_event(session: Session) -> Event:
    """Return the first event of a session, which has no line in the transcript."""
    body = Created(
        cwd=session.cwd,
        real_cwd=session.real_cwd,
        origin=session.origin,
        source=session.source,
        native_id=session.native_id,
        git_branch=session.git_branch,
        fork=session.fork,
    )
    return Event(seq=CREATED_SEQ, id=event_id(session.id, -1, 0), at=session.created_at, body=body)


@lru_cache(64)
def _agent_id(workspace: str) -> str:
    return agent_id(workspace, SOURCE)


@lru_cache(4096)
def _resolve_directory(cwd: str) -> str:
    return paths.resolve_directory(cwd)


def _latest(time: int | None, other_time: int | None) -> int | None:
    return time if other_time is None else other_time if time is None else max(time, other_time)
