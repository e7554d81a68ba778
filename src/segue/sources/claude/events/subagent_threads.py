"""The subagents of a session: their transcripts, their events and their threads.

Each has a transcript of its own, in the session's directory (see `format.subagents`). Versions
before 2.1 put it next to the session's transcript. Then only the result of the call that started
the subagent names its session.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from segue.model.event import AnyBody, Usage
from segue.model.session import Thread
from segue.sources import safe_io
from segue.sources.claude.format import jsonl, sidecar, subagents
from segue.sources.claude.format.jsonl import Entry

from . import transcript_summary
from .summary import TranscriptSummary

# The thread of subagents whose lines the oldest versions put into the session's transcript.
INLINE_THREAD = "sidechain"
_SEQ_BITS = 48


class SubagentSeq(NamedTuple):
    """A seq in the transcript of a session's subagent, encoded as a negative number."""

    number: int
    seq: int

    def encode(self) -> int:
        return -(self.number << _SEQ_BITS | self.seq)

    @classmethod
    def decode(cls, encoded: int) -> SubagentSeq:
        return cls(-encoded >> _SEQ_BITS, -encoded & (1 << _SEQ_BITS) - 1)


def find_transcripts(
    path: str, started: Iterable[str], *, has_sidecar: bool = True
) -> dict[str, str]:
    """Return the transcripts of a session's subagents, by id.

    `started` are the ids of subagents whose transcripts may be next to the session's.
    """
    files: dict[str, str] = {}
    for id, file in subagents.list_agent_transcripts(path) if has_sidecar else ():
        files.setdefault(id, file)
    for id in started:
        if id in files:
            continue
        file = sidecar.adjacent_file(path, f"agent-{id}.jsonl")
        if os.path.isfile(file):
            files[id] = file
    return files


def is_unchanged(path: str, summary: TranscriptSummary, *, has_sidecar: bool) -> bool:
    """Return whether the summarised part of all subagents' transcripts is still there."""
    if not summary.agents:
        return True
    files = find_transcripts(path, summary.started, has_sidecar=has_sidecar)
    for id, agent in summary.agents.items():
        try:
            with safe_io.open_for_reading(files[id]) as (descriptor, _):
                if not transcript_summary.resume_summary(descriptor, agent).end:
                    return False
        except (KeyError, safe_io.UnreadableFile):
            return False
    return True


def read_appended(
    path: str, summary: TranscriptSummary, *, has_sidecar: bool
) -> Iterator[tuple[int, AnyBody]]:
    """Return the subagents' events that are not in the summary, each with its SubagentSeq."""
    files = find_transcripts(path, summary.started, has_sidecar=has_sidecar)
    for id, file in files.items():
        agent = summary.agents.get(id)
        if agent is None and len(summary.agents) >= transcript_summary.MAX_ITEMS:
            continue
        try:
            with safe_io.open_for_reading(file) as (descriptor, status):
                if agent and (agent.size, agent.mtime_ns) == (status.st_size, status.st_mtime_ns):
                    continue
                agent = transcript_summary.resume_summary(descriptor, agent)
                summary.agents[id] = agent
                number = list(summary.agents).index(id) + 1
                for seq, body in transcript_summary.scan_lines(descriptor, agent):
                    yield SubagentSeq(number, seq).encode(), body
        except safe_io.UnreadableFile:
            continue


def list_threads(path: str, summary: TranscriptSummary) -> list[Thread]:
    """Return the threads of a session, in the order of their start."""
    threads = []
    for id, file in find_transcripts(path, summary.started).items():
        metadata = subagents.read_metadata(file)
        agent = summary.agents.get(id) or TranscriptSummary()
        threads.append(thread_from_summary(id, metadata, agent, summary))
    if summary.inline is not None:
        threads.append(Thread(id=INLINE_THREAD, seq=summary.inline))
    return sorted(threads, key=start_order)


def thread_from_summary(
    id: str, metadata: Entry, agent: TranscriptSummary, session: TranscriptSummary
) -> Thread:
    """Return the thread of a subagent, from its metadata and the summaries of both transcripts."""
    call, parent = subagents.parse_started_by(metadata)
    return Thread(
        id=id,
        seq=session.started.get(id) or session.calls.get(call or ""),
        parent=parent,
        kind=jsonl.parse_text(metadata.get("agentType")),
        title=jsonl.parse_text(metadata.get("description")),
        created_at=agent.created_at,
        active_at=agent.active_at,
        usage=sum(agent.models.values(), Usage()),
    )


def start_order(thread: Thread) -> tuple[int, str]:
    """Return the sort key that puts threads in the order of their start."""
    return thread.seq or 0, thread.id
