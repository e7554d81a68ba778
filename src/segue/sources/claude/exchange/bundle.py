"""Read a session with all its transcripts from Claude Code's files, and write it to them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from segue.model import codec
from segue.sources import safe_io
from segue.sources.claude.events import subagent_threads
from segue.sources.claude.events.transcript_reader import active_offsets
from segue.sources.claude.format import sidecar, subagents
from segue.sources.claude.format.jsonl import Entry
from segue.sources.claude.format.paths import ClaudeHome, is_uuid, project_key

from .transcript_line import (
    SUBAGENT_METADATA,
    TranscriptLine,
    is_subagent_metadata,
    parse_line,
)

_IDENTIFYING_FIELDS = {"sessionId", "uuid", "leafUuid"}  # an entry has one of them


class TranscriptLines:
    """The lines of a transcript file, which can be iterated several times.

    Each iteration gives the same lines: bytes appended later are left out, and a file that was
    replaced or truncated raises UnreadableFile. The metadata of a subagent is the last line.
    """

    def __init__(
        self, path: str, metadata: Entry | None = None, *, mark_inactive: bool = False
    ) -> None:
        """Open a transcript. `mark_inactive` marks the lines that are not on the active branch."""
        self.path = path
        self.metadata = metadata
        with safe_io.open_for_reading(path) as (descriptor, status):
            self.inode, self.size = status.st_ino, status.st_size
            self.mtime_ns = status.st_mtime_ns
            self._active_offsets = set(active_offsets(descriptor)) if mark_inactive else None

    def __iter__(self) -> Iterator[TranscriptLine]:
        with safe_io.open_for_reading(self.path) as (descriptor, status):
            if status.st_ino != self.inode:
                raise safe_io.UnreadableFile(self.path)
            for offset, _, data in safe_io.read_lines(descriptor, max_bytes=None):
                if offset >= self.size:
                    break
                if (data := data[: self.size - offset]).strip():
                    line = parse_line(data)
                    yield line._replace(inactive=self._is_inactive(offset, line))
            if os.fstat(descriptor).st_size < self.size:
                raise safe_io.UnreadableFile(self.path)
        if self.metadata:
            yield metadata_line(self.metadata)

    def _is_inactive(self, offset: int, line: TranscriptLine) -> bool:
        if self._active_offsets is None or offset in self._active_offsets:
            return False
        return any("uuid" in entry for entry in line.entries)


def metadata_line(metadata: Entry) -> TranscriptLine:
    """Return the line that stands for a subagent's .meta.json file."""
    return TranscriptLine(({**metadata, "type": SUBAGENT_METADATA},))


class SessionBundle(NamedTuple):
    """A session as Claude Code keeps it: its project, its id there and its transcripts.

    The transcripts of subagents are keyed by their path below the session's directory. All lines
    can be iterated several times.
    """

    project: str
    native_id: str
    lines: Iterable[TranscriptLine]
    subagents: Mapping[str, Iterable[TranscriptLine]]
    archived: bool = False

    def transcripts(self) -> dict[str, Iterable[TranscriptLine]]:
        """Return all transcripts by path; the path of the session's own is empty."""
        return {"": self.lines, **self.subagents}


def read_bundle(path: str) -> SessionBundle:
    """Read the session of a transcript file.

    Raises UnreadableFile, and ValueError if the file is not a transcript.
    """
    lines = TranscriptLines(path, mark_inactive=True)
    if not any(_is_entry(entry) for line in lines for entry in line.entries):
        raise ValueError("the file is neither a segue export nor a Claude Code transcript")
    project_directory, native_id = os.path.split(sidecar.sidecar_directory(os.path.abspath(path)))
    parent, project = os.path.split(project_directory)
    if not is_uuid(native_id):
        native_id = _first_field(lines, "sessionId", is_uuid)
        if native_id is None:
            raise ValueError("neither the file's name nor its lines contain a session id")
    if os.path.basename(parent) != "projects":  # a copy outside of Claude Code's directories
        cwd = _first_field(lines, "cwd", lambda cwd: isinstance(cwd, str) and cwd != "")
        project = project_key("/" if cwd is None else cwd)
    return SessionBundle(
        project,
        native_id,
        lines,
        _read_subagents(path, _started_subagents(path, lines)),
        bool(sidecar.is_archived(path)),
    )


def _first_field(
    lines: Iterable[TranscriptLine], name: str, is_valid: Callable[[Any], bool]
) -> Any:
    entries = (entry for line in lines for entry in line.entries)
    return next((entry[name] for entry in entries if is_valid(entry.get(name))), None)


def _read_subagents(path: str, started: Iterable[str]) -> dict[str, TranscriptLines]:
    transcripts = {}
    for subpath, file in subagent_files(path, started).items():
        try:
            transcripts[subpath] = TranscriptLines(file, subagents.read_metadata(file))
        except safe_io.UnreadableFile:
            continue
    return transcripts


