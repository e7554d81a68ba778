"""Find the working directory of a project, which its sessions do not have, and the reverse.

Newer versions write it to a file in the project's directory. Older ones name that directory by the
SHA-256 hash of the working directory, so its name is compared with the hashes of known paths.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import sha256
from itertools import count

from segue.model.errors import Conflict
from segue.sources import safe_io
from segue.sources.kit import files

from . import chats

_ROOT_FILE = ".project_root"
_SLUG_GAP = re.compile(r"[^a-z0-9]+")
_HASH = re.compile(r"[0-9a-f]{64}")
_QUOTED_PATH = re.compile(rb'(?<!\\)"(/[^"\\\n]{1,4096})"')
_PATH = re.compile(rb"(?<![\w/.])(/[\w.@+-][\w./@+-]{0,4095})")
_MAX_FILES = 100  # of a project that are searched for paths
_MAX_FILE_BYTES = 4 << 20
_MAX_SIBLINGS = 2000


def working_directory(home: str, project: str, project_hash: str) -> str | None:
    """Return the working directory of a project; None if nothing says it.

    `project` is the project's directory, and `project_hash` the hash of the working directory.
    """
    slug = os.path.basename(project)
    for directory in (project, os.path.join(home, "history", slug)):
        path = _root(directory)
        if path is not None:
            return path
    registered = files.read_json(os.path.join(home, "projects.json")).get("projects")
    paths = registered if isinstance(registered, dict) else {}
    for path, name in paths.items():
        if name == slug and os.path.isabs(path):
            return str(path)
    digest = project_hash or slug
    if not _HASH.fullmatch(digest):
        return None
    try:
        changed_at = os.stat(os.path.join(project, "chats")).st_mtime_ns
    except OSError:
        changed_at = 0
    return _directory_of_hash(home, project, digest, changed_at)


def project_directory(home: str, cwd: str) -> str:
    """Return the project's directory of a working directory; a free one if there is none yet."""
    projects = chats.projects_directory(home)
    for entry in safe_io.list_directory(projects):
        if _root(entry.path) == cwd:
            return entry.path
    registered = files.read_json(os.path.join(home, "projects.json")).get("projects")
    slugs = registered if isinstance(registered, dict) else {}
    if isinstance(slug := slugs.get(cwd), str) and os.path.basename(slug) == slug:
        path = os.path.join(projects, slug)
        is_taken = os.path.lexists(os.path.join(path, _ROOT_FILE))  # by another project
        if not is_taken and (os.path.isdir(path) or not os.path.lexists(path)):
            return path
    base = _SLUG_GAP.sub("-", os.path.basename(cwd).lower()).strip("-") or "project"
    for number in count():
        slug = f"{base}-{number}" if number else base
        path = os.path.join(projects, slug)
        if slug not in slugs.values() and not os.path.lexists(path):
            return path
    raise AssertionError  # there is always a free number


def hashed_directory(home: str, cwd: str) -> str:
    """Return the project's directory of a working directory, as versions before 0.29 name it."""
    return os.path.join(chats.projects_directory(home), hash_of(cwd))


def hash_of(path: str) -> str:
    """Return the hash of a working directory, which every session has."""
    return sha256(path.encode("utf-8", "surrogatepass")).hexdigest()


def claim_project(home: str, cwd: str) -> str:
    """Return the project's directory of a working directory; it is created if there is none.

    Gemini finds the directory by a file in it, and adds it to its list of projects.
    """
    while True:
        project = project_directory(home, cwd)
        if _root(project) == cwd:
            return project
        try:
            from segue.sources.writing.port import NewFile  # a list does not need them
            from segue.sources.writing.staging import write_files

            write_files([NewFile(os.path.join(project, _ROOT_FILE), os.fsencode(cwd))])
        except Conflict:  # another process has created it a moment ago
            continue
        return project


def _root(directory: str) -> str | None:
    data = safe_io.read_small_file(os.path.join(directory, _ROOT_FILE)) or b""
    path = os.fsdecode(data.strip())
    return path if os.path.isabs(path) and "\0" not in path else None


@lru_cache(1024)
def _directory_of_hash(home: str, project: str, digest: str, changed_at: int) -> str | None:
    matches = _Matches(digest)
    known = [os.getcwd(), os.path.dirname(home)]
    for name in ("projects.json", "trustedFolders.json"):
        content = files.read_json(os.path.join(home, name))
        content = content.get("projects", content)
        known += [path for path in content if os.path.isabs(path)] if content else []
    match = matches.find(known) or matches.find(_paths_in_files(project))
    if match is not None:
        return match
    for entry in safe_io.list_directory(chats.projects_directory(home)):
        if (path := _root(entry.path)) is not None:
            known.append(path)
        elif _HASH.fullmatch(entry.name) and entry.path != project:
            other = _Matches(entry.name).find(_paths_in_files(entry.path))
            known += [] if other is None else [other]
    return matches.find(known) or matches.find(_siblings(known))


class _Matches:
    """Finds the path with a hash, among paths and the directories that they are in."""

    def __init__(self, digest: str) -> None:
        self._digest = digest
        self._tried: set[str] = set()

    def find(self, paths: Iterable[str]) -> str | None:
        for path in paths:
            while path not in self._tried:
                self._tried.add(path)
                if hash_of(path) == self._digest:
                    return path
                path = os.path.dirname(path)
        return None


def _siblings(paths: Iterable[str]) -> Iterator[str]:
    """Return the directories in some directories, and next to them."""
    directories = [*paths]
    for directory in dict.fromkeys([*directories, *map(os.path.dirname, directories)]):
        for entry in safe_io.list_directory(directory)[:_MAX_SIBLINGS]:
            if safe_io.is_directory(entry):
                yield entry.path


def _paths_in_files(project: str) -> Iterator[str]:
    """Return the absolute paths in the files of a project, such as those of edited files."""
    entries = safe_io.list_directory(os.path.join(project, "chats"))[:_MAX_FILES]
    paths = [entry.path for entry in entries if safe_io.is_regular_file(entry)]
    for path in [*paths, os.path.join(project, "logs.json")]:
        try:
            with safe_io.open_for_reading(path) as (descriptor, _):
                data = safe_io.read_at(descriptor, 0, _MAX_FILE_BYTES)
        except safe_io.UnreadableFile:
            continue
        yield from _decoded(match[1] for match in _QUOTED_PATH.finditer(data))
        yield from _decoded(match[1] for match in _PATH.finditer(data))


def _decoded(paths: Iterable[bytes]) -> Iterator[str]:
    for path in dict.fromkeys(paths):
        yield path.decode("utf-8", "replace").rstrip("/") or "/"
