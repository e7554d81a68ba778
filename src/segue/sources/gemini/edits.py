"""Rename and delete sessions in the way that Gemini itself does it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

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


def files_of(home: str, path: str, id: str) -> list[str]:
    """Return all files of a session, of its subagents, and the outputs of their tools.

    `path` is its main file, which is the last one.
    """
    if not id or os.sep in id or id in (os.curdir, os.pardir):
        raise NotPermitted(f"{id!r} is not the id of a session of Gemini CLI")
    session_files = [*(file for file in chats.files_of(home, id) if file != path), path]
    projects = dict.fromkeys(map(chats.project_of, session_files))
    directories = [part for project in projects for part in _directories(project, id, set())]
    return [*directories, *session_files]


def _directories(project: str, id: str, known: set[str]) -> Iterator[str]:
    """Return the directories that belong to a session besides its file."""
    if id in known:
        return
    known.add(id)
    agents = os.path.join(project, "chats", id)
    for entry in safe_io.list_directory(agents):
        yield from _directories(project, entry.name.removesuffix(".jsonl"), known)
    outputs = os.path.join(project, "tool-outputs", f"session-{id}")
    for directory in (agents, outputs):
        if os.path.isdir(directory) and not os.path.islink(directory):
            yield directory


def delete(home: str, path: str, id: str) -> None:
    """Delete all files of a session, of its subagents, and the outputs of their tools."""
    for part in files_of(home, path, id):
        if os.path.isdir(part):
            shutil.rmtree(part)
        else:
            os.unlink(part)
