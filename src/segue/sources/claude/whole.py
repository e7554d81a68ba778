"""A session with all its transcripts, read from Claude Code's files and written to them."""

from __future__ import annotations

import os
import tempfile
from typing import NamedTuple

from . import files, kept, sidecar, subagents
from .kept import Line
from .layout import Home, is_uuid, project_key

ABOUT = "agent_metadata"  # the type of the entry that stands for the small file beside an agent's

_MARKS = {"sessionId", "uuid", "leafUuid"}  # one of which every line has, or nearly so


class Whole(NamedTuple):
    """What Claude Code calls the session, and the lines of its transcripts, agents' by path."""

    project: str
    session: str
    lines: list[Line]
    agents: dict[str, list[Line]]
    archived: bool = False

    def transcripts(self) -> dict[str, list[Line]]:
        """All of them by path; that of the session's own is empty."""
        return {"": self.lines, **self.agents}


def read(path: str) -> Whole:
    """The session of a transcript. Raises Unreadable, and ValueError for a file of another kind."""
    lines = _lines(path)
    entries = [entry for line in lines for entry in line.entries]
    if not any(isinstance(entry.get("type"), str) and _MARKS & entry.keys() for entry in entries):
        raise ValueError("this is no transcript of Claude Code")
    project, name = os.path.split(sidecar.directory(os.path.abspath(path)))
    above, project = os.path.split(project)
    if not is_uuid(name):
        ids = (entry.get("sessionId") for entry in entries)
        name = next((id for id in ids if isinstance(id, str) and is_uuid(id)), "")
        if not name:
            raise ValueError("neither the file's name nor a line of it says which session it holds")
    if os.path.basename(above) != "projects":  # a copy, from wherever
        cwds = (entry.get("cwd") for entry in entries)
        project = project_key(next((cwd for cwd in cwds if cwd and isinstance(cwd, str)), "/"))
    agents = {}
    for _, agent in subagents.transcripts(path):
        try:
            agents[agent_path(path, agent)] = _agent_lines(agent)
        except files.Unreadable:
            continue
    return Whole(project, name, lines, agents, bool(sidecar.archived(path)))


def write(home: Home, whole: Whole) -> str:
    """Put the session's files into a home, and give the transcript's path.

    Nothing that is there is written over: FileExistsError. The transcript comes last, whole.
    """
    directory = os.path.join(home.projects, home.project_name or whole.project)
    path = os.path.join(directory, f"{whole.session}.jsonl")
    if os.path.lexists(path):
        raise FileExistsError(f"there is a transcript of session {whole.session} already: {path}")
    os.makedirs(directory, 0o700, exist_ok=True)
    for subpath, lines in whole.agents.items():
        agent = os.path.join(sidecar.directory(path), *subpath.split("/")) + ".jsonl"
        if agent_path(path, agent) != subpath or subpath.startswith("."):
            continue  # it would lead elsewhere
        os.makedirs(os.path.dirname(agent), 0o700, exist_ok=True)
        about = [line for line in lines if _is_about(line)]
        _write(agent, b"".join(line.data() + b"\n" for line in lines if not _is_about(line)))
        if about:
            told = {key: value for key, value in about[-1].entries[0].items() if key != "type"}
            _write(agent.removesuffix(".jsonl") + ".meta.json", Line((told,)).data())
    _write(path, b"".join(line.data() + b"\n" for line in whole.lines))
    return path


def agent_path(session: str, agent: str) -> str:
    """What names an agent's transcript below its session's."""
    below = os.path.relpath(agent, sidecar.directory(session)).removesuffix(".jsonl")
    return below.replace(os.sep, "/")


def _lines(path: str) -> list[Line]:
    with files.opened(path) as (descriptor, _):
        found = files.lines(descriptor, longest=None)
        return [kept.line(data) for _, _, data in found if data.strip()]


def _agent_lines(path: str) -> list[Line]:
    lines = _lines(path)
    if about := subagents.about(path):
        lines.append(Line(({**about, "type": ABOUT},)))
    return lines


def _is_about(line: Line) -> bool:
    return len(line.entries) == 1 and line.entries[0].get("type") == ABOUT


def _write(path: str, data: bytes) -> None:
    """A new file, which appears whole or not at all; one that says the same may be there."""
    if files.small(path, len(data)) == data:
        return  # from a try that was cut short
    directory, name = os.path.split(path)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{name}-", dir=directory)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        _name(temporary, path)
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)


def _name(temporary: str, path: str) -> None:
    """Give a file its name, which no other file has."""
    try:
        os.link(temporary, path)  # which, unlike a rename, refuses to replace a file
    except OSError:
        if os.path.lexists(path):
            raise FileExistsError(f"there is another file already: {path}") from None
        os.rename(temporary, path)  # not every file system has links
