"""Rename and delete sessions in the way that Gemini itself does it."""

from __future__ import annotations

import os
import shutil

import msgspec

from segue.model.errors import NotPermitted
from segue.sources import safe_io
from segue.sources.kit import files

from . import chats


def rename(path: str, title: str | None) -> None:
    """Write the summary of a session, which Gemini shows as its title."""
    if path.endswith(".json"):
        _replace(path, {**chats.read_object(path), "summary": title or ""})
    else:
        record = {"$set": {"summary": title or ""}}
        files.append_line(path, msgspec.json.encode(record) + b"\n")


def _replace(path: str, session: dict[str, object]) -> None:
    """Replace a session that is one object, at once and with the same permissions."""
    data = msgspec.json.format(msgspec.json.encode(session), indent=2)
    temporary = f"{path}.segue-{os.getpid()}"
    safe_io.write_file(temporary, [data], os.stat(path).st_mode & 0o777)
    os.replace(temporary, path)


def delete(home: str, id: str) -> None:
    """Delete all files of a session, of its subagents, and the outputs of their tools."""
    if not id or os.sep in id or id in (os.curdir, os.pardir):
        raise NotPermitted(f"{id!r} is not the id of a session of Gemini CLI")
    for path in chats.files_of(home, id):
        _delete_agents(chats.project_of(path), id, set())
        os.unlink(path)


def _delete_agents(project: str, id: str, deleted: set[str]) -> None:
    """Delete what belongs to a session besides its file."""
    if id in deleted:
        return
    deleted.add(id)
    agents = os.path.join(project, "chats", id)
    for entry in safe_io.list_directory(agents):
        _delete_agents(project, entry.name.removesuffix(".jsonl"), deleted)
    outputs = os.path.join(project, "tool-outputs", f"session-{id}")
    for directory in (agents, outputs):
        if os.path.isdir(directory) and not os.path.islink(directory):
            shutil.rmtree(directory)
