"""A session with all its transcripts, read from Claude Code's files and written to them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from segue.sources.claude.events import subagent_threads
from segue.sources.claude.events.transcript_reader import conversation
from segue.sources.claude.format import safe_io, sidecar, subagents
from segue.sources.claude.format.jsonl import Entry
from segue.sources.claude.format.paths import ClaudeHome, is_uuid, project_key
from segue.sources.claude.index import transcript_summary

from . import transcript_line
from .transcript_line import TranscriptLine

_MARKS = {"sessionId", "uuid", "leafUuid"}  # one of which every line has, or nearly so


class TranscriptFile:
    """The lines of a file, read anew each time; what is added to it meanwhile is left out.

    Unreadable when there is less, or another file: twice the same, or not at all.
    A last one may tell what the small file beside an agent's transcript says.
    """

    def __init__(self, path: str, about: Entry | None = None, *, branches: bool = False) -> None:
        """With `branches`, those lines are marked that are not of the conversation."""
        self._path = path
        self._about = about
        with safe_io.open_for_reading(path) as (descriptor, status):
            self._inode, self._size = status.st_ino, status.st_size
            self._way = set(conversation(descriptor)) if branches else None

    def __iter__(self) -> Iterator[TranscriptLine]:
        with safe_io.open_for_reading(self._path) as (descriptor, status):
            if status.st_ino != self._inode:
                raise safe_io.UnreadableFile(self._path)  # another file took its place
            for offset, _, data in safe_io.read_lines(descriptor, longest=None):
                if offset >= self._size:
                    break
                if (data := data[: self._size - offset]).strip():
                    line = transcript_line.parse_line(data)
                    left = self._way is not None and offset not in self._way
                    yield line._replace(left=left and any("uuid" in each for each in line.entries))
            if os.fstat(descriptor).st_size < self._size:
                raise safe_io.UnreadableFile(self._path)  # nor is it what it was
        if self._about:
            yield TranscriptLine(({**self._about, "type": transcript_line.SUBAGENT_METADATA},))


class SessionBundle(NamedTuple):
    """What Claude Code calls the session, and the lines of its transcripts, agents' by path.

    The lines may be gone through more than once.
    """

    project: str
    native_id: str
    lines: Iterable[TranscriptLine]
    subagents: Mapping[str, Iterable[TranscriptLine]]
    archived: bool = False

    def transcripts(self) -> dict[str, Iterable[TranscriptLine]]:
        """All of them by path; that of the session's own is empty."""
        return {"": self.lines, **self.subagents}


def read_bundle(path: str) -> SessionBundle:
    """The session of a transcript. Raises Unreadable, and ValueError for a file of another kind."""
    lines = TranscriptFile(path, branches=True)

    def first(field: str, is_one: Callable[[Any], bool]) -> Any:
        entries = (entry for line in lines for entry in line.entries)
        return next((entry[field] for entry in entries if is_one(entry.get(field))), None)

    if not any(_is_entry(entry) for line in lines for entry in line.entries):
        raise ValueError("this is neither an export of segue nor a transcript of Claude Code")
    project, name = os.path.split(sidecar.sidecar_directory(os.path.abspath(path)))
    above, project = os.path.split(project)
    if not is_uuid(name):
        name = first("sessionId", lambda id: isinstance(id, str) and is_uuid(id))
        if name is None:
            raise ValueError("neither the file's name nor a line of it says which session it holds")
    if os.path.basename(above) != "projects":  # a copy, from wherever
        cwd = first("cwd", lambda cwd: isinstance(cwd, str) and cwd != "")
        project = project_key("/" if cwd is None else cwd)
    agents = {}
    for id, agent in subagent_threads.transcripts(path, _started(path, lines)).items():
        below = subagent_subpath(path, agent)
        # Old versions kept it beside the session's, new ones look for it below.
        below = f"subagents/agent-{id}" if below.startswith(".") else below
        try:
            agents[below] = TranscriptFile(agent, subagents.read_metadata(agent))
        except safe_io.UnreadableFile:
            continue
    return SessionBundle(project, name, lines, agents, bool(sidecar.is_archived(path)))


