"""Find the transcripts of the subagents that a session started.

They are at `<session>/subagents/agent-<id>.jsonl`, or deeper for the agents of a workflow. A small
`agent-<id>.meta.json` next to each names the tool call and the agent that started it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from segue.sources import safe_io

from . import jsonl, sidecar
from .jsonl import Entry

AGENT_FILE_NAME = re.compile(r"agent-(.+)\.jsonl", re.S)
_AGENT_ID = re.compile(r"[\w-]{1,64}", re.ASCII)
_MAX_DEPTH = 32


def list_agent_transcripts(session: str) -> Iterator[tuple[str, str]]:
    """Yield the id and the path of each subagent's transcript, given the session's transcript."""
    directory = os.path.join(sidecar.sidecar_directory(session), "subagents")
    yield from _list_transcripts(directory, _MAX_DEPTH)


def _list_transcripts(directory: str, depth: int) -> Iterator[tuple[str, str]]:
    entries = sorted(safe_io.list_directory(directory), key=lambda entry: entry.name)
    for entry in entries:
        match = AGENT_FILE_NAME.fullmatch(entry.name)
        if match and safe_io.is_regular_file(entry):
            yield match[1], entry.path
    for entry in entries:
        if depth and safe_io.is_directory(entry, follow_symlinks=False):
            yield from _list_transcripts(entry.path, depth - 1)


def list_agent_ids(session: str) -> list[str]:
    """Return the ids of a session's subagents."""
    return list(dict.fromkeys(id for id, _ in list_agent_transcripts(session)))


def read_metadata(path: str) -> Entry:
    """Return the metadata next to a subagent's transcript; empty if it cannot be read."""
    return jsonl.read_object(metadata_path(path))


def metadata_path(path: str) -> str:
    """Return the path of the metadata of a subagent's transcript."""
    return path.removesuffix(".jsonl") + ".meta.json"


def agent_id_from_path(path: str) -> str:
    """Return the id of a subagent from the path of its transcript below the session's directory."""
    return path.rpartition("/")[2].removeprefix("agent-")


def parse_agent_id(entry: Entry) -> str | None:
    """Return the id of the subagent that a tool call started, from the entry with its result."""
    result = entry.get("toolUseResult")
    agent = result.get("agentId") if isinstance(result, dict) else None
    return agent if isinstance(agent, str) and _AGENT_ID.fullmatch(agent) else None


def parse_started_by(metadata: Entry) -> tuple[str | None, str | None]:
    """Return the ids of the tool call and of the agent that started a subagent."""
    return (
        jsonl.parse_text(metadata.get("toolUseId")),
        jsonl.parse_text(metadata.get("parentAgentId")),
    )
