"""Rename, archive, delete and fork sessions in the way that Qwen itself does it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import msgspec

from segue.model import clock
from segue.model.errors import Conflict, NotFound
from segue.sources import safe_io
from segue.sources.kit import bodies, files
from segue.sources.kit.files import Record

from . import chats
from .translator import chain_of, is_on_chain

_SIDECARS = (".worktree.json", ".pr.json", ".ledger.jsonl")
# Records of how the parent came about: they are not true of a fork.
_OF_PARENT = frozenset({"parent_session", "session_source", "turn_result"})
_NOT_ALPHANUMERIC = re.compile(r"[^a-zA-Z0-9]")


def rename(path: str, title: str | None) -> None:
    """Append the record of a title to a session."""
    first: dict[str, Any] = {}
    last: dict[str, Any] = {}
    for _, record in files.Records(path):
        if isinstance(record.get("uuid"), str):
            first, last = first or record, record
    files.append_line(path, _encode(_title_record(first, last, title)))


def _title_record(first: dict[str, Any], last: dict[str, Any], title: str | None) -> dict[str, Any]:
    return {
        "uuid": str(uuid4()),
        "parentUuid": last.get("uuid"),
        "sessionId": first.get("sessionId"),
        "timestamp": clock.to_rfc3339(clock.now()),
        "type": "system",
        "subtype": "custom_title",
        "cwd": first.get("cwd"),
        "version": first.get("version"),
        "systemPayload": {"customTitle": title or "", "titleSource": "manual"},
    }


def move(path: str, *, to_archive: bool) -> None:
    """Move a session into the archive, or out of it. Raises Conflict if it is there already."""
    if chats.is_archived(path) == to_archive:
        return
    directory, name = os.path.split(path)
    target = chats.archive_of(directory) if to_archive else os.path.dirname(directory)
    os.makedirs(target, exist_ok=True)
    new_path = os.path.join(target, name)
    if os.path.lexists(new_path):
        raise Conflict(f"{new_path} exists already; delete one of the two files")
    os.rename(path, new_path)
    stem = name.removesuffix(".jsonl")
    for suffix in _SIDECARS:
        sidecar = os.path.join(directory, stem + suffix)
        if os.path.lexists(sidecar):
            os.replace(sidecar, os.path.join(target, stem + suffix))


def files_of(path: str) -> list[str]:
    """Return the files and directories of a session: its subagents, sidecars, and itself."""
    project, id = chats.project_of(path), os.path.basename(path).removesuffix(".jsonl")
    active = os.path.join(project, "chats")
    paths = [os.path.join(project, "subagents", id)]
    for directory in (active, chats.archive_of(active)):
        paths += [os.path.join(directory, id + suffix) for suffix in (*_SIDECARS, ".jsonl")]
    return [*(other for other in paths if other != path and os.path.lexists(other)), path]


def delete(path: str, settings: str) -> None:
    """Delete a session with its subagents, its archived copy and its backups of files."""
    id = os.path.basename(path).removesuffix(".jsonl")
    paths = files_of(path)
    # Without its transcript it is no session, whatever is left of it.
    for part in (*reversed(paths), os.path.join(settings, "file-history", id)):
        if os.path.isdir(part) and not os.path.islink(part):
            shutil.rmtree(part)
        else:
            with suppress(FileNotFoundError):
                os.unlink(part)


def fork(
    path: str, new_id: str, *, last_seq: int | None, cwd: str | None, title: str | None
) -> None:
    """Write a session with the conversation of another one, up to an event."""
    lines = [line for line in files.Records(path) if last_seq is None or line.seq() <= last_seq]
    copies = list(_copies(lines, new_id, cwd, with_title=title is None))
    if not copies:
        raise NotFound(f"{path} has no messages up to event {last_seq}")
    last = next((copy for copy in reversed(copies) if copy.get("type") != "system"), copies[-1])
    last["timestamp"] = clock.to_rfc3339(clock.now())  # lists show the fork as new
    if title is not None:
        first = {**copies[0], "sessionId": new_id}
        copies.append(_title_record(first, copies[-1], title))
    project = chats.project_of(path)
    if cwd is not None:
        project = os.path.join(os.path.dirname(project), _NOT_ALPHANUMERIC.sub("-", cwd))
    directory = os.path.join(project, "chats")
    os.makedirs(directory, exist_ok=True)
    safe_io.write_file(
        os.path.join(directory, f"{new_id}.jsonl"), (_encode(record) for record in copies)
    )


def _copies(
    lines: list[Record], new_id: str, cwd: str | None, *, with_title: bool
) -> Iterator[dict[str, Any]]:
    """Return the records of the active branch, each with the one before as its parent."""
    parents: dict[str, str] = {}
    leaf = ""
    for _, record in lines:
        if is_on_chain(record):
            leaf = record["uuid"]
            parents.setdefault(leaf, bodies.text(record.get("parentUuid")))
    chain, _ = chain_of(parents, leaf)
    parent: str | None = None
    for _, record in lines:
        subtype = record.get("subtype")
        is_left_out = subtype in _OF_PARENT or (subtype == "custom_title" and not with_title)
        if not is_on_chain(record) or record["uuid"] not in chain or is_left_out:
            continue
        origin = {"sessionId": record.get("sessionId"), "messageUuid": record["uuid"]}
        own = {"sessionId": new_id, "parentUuid": parent, "forkedFrom": origin}
        yield {**record, **own, "cwd": cwd or record.get("cwd")}
        parent = record["uuid"]


def _encode(record: dict[str, Any]) -> bytes:
    # Qwen finds titles by their bytes, so there must be no white space.
    return msgspec.json.encode(record) + b"\n"