def _started(path: str, lines: TranscriptFile) -> dict[str, None]:
    """The agents that results of calls name, where old versions left transcripts beside."""
    names = safe_io.list_directory(os.path.dirname(path))
    if not any(subagents.AGENT_FILE_NAME.fullmatch(each.name) for each in names):
        return {}
    told = (transcript_summary.agent_of(entry) for line in lines for entry in line.entries)
    return dict.fromkeys(id for id in told if id is not None)


def _is_entry(entry: Entry) -> bool:
    return isinstance(entry.get("type"), str) and bool(_MARKS & entry.keys())


def write_bundle(home: ClaudeHome, bundle: SessionBundle) -> str:
    """Put the session's files into a home, and give the transcript's path.

    Nothing that is there is written over: FileExistsError. The transcript comes last, whole.
    ValueError for a name that leads elsewhere.
    """
    for name in (bundle.project, bundle.native_id):
        if not _is_plain(name):
            raise ValueError(f"{name!r} is no name for a file of Claude Code's")
    directory = os.path.join(home.projects, home.project_name or bundle.project)
    path = os.path.join(directory, f"{bundle.native_id}.jsonl")
    if os.path.lexists(path):
        raise FileExistsError(
            f"there is a transcript of session {bundle.native_id} already: {path}"
        )
    os.makedirs(directory, 0o700, exist_ok=True)
    for subpath, lines in bundle.subagents.items():
        agent = os.path.join(sidecar.sidecar_directory(path), *subpath.split("/")) + ".jsonl"
        if subagent_subpath(path, agent) != subpath or subpath.startswith("."):
            continue  # it would lead elsewhere
        os.makedirs(os.path.dirname(agent), 0o700, exist_ok=True)
        _write(
            agent,
            (
                line.data() + b"\n"
                for line in lines
                if not transcript_line.is_subagent_metadata(line)
            ),
        )
        for line in [line for line in lines if transcript_line.is_subagent_metadata(line)][-1:]:
            told = {key: value for key, value in line.entries[0].items() if key != "type"}
            _write(agent.removesuffix(".jsonl") + ".meta.json", [TranscriptLine((told,)).data()])
    _write(path, (line.data() + b"\n" for line in bundle.lines))
    return path


def _is_plain(name: object) -> bool:
    """Whether this names a file in a directory, not one elsewhere."""
    if not isinstance(name, str) or name in ("", ".", ".."):
        return False
    return not any(odd in name for odd in ("/", os.sep, "\0"))


def subagent_subpath(session: str, agent: str) -> str:
    """What names an agent's transcript below its session's."""
    below = os.path.relpath(agent, sidecar.sidecar_directory(session)).removesuffix(".jsonl")
    return below.replace(os.sep, "/")


def _write(path: str, parts: Iterable[bytes]) -> None:
    """A new file, which appears whole or not at all; one that says the same may be there."""
    directory, name = os.path.split(path)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{name}-", dir=directory)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.writelines(parts)
            out.flush()
            os.fsync(out.fileno())
        if not _is_same(temporary, path):  # from a try that was cut short
            _name(temporary, path)
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)


def _is_same(one: str, other: str) -> bool:
    """Whether there is another file that says the same."""
    try:
        with (
            safe_io.open_for_reading(one) as (first, status),
            safe_io.open_for_reading(other) as (second, there),
        ):
            if status.st_size != there.st_size:
                return False
            places = range(0, status.st_size, safe_io.BLOCK_BYTES)
            return all(
                safe_io.read_at(first, at, safe_io.BLOCK_BYTES)
                == safe_io.read_at(second, at, safe_io.BLOCK_BYTES)
                for at in places
            )
    except safe_io.UnreadableFile:
        return False


def _name(temporary: str, path: str) -> None:
    """Give a file its name, which no other file has."""
    try:
        os.link(temporary, path)  # which, unlike a rename, refuses to replace a file
    except OSError:
        if os.path.lexists(path):
            raise FileExistsError(f"there is another file already: {path}") from None
        os.rename(temporary, path)  # not every file system has links
