"""The agents that a session started: transcripts of their own, in a directory beside it.

`<session>/subagents/agent-<id>.jsonl`, or deeper for the agents of a workflow; a small
`agent-<id>.meta.json` beside each says which call of which agent started it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from . import jsonl, safe_io, sidecar
from .jsonl import Entry

AGENT_FILE_NAME = re.compile(r"agent-(.+)\.jsonl", re.S)
_DEEPEST = 32


def list_agent_transcripts(session: str) -> Iterator[tuple[str, str]]:
    """The id and the path of each agent's transcript, by the session's own."""
    yield from _within(os.path.join(sidecar.sidecar_directory(session), "subagents"), _DEEPEST)


def _within(directory: str, depth: int) -> Iterator[tuple[str, str]]:
    found = sorted(safe_io.list_directory(directory), key=lambda entry: entry.name)
    for entry in found:
        named = AGENT_FILE_NAME.fullmatch(entry.name)
        if named and _is(entry, directory=False):
            yield named[1], entry.path
    for entry in found:
        if depth and _is(entry, directory=True):
            yield from _within(entry.path, depth - 1)


def _is(entry: os.DirEntry[str], directory: bool) -> bool:
    try:
        kind = entry.is_dir if directory else entry.is_file
        return kind(follow_symlinks=False)
    except OSError:
        return False


def list_agent_ids(session: str) -> list[str]:
    """The ids of a session's agents."""
    return list(dict.fromkeys(id for id, _ in list_agent_transcripts(session)))


def read_metadata(path: str) -> Entry:
    """What the small file beside an agent's transcript says; nothing when it cannot be read."""
    found = jsonl.parse_entries(
        safe_io.read_small_file(path.removesuffix(".jsonl") + ".meta.json") or b""
    )
    return found[0] if found else {}


def parse_started_by(about: Entry) -> tuple[str | None, str | None]:
    """The ids of the call and of the agent that started an agent."""
    call, parent = about.get("toolUseId"), about.get("parentAgentId")
    return (
        call if isinstance(call, str) and call else None,
        parent if isinstance(parent, str) and parent else None,
    )
