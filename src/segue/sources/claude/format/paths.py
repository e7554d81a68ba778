"""Locate Claude Code's home, its project directories and the transcripts in them.

A project directory is named after a working directory: every UTF-16 unit other than an ASCII
letter or digit becomes a dash, and a long name is cut. So several working directories may share
one name; the `cwd` in a session's own entries then decides.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from segue.sources import safe_io

SOURCE = "claude"  # the name of this source in the hub
MAX_PROJECT_NAME_LENGTH = 200  # a longer name is cut and gets a hash
_MAX_FILE_NAME_LENGTH = 255
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SESSION_FILE = re.compile(_UUID.pattern + r"\.jsonl")
_NOT_ALPHANUMERIC = re.compile(r"[^a-zA-Z0-9]")
_PROJECT_DIR_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.A)
_WINDOWS_DEVICES = re.compile(r"con|prn|aux|nul|com[0-9]|lpt[0-9]", re.I | re.A)
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class ClaudeHome(msgspec.Struct, frozen=True):
    """A home directory of Claude Code: `~/.claude` unless the environment names another."""

    root: str
    # CLAUDE_CODE_PROJECT_DIR_NAME: one directory name for every project.
    project_name: str | None = None

    @classmethod
    def current(cls, environ: Mapping[str, str] = os.environ) -> ClaudeHome:
        """Return the home that the environment names."""
        root = environ.get("CLAUDE_CONFIG_DIR")
        if not root:
            return cls(os.path.join(os.path.expanduser("~"), ".claude"))
        name = environ.get("CLAUDE_CODE_PROJECT_DIR_NAME", "")
        valid = _PROJECT_DIR_NAME.fullmatch(name) and not _WINDOWS_DEVICES.fullmatch(name)
        return cls(root, name if valid else None)

    @property
    def projects(self) -> str:
        """The directory with one subdirectory per project."""
        return os.path.join(self.root, "projects")

    @property
    def trash(self) -> str:
        """Segue's trash. It is inside the home, so that a move is one rename and copies nothing."""
        return os.path.join(self.root, "segue-trash")


class ProjectDirectory(msgspec.Struct, frozen=True):
    """A project directory, and the working directory for which a caller looked it up."""

    path: str
    cwd: str | None = None
    # False if the name alone does not prove that its sessions ran in `cwd`.
    is_exact: bool = True


class TranscriptFile(NamedTuple):
    """The transcript of a session."""

    id: str
    path: str
    project: ProjectDirectory


def is_uuid(text: object) -> bool:
    """Return whether this is a session id, as it appears in file names."""
    return isinstance(text, str) and _UUID.fullmatch(text) is not None


def session_id_from_file_name(file_name: str) -> str | None:
    """Return the id of the session in a file of this name, or None if it is not a transcript."""
    return file_name[:-6] if _SESSION_FILE.fullmatch(file_name) else None


def resolve_directory(directory: str | os.PathLike[str]) -> str:
    """Return a working directory as Claude Code writes it: absolute, with links resolved."""
    path = os.fspath(directory)
    try:
        path = os.path.realpath(path)
    except (OSError, ValueError):  # a NUL in the path, or a loop of links
        path = os.path.abspath(path.replace("\0", ""))
    # Only macOS file systems return names in either Unicode form.
    return unicodedata.normalize("NFC", path) if sys.platform == "darwin" else path


def hyphenate(path: str) -> str:
    """Return the path with a dash for each UTF-16 unit other than an ASCII letter or digit."""
    return _NOT_ALPHANUMERIC.sub(lambda char: "-" if char[0] <= "\uffff" else "--", path)


def project_key(path: str) -> str:
    """Return the name of the project directory for a resolved working directory."""
    name = hyphenate(path)
    if len(name) <= MAX_PROJECT_NAME_LENGTH:
        return name
    return f"{name[:MAX_PROJECT_NAME_LENGTH]}-{path_hash(path)}"


def path_hash(path: str) -> str:
    """Return the hash that distinguishes cut names: 32 bits over UTF-16 units, in base 36."""
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
    """Return all project directories, linked ones included: users move their data that way."""
    projects = (
        ProjectDirectory(entry.path)
        for entry in safe_io.list_directory(home.projects)
        if safe_io.is_directory(entry)
    )
    return sorted(projects, key=lambda project: project.path)


def projects_for_directory(
    home: ClaudeHome, directory: str, *, include_worktrees: bool = True
) -> list[ProjectDirectory]:
    """Return the project directories of a working directory, its own first, then its worktrees'."""
    main_directory = resolve_directory(directory)
    projects: dict[str, ProjectDirectory] = {}
    if home.project_name is not None:
        path = os.path.join(home.projects, home.project_name)
        projects[path] = ProjectDirectory(path, main_directory)
    worktrees = (
        [tree for tree in _worktrees(main_directory) if tree != main_directory]
        if include_worktrees
        else []
    )
    for cwd in (main_directory, *worktrees):
        for project in _projects_named_after(home, cwd):
            projects.setdefault(project.path, project)
    return list(projects.values())


def _projects_named_after(home: ClaudeHome, cwd: str) -> Iterator[ProjectDirectory]:
    yield ProjectDirectory(os.path.join(home.projects, project_key(cwd)), cwd)
    name = hyphenate(cwd)
    if len(name) <= MAX_PROJECT_NAME_LENGTH:
        return
    if len(name) <= _MAX_FILE_NAME_LENGTH:  # as versions before 2.1 wrote it
        yield ProjectDirectory(os.path.join(home.projects, name), cwd)
    # A name with another program's hash: the sessions' own `cwd` has to confirm it.
    prefix = name[:MAX_PROJECT_NAME_LENGTH] + "-"
    for project in list_projects(home):
        if os.path.basename(project.path).startswith(prefix):
            yield ProjectDirectory(project.path, cwd, is_exact=False)


def belongs_to_project(project: ProjectDirectory, cwd: str | None) -> bool:
    """Return whether a session that ran in `cwd` belongs to the project's working directory.

    Several working directories may share a project directory. A session belongs to another one if
    it says so and that directory still exists. Any other session was moved here.
    """
    if project.cwd is None or cwd == project.cwd:
        return True
    if cwd is None or not project.is_exact:
        return project.is_exact or (cwd is not None and resolve_directory(cwd) == project.cwd)
    same_name = hyphenate(cwd) == hyphenate(project.cwd)
    return not (same_name and os.path.isdir(cwd) and resolve_directory(cwd) != project.cwd)


def _worktrees(directory: str) -> list[str]:
    """Return the worktrees of the repository around a directory; none if it has only one."""
    if not _in_repository(directory):
        return []
    import subprocess

    # Listing sessions must not run a hook or file system monitor of the repository.
    no_hooks = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor="]
    try:
        process = subprocess.run(
            ["git", *no_hooks, "-C", directory, "worktree", "list", "--porcelain"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=5,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    if process.returncode != 0:
        return []
    lines = process.stdout.decode("utf-8", "surrogateescape").split("\n")
    trees = [resolve_directory(line[9:]) for line in lines if line.startswith("worktree ")]
    return trees if len(trees) > 1 else []


def _in_repository(directory: str) -> bool:
    # Starting git takes longer than a whole list, and most directories need no git.
    while not os.path.lexists(os.path.join(directory, ".git")):
        if os.path.isfile(os.path.join(directory, "HEAD")):  # a bare repository
            return True
        parent = os.path.dirname(directory)
        if parent == directory:
            return False
        directory = parent
    return True
