"""The SDK's helpers for reading, in terms of ours."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from segue.claude import SDKSessionInfo, get_session_messages, stored
from segue.sources.claude import chain, info, layout, listing, read, transcript
from segue.sources.claude.layout import Project

__all__ = ["get_session_messages"]

MAX_SANITIZED_LENGTH = layout.MAX_NAME
_STORE_LIST_LOAD_CONCURRENCY = stored.LOADS
_sanitize_path = layout.project_key
_simple_hash = layout.path_hash
_canonicalize_path = layout.real


def _validate_uuid(text: str) -> str | None:
    return text if layout.is_uuid(text) else None


def _extract_json_string_field(text: str, key: str) -> Any:
    return read.early(text.encode(), key)


def _extract_last_json_string_field(text: str, key: str) -> Any:
    return read.late(text.rpartition("\n")[2].encode(), key)


def _extract_first_prompt_from_head(head: str) -> str:
    found = info.Facts(0, 0)
    data = head.encode()
    info._begin(found, info._lines(data, len(data)))
    return found.first_prompt or found.command or ""


def _read_session_lite(path: Path) -> tuple[Path, info.Facts] | None:
    facts = info.facts(str(path))
    return (path, facts) if facts else None


def _parse_session_info_from_lite(
    session_id: str, lite: tuple[Path, info.Facts], project_path: str | None = None
) -> SDKSessionInfo | None:
    path, facts = lite
    return listing.describe(facts, session_id, str(path), Project(str(path.parent), project_path))


def _build_conversation_chain(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    tree = transcript.of_entries(entries)
    places = tree.starts
    return [
        entries[places[number]]
        for number in chain.conversation(tree, lambda number: entries[places[number]])
    ]


def _entries_to_jsonl(entries: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries)


def _jsonl_to_lite(jsonl: str, mtime: int) -> tuple[Path, info.Facts]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(jsonl.encode())
        file.flush()
        os.utime(file.name, ns=(mtime * 1_000_000, mtime * 1_000_000))
        facts = info.facts(file.name)
    assert facts is not None
    return Path(file.name), facts
