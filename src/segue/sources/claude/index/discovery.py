"""Find the transcripts of a Claude Code home, and compare them with the index."""

from __future__ import annotations

import marshal
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, NamedTuple

from segue.sources import safe_io
from segue.sources.claude.format.paths import ClaudeHome, list_projects, session_id_from_file_name
from segue.sources.index.database import FileKey, Index

_SUBAGENTS_SUFFIX = f"{os.sep}subagents"
_TRASH_DIRECTORY = re.compile(r"(\d{1,17})-([0-9a-fA-F-]{36})")


class IndexDifferences(NamedTuple):
    """The changed files, newest first, and the removed files that the index does not know yet."""

    changed: list[tuple[str, FileKey]]
    removed: list[str]
    all_new: bool  # whether none of the changed files is in the index
    all_files: bool = False  # whether every file of the home was compared
    # Digests of directories whose files are as the index has them, as of change number `change`.
    unchanged: Mapping[str, bytes | None] = MappingProxyType({})
    change: int = 0

    @property
    def size(self) -> int:
        """The bytes to read."""
        return sum(key.size for _, key in self.changed)


def find_differences(index: Index, home: ClaudeHome) -> IndexDifferences:
    """Compare all files with the index.

    The rows of a directory whose digest is as recorded are not read.
    """
    change, known_digests = index.change(), index.directory_digests()
    changed: list[tuple[str, FileKey]] = []
    removed: list[str] = []
    unchanged: dict[str, bytes | None] = {}
    all_new = True
    for snapshot in snapshot_directories(home):
        digest = snapshot.digest()
        if known_digests.pop(snapshot.directory, None) == digest:
            continue
        indexed, current = index.keys(snapshot.directory), snapshot.keys()
        different = [(path, key) for path, key in current.items() if indexed.get(path) != key]
        missing = [path for path in indexed if path not in current]
        if not different and not missing:
            unchanged[snapshot.directory] = digest
        all_new = all_new and not any(path in indexed for path, _ in different)
        changed += different
        removed += missing
    for directory in known_digests:
        missing = list(index.keys(directory))
        if not missing:
            unchanged[directory] = None
        removed += missing
    changed.sort(key=_newest_first)
    return IndexDifferences(changed, removed, all_new, True, unchanged, change)


def find_differences_of(index: Index, paths: Sequence[str]) -> IndexDifferences:
    """Compare some transcripts with the index."""
    changed, removed, all_new = [], [], True
    for path in paths:
        key, indexed = file_key(path), index.key(path)
        all_new = all_new and indexed is None
        # The time of a directory does not change when a subagent's transcript in it grows.
        if key is not None and (key != indexed or key.sidecar_mtime_ns):
            changed.append((path, key))
        elif key is None and indexed is not None:
            removed.append(path)
    changed.sort(key=_newest_first)
    return IndexDifferences(changed, removed, all_new)


def _newest_first(item: tuple[str, FileKey]) -> int:
    return -item[1].mtime_ns


class DirSnapshot(NamedTuple):
    """The status of the files in a directory that are named like transcripts."""

    directory: str
    # Six values per file, in one flat list to save time: name, mode, and the fields of a FileKey.
    fields: list[Any]

    def digest(self) -> bytes:
        """Return a digest of all fields."""
        # Version 2 of the format is the last that gives equal bytes for equal values.
        return blake2b(marshal.dumps(self.fields, 2), digest_size=16).digest()

    def keys(self) -> dict[str, FileKey]:
        """Return the transcripts by path, each with its key."""
        prefix, fields = self.directory + os.sep, iter(self.fields)
        return {
            prefix + name: FileKey(inode, size, mtime_ns, sidecar_mtime_ns)
            for name, mode, inode, size, mtime_ns, sidecar_mtime_ns in zip(
                *[fields] * 6, strict=True
            )
            if stat.S_ISREG(mode) and size and session_of_path(prefix + name)[0]
        }


def snapshot_directories(home: ClaudeHome) -> Iterator[DirSnapshot]:
    """Return a snapshot of every project and every directory of the trash. No file is opened."""
    for project in list_projects(home):
        yield _snapshot_directory(project.path)
    for entry in safe_io.list_directory(home.trash):
        path = trashed_transcript(entry.path)
        if _TRASH_DIRECTORY.fullmatch(entry.name) and (key := file_key(path)):
            yield DirSnapshot(entry.path, [os.path.basename(path), stat.S_IFREG, *key])


def _snapshot_directory(directory: str) -> DirSnapshot:
    # Every list calls this for every file, so each step counts. Resolving the whole path for each
    # file takes longer than all the rest: hence the directory's descriptor.
    fields: list[Any] = []
    stat_file = os.stat
    with safe_io.open_directory(directory) as (descriptor, names):
        transcripts = [name for name in names if name[36:] == ".jsonl"]
        other_names = set(names).difference(transcripts) if len(transcripts) < len(names) else ()
        for name in transcripts:
            try:
                status = stat_file(name, dir_fd=descriptor, follow_symlinks=False)
                sidecar_mtime_ns = (
                    _sidecar_mtime_ns(name[:36], descriptor)
                    if other_names and name[:36] in other_names
                    else 0
                )
            except OSError:
                continue  # removed meanwhile
            fields += (
                name,
                status.st_mode,
                status.st_ino,
                status.st_size,
                status.st_mtime_ns,
                sidecar_mtime_ns,
            )
    return DirSnapshot(directory, fields)


def _sidecar_mtime_ns(id: str, descriptor: int) -> int:
    """Return the newer time of a session's directory and of the subagents' directory in it."""
    mtime_ns = os.stat(id, dir_fd=descriptor, follow_symlinks=False).st_mtime_ns
    with suppress(OSError):  # most sessions have no subagents
        subagents = os.stat(f"{id}{_SUBAGENTS_SUFFIX}", dir_fd=descriptor)
        mtime_ns = max(mtime_ns, subagents.st_mtime_ns)
    return mtime_ns


def file_key(path: str) -> FileKey | None:
    """Return the key of a transcript; None if there is no regular file with content."""
    status = safe_io.nonempty_file_status(path)
    if status is None:
        return None
    sidecar_mtime_ns = 0
    if path.endswith(".jsonl"):
        try:
            directory = path.removesuffix(".jsonl")
            sidecar_mtime_ns = os.lstat(directory).st_mtime_ns
            subagents = os.stat(directory + _SUBAGENTS_SUFFIX)
            sidecar_mtime_ns = max(sidecar_mtime_ns, subagents.st_mtime_ns)
        except OSError:
            pass  # most sessions have no directory
    elif os.path.lexists(os.path.join(os.path.dirname(path), "1")):
        sidecar_mtime_ns = 1  # other files were moved to the trash with it, and do not change
    return FileKey(status.st_ino, status.st_size, status.st_mtime_ns, sidecar_mtime_ns)


def trashed_transcript(directory: str) -> str:
    """Return the path of the transcript in a directory of the trash: it was moved there first."""
    return os.path.join(directory, "0")


def session_of_path(path: str) -> tuple[str, int | None]:
    """Return the session id of a transcript, and when it was moved to the trash."""
    id = session_id_from_file_name(os.path.basename(path))
    if id is not None:
        return id, None
    match = _TRASH_DIRECTORY.fullmatch(os.path.basename(os.path.dirname(path)))
    return (match[2], int(match[1])) if match else ("", None)
