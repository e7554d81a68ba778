"""The SDK's helpers for reading, in terms of ours."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from segue.claude import SDKSessionInfo, get_session_messages, stored
from segue.sources.claude.conversation import active_branch, entry_table
from segue.sources.claude.format import jsonl as read
from segue.sources.claude.format import paths
from segue.sources.claude.format.facts import SessionFacts
from segue.sources.claude.format.paths import ProjectDirectory, TranscriptFile
from segue.sources.claude.sdk import listing, quick_info

__all__ = ["get_session_messages"]

MAX_SANITIZED_LENGTH = paths.MAX_PROJECT_NAME_LENGTH
_STORE_LIST_LOAD_CONCURRENCY = stored.MAX_CONCURRENT_LOADS
_sanitize_path = paths.project_key
_simple_hash = paths.path_hash
_canonicalize_path = paths.resolve_directory


def _validate_uuid(text: str) -> str | None:
    return text if paths.is_uuid(text) else None


def _extract_json_string_field(text: str, key: str) -> Any:
    return read.head_field(text.encode(), key)


def _extract_last_json_string_field(text: str, key: str) -> Any:
    return read.tail_field(text.rpartition("\n")[2].encode(), key)


def _extract_first_prompt_from_head(head: str) -> str:
    facts = SessionFacts()
    data = head.encode()
    quick_info.learn_beginning(facts, quick_info.decode_lines(data, len(data)))
    return facts.prompt or ""


def _read_session_lite(path: Path) -> tuple[Path, SessionFacts] | None:
    facts = quick_info.read_facts(str(path))
    return (path, facts) if facts else None


def _parse_session_info_from_lite(
    session_id: str, lite: tuple[Path, SessionFacts], project_path: str | None = None
) -> SDKSessionInfo | None:
    path, facts = lite
    project = ProjectDirectory(str(path.parent), project_path)
    return listing.session_info(facts, TranscriptFile(session_id, str(path), project))


def _build_conversation_chain(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    tree = entry_table.table_from_entries(entries)
    places = tree.starts
    return [
        entries[places[number]]
        for number in active_branch.find_active_branch(tree, lambda number: entries[places[number]])
    ]


def _entries_to_jsonl(entries: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries)


def _jsonl_to_lite(jsonl: str, mtime: int) -> tuple[Path, SessionFacts]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(jsonl.encode())
        file.flush()
        os.utime(file.name, ns=(mtime * 1_000_000, mtime * 1_000_000))
        facts = quick_info.read_facts(file.name)
    assert facts is not None
    return Path(file.name), facts
