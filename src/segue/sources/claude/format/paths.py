"""Where Claude Code keeps things: its home, the directory of a project, the files of a session.

A project's directory is named after its working directory, every UTF-16 unit that is no ASCII
letter or digit replaced by a dash. So one name may stand for several directories, and a long one
is cut; what a session says of its own `cwd` decides then.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from . import safe_io

SOURCE = "claude"  # what the hub calls it
MAX_PROJECT_NAME_LENGTH = 200  # characters of a project's name before it is cut and gets a hash
_LONGEST_FILE_NAME = 255
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SESSION_FILE = re.compile(_UUID.pattern + r"\.jsonl")
_ODD = re.compile(r"[^a-zA-Z0-9]")
_CHOSEN_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.A)
_DEVICES = re.compile(r"con|prn|aux|nul|com[0-9]|lpt[0-9]", re.I | re.A)
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class ClaudeHome(msgspec.Struct, frozen=True):
    """A Claude Code home, `~/.claude` unless the environment names another."""

    root: str
    # One name for the directory of every project, which the environment may ask for.
    project_name: str | None = None

    @classmethod
    def current(cls, environ: Mapping[str, str] = os.environ) -> ClaudeHome:
        """The home that the environment names now."""
        given = environ.get("CLAUDE_CONFIG_DIR")
        if not given:
            return cls(os.path.join(os.path.expanduser("~"), ".claude"))
        name = environ.get("CLAUDE_CODE_PROJECT_DIR_NAME", "")
        valid = _CHOSEN_NAME.fullmatch(name) and not _DEVICES.fullmatch(name)
        return cls(given, name if valid else None)

    @property
    def projects(self) -> str:
        """The directory that holds one directory a project."""
        return os.path.join(self.root, "projects")

    @property
    def trash(self) -> str:
        """Our trash: in the home, so that moving there is one step, and no file is ever copied."""
        return os.path.join(self.root, "segue-trash")


class ProjectDirectory(msgspec.Struct, frozen=True):
    """One project directory, and the working directory that a caller asked for through it."""

    path: str
    cwd: str | None = None
    # Whether the name alone proves that its sessions ran in `cwd`.
    sure: bool = True


class TranscriptFile(NamedTuple):
    """The transcript of a session."""

    id: str
    path: str
    project: ProjectDirectory


def is_uuid(text: object) -> bool:
    """Whether this is a session's id, as the names of files spell it."""
    return isinstance(text, str) and _UUID.fullmatch(text) is not None


def session_id_from_file_name(file_name: str) -> str | None:
    """The session that a file of this name holds, or None when it holds none."""
    return file_name[:-6] if _SESSION_FILE.fullmatch(file_name) else None


def resolve_directory(directory: str | os.PathLike[str]) -> str:
    """A working directory as Claude Code spells it: absolute, links resolved."""
    path = os.fspath(directory)
    try:
        path = os.path.realpath(path)
    except (OSError, ValueError):  # a NUL in it, or a loop of links: then as it is written
        path = os.path.abspath(path.replace("\0", ""))
    # Only macOS, whose file systems may give either form of a name, is normalised.
    return unicodedata.normalize("NFC", path) if sys.platform == "darwin" else path


def hyphenate(path: str) -> str:
    """The path with a dash for each UTF-16 unit that is not an ASCII letter or digit."""
    return _ODD.sub(lambda odd: "-" if odd[0] <= "\uffff" else "--", path)


def project_key(path: str) -> str:
    """The name of the directory of the project at a (resolved) path."""
    name = hyphenate(path)
    if len(name) <= MAX_PROJECT_NAME_LENGTH:
        return name
    return f"{name[:MAX_PROJECT_NAME_LENGTH]}-{path_hash(path)}"


def path_hash(path: str) -> str:
    """What tells cut names apart: a 32-bit hash over UTF-16 units, in base 36."""
    units = path.encode("utf-16-le", "surrogatepass")
    value = 0
    for low, high in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFF_FFFF
    value = min(value, 0x1_0000_0000 - value)  # the absolute value of a signed number
    digits = ""
    while value:
        value, digit = divmod(value, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


def list_projects(home: ClaudeHome) -> list[ProjectDirectory]:
    """All project directories; a linked one counts, as it may be somebody's way to move data."""
    found = (
        ProjectDirectory(entry.path)
        for entry in safe_io.list_directory(home.projects)
        if _is_dir(entry)
    )
    return sorted(found, key=lambda project: project.path)


def projects_for_directory(
    home: ClaudeHome, directory: str, worktrees: bool = True
) -> list[ProjectDirectory]:
    """The project directories of a working directory, its own first, then of its worktrees."""
    own = resolve_directory(directory)
    found: dict[str, ProjectDirectory] = {}
    if home.project_name is not None:
        chosen = os.path.join(home.projects, home.project_name)
        found[chosen] = ProjectDirectory(chosen, own)
    places = [own, *(tree for tree in _worktrees(own) if tree != own)] if worktrees else [own]
    for place in places:
        for project in _named_after(home, place):
            found.setdefault(project.path, project)
    return list(found.values())


def _named_after(home: ClaudeHome, cwd: str) -> Iterator[ProjectDirectory]:
    yield ProjectDirectory(os.path.join(home.projects, project_key(cwd)), cwd)
    name = hyphenate(cwd)
    if len(name) <= MAX_PROJECT_NAME_LENGTH:
        return
    if len(name) <= _LONGEST_FILE_NAME:  # as programs before 2.1 wrote it
        yield ProjectDirectory(os.path.join(home.projects, name), cwd)
    # Another program's hash: its sessions have to say that they ran there.
    begin = name[:MAX_PROJECT_NAME_LENGTH] + "-"
    for project in list_projects(home):
        if os.path.basename(project.path).startswith(begin):
            yield ProjectDirectory(project.path, cwd, sure=False)


def belongs_to_project(project: ProjectDirectory, cwd: str | None) -> bool:
    """Whether a session of this project directory is one of the working directory asked for.

    Several directories may share the name: a session is another's when it says so and that
    other directory still exists. A session that says something else was moved here.
    """
    if project.cwd is None or cwd == project.cwd:
        return True
    if cwd is None or not project.sure:
        return project.sure or (cwd is not None and resolve_directory(cwd) == project.cwd)
    same_name = hyphenate(cwd) == hyphenate(project.cwd)
    return not (same_name and os.path.isdir(cwd) and resolve_directory(cwd) != project.cwd)


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _worktrees(directory: str) -> list[str]:
    """Every worktree of the repository around a directory; nothing when it is the only one."""
    if not _in_repository(directory):
        return []
    import subprocess

    # No hook or monitor of the repository may run because somebody lists sessions.
    quiet = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor="]
    try:
        done = subprocess.run(
            ["git", *quiet, "-C", directory, "worktree", "list", "--porcelain"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=5,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    if done.returncode != 0:
        return []
    lines = done.stdout.decode("utf-8", "surrogateescape").split("\n")
    trees = [resolve_directory(line[9:]) for line in lines if line.startswith("worktree ")]
    return trees if len(trees) > 1 else []


def _in_repository(directory: str) -> bool:
    # Starting git costs more than a whole list; most of the time a look upwards spares it.
    while not os.path.lexists(os.path.join(directory, ".git")):
        if os.path.isfile(os.path.join(directory, "HEAD")):  # a bare repository
            return True
        above = os.path.dirname(directory)
        if above == directory:
            return False
        directory = above
    return True
