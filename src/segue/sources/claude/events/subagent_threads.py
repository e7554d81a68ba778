"""The agents that a session started, as threads of it: what they said, and where they began.

Each has a transcript of its own. Claude Code keeps it in a directory beside the session's (see
`subagents`); versions before 2.1 kept it beside the session's itself, where only the result of the
call that started the agent says whose it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from segue.model.event import AnyBody, Event, Usage
from segue.model.session import Thread
from segue.sources.claude.format import safe_io, sidecar, subagents
from segue.sources.claude.format.jsonl import Entry
from segue.sources.claude.index import transcript_summary
from segue.sources.claude.index.transcript_summary import Known

from .transcript_reader import Reader

INLINE = "sidechain"  # the thread of agents whose lines the oldest versions put among the session's
_PLACES = 48  # bits for a place in an agent's transcript


class Place(NamedTuple):
    """A place in the transcript of a session's nth agent, spelt as a negative number."""

    number: int
    seq: int

    def spelt(self) -> int:
        return -(self.number << _PLACES | self.seq)

    @classmethod
    def of(cls, spelt: int) -> Place:
        return cls(-spelt >> _PLACES, -spelt & (1 << _PLACES) - 1)


def transcripts(path: str, started: Iterable[str], beside: bool = True) -> dict[str, str]:
    """The transcript of each agent, by the path of the session's."""
    found: dict[str, str] = {}
    for id, file in subagents.list_agent_transcripts(path) if beside else ():
        found.setdefault(id, file)
    for id in started:
        if id not in found and os.path.isfile(
            file := sidecar.adjacent_file(path, f"agent-{id}.jsonl")
        ):
            found[id] = file
    return found


def is_whole(path: str, known: Known, beside: bool) -> bool:
    """Whether all that is known of a session's agents is still in their transcripts."""
    there = transcripts(path, known.started, beside) if known.agents else {}
    for id, agent in known.agents.items():
        try:
            with safe_io.open_for_reading(there[id]) as (descriptor, _):
                if not transcript_summary.begin(descriptor, agent).end:
                    return False
        except (KeyError, safe_io.UnreadableFile):
            return False
    return True


def read(path: str, known: Known, beside: bool) -> Iterator[tuple[int, AnyBody]]:
    """What the agents said beyond what is known, and the places, as a Place spells them."""
    for id, file in transcripts(path, known.started, beside).items():
        agent = known.agents.get(id)
        if agent is None and len(known.agents) >= transcript_summary.MANY:
            continue
        try:
            with safe_io.open_for_reading(file) as (descriptor, status):
                if agent and (agent.size, agent.mtime_ns) == (status.st_size, status.st_mtime_ns):
                    continue
                agent = known.agents[id] = transcript_summary.begin(descriptor, agent)
                number = list(known.agents).index(id) + 1
                for seq, body in transcript_summary.scan(descriptor, agent):
                    yield Place(number, seq).spelt(), body
        except safe_io.UnreadableFile:
            continue


def listed(path: str, known: Known) -> list[Thread]:
    """The threads of a session, in the order in which they were begun."""
    found = []
    for id, file in transcripts(path, known.started).items():
        about = subagents.read_metadata(file)
        call, parent = subagents.parse_started_by(about)
        agent = known.agents.get(id) or Known()
        found.append(
            Thread(
                id=id,
                seq=known.started.get(id) or known.calls.get(call or ""),
                parent=parent,
                kind=_text(about, "agentType"),
                title=_text(about, "description"),
                created_at=agent.created_at,
                active_at=agent.active_at,
                usage=sum(agent.models.values(), Usage()),
            )
        )
    if known.inline is not None:
        found.append(Thread(id=INLINE, seq=known.inline))
    return sorted(found, key=lambda thread: (thread.seq or 0, thread.id))


def reader(descriptor: int, session: str, agent: str, created: Event) -> Reader:
    """The events of an agent's open transcript."""
    return Reader(descriptor, f"{session}/{agent}", created)


def _text(about: Entry, name: str) -> str | None:
    value = about.get(name)
    return value if isinstance(value, str) and value else None