def subagent_files(path: str, started: Iterable[str]) -> dict[str, str]:
    """Return the transcript files of a session's subagents by their path below its directory.

    `started` are the ids of subagents whose transcripts may be next to the session's.
    """
    files = {}
    for id, file in subagent_threads.find_transcripts(path, started).items():
        subpath = subagent_subpath(path, file)
        # Old versions put it next to the session's transcript; new ones look below.
        files[f"subagents/agent-{id}" if subpath.startswith(".") else subpath] = file
    return files


def has_adjacent_subagents(path: str) -> bool:
    """Return whether old versions of Claude Code left subagents' transcripts next to this one."""
    entries = safe_io.list_directory(os.path.dirname(path))
    return any(subagents.AGENT_FILE_NAME.fullmatch(entry.name) for entry in entries)


def _started_subagents(path: str, lines: Iterable[TranscriptLine]) -> list[str]:
    """Return the ids of subagents in tool results, if transcripts may be next to this one."""
    return started_subagents(lines) if has_adjacent_subagents(path) else []


def started_subagents(lines: Iterable[TranscriptLine]) -> list[str]:
    """Return the ids of the subagents that tool results name."""
    entries = (entry for line in lines for entry in line.entries)
    agents = (subagents.parse_agent_id(entry) for entry in entries)
    return list(dict.fromkeys(id for id in agents if id is not None))


def _is_entry(entry: Entry) -> bool:
    return isinstance(entry.get("type"), str) and bool(_IDENTIFYING_FIELDS & entry.keys())


def write_bundle(home: ClaudeHome, bundle: SessionBundle) -> str:
    """Write a session's files into a Claude Code home, and return the transcript's path.

    The session's own transcript is written last. Raises FileExistsError instead of replacing a
    file, and ValueError for a project or session id that is not a plain file name.
    """
    for name in (bundle.project, bundle.native_id):
        if not _is_plain_name(name):
            raise ValueError(f"{name!r} cannot be used as a file name in Claude Code's directory")
    directory = os.path.join(home.projects, home.project_name or bundle.project)
    path = os.path.join(directory, f"{bundle.native_id}.jsonl")
    if os.path.lexists(path):
        raise FileExistsError(
            f"Claude Code already has a transcript of session {bundle.native_id}: {path}"
        )
    os.makedirs(directory, 0o700, exist_ok=True)
    for subpath, lines in bundle.subagents.items():
        file = os.path.join(sidecar.sidecar_directory(path), *subpath.split("/")) + ".jsonl"
        if subagent_subpath(path, file) == subpath and not subpath.startswith("."):
            _write_subagent(file, lines)
    _write(path, (line.data() + b"\n" for line in bundle.lines))
    return path


def _write_subagent(path: str, lines: Iterable[TranscriptLine]) -> None:
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    _write(path, (line.data() + b"\n" for line in lines if not is_subagent_metadata(line)))
    for line in [line for line in lines if is_subagent_metadata(line)][-1:]:
        metadata = {key: value for key, value in line.entries[0].items() if key != "type"}
        _write(subagents.metadata_path(path), [codec.encode(metadata)])


def _is_plain_name(name: object) -> bool:
    """Return whether a name is that of a file in a directory, and not a path."""
    if not isinstance(name, str) or name in ("", ".", ".."):
        return False
    return not any(separator in name for separator in ("/", os.sep, "\0"))


def subagent_subpath(session_path: str, subagent_path: str) -> str:
    """Return the path of a subagent's transcript below its session's directory."""
    directory = sidecar.sidecar_directory(session_path)
    subpath = os.path.relpath(subagent_path, directory).removesuffix(".jsonl")
    return subpath.replace(os.sep, "/")


def _write(path: str, chunks: Iterable[bytes]) -> None:
    """Create a file atomically. A file with the same content may exist."""
    directory, name = os.path.split(path)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{name}-", dir=directory)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        if not _is_same_content(temporary, path):  # from an export that was interrupted
            _rename_to_new(temporary, path)
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)


def _is_same_content(path: str, other_path: str) -> bool:
    """Return whether two files exist and have the same content."""
    try:
        with (
            safe_io.open_for_reading(path) as (file, status),
            safe_io.open_for_reading(other_path) as (other_file, other_status),
        ):
            size, block = status.st_size, safe_io.BLOCK_BYTES
            return size == other_status.st_size and all(
                safe_io.read_at(file, offset, block) == safe_io.read_at(other_file, offset, block)
                for offset in range(0, size, block)
            )
    except safe_io.UnreadableFile:
        return False


def _rename_to_new(temporary: str, path: str) -> None:
    """Rename a file. Raises FileExistsError if another file has the new name."""
    try:
        os.link(temporary, path)  # unlike a rename, it does not replace a file
    except OSError:
        if os.path.lexists(path):
            raise FileExistsError(f"another file exists already: {path}") from None
        os.rename(temporary, path)  # not every file system has links
