"""Compare directories by real path, with or without the other worktrees of a repository."""

from __future__ import annotations

import os
import stat

from segue.model.errors import InvalidInput

# Where an agent puts files for people, in a directory that segue made for the session.
OUTPUTS = "mnt/session/outputs"
MAX_GIT_FILE_CHARACTERS = 4096


def real(path: str) -> str:
    """Return the normalised path with its links resolved, whether or not it exists."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # a NUL, or a loop of links
        return os.path.normpath(path)


def absolute(path: str) -> str:
    """Return the path; raises InvalidInput if it is relative."""
    if not os.path.isabs(path):
        raise InvalidInput(f"the working directory must be an absolute path, not {path!r}")
    return path


def directories(cwd: str, *, worktrees: bool) -> tuple[str, ...]:
    """Return the real paths that a filter by `cwd` matches, the path of `cwd` first."""
    own = real(cwd)
    return (own, *(path for path in _worktrees(own) if path != own)) if worktrees else (own,)


def branch(cwd: str) -> str | None:
    """Return the branch that is checked out in a directory, read from the repository's files."""
    git_dir = _git_dir(real(cwd))
    head = None if git_dir is None else _read_git_file(os.path.join(git_dir, "HEAD"))
    if head is None:
        return None
    name = head.removeprefix("ref: refs/heads/")
    return name if name != head else None


def _git_dir(directory: str) -> str | None:
    """Return the git directory of the repository that contains a directory."""
    while True:
        path = os.path.join(directory, ".git")
        if os.path.isfile(path):  # a linked worktree or a submodule: the file names its directory
            content = _read_git_file(path)
            if content is not None:
                path = os.path.join(directory, content.removeprefix("gitdir: "))
        if os.path.isfile(os.path.join(path, "HEAD")):
            return path
        parent = os.path.dirname(directory)
        if parent == directory:
            return None
        directory = parent


def _worktrees(directory: str) -> list[str]:
    """Return the real paths of a repository's worktrees, the main one first.

    They are read from the repository's files. Running git could run a hook or a file system
    monitor that the repository configures.
    """
    git_dir = _git_dir(directory)
    if git_dir is None:
        return []
    common = real(os.path.join(git_dir, _read_git_file(os.path.join(git_dir, "commondir")) or "."))
    worktrees = [real(common.removesuffix("/.git"))]
    linked = os.path.join(common, "worktrees")
    try:
        names = sorted(os.listdir(linked))
    except OSError:
        return worktrees
    for name in names:
        git_file = _read_git_file(os.path.join(linked, name, "gitdir"))
        if git_file is not None:
            path = os.path.join(linked, name, git_file)  # relative with worktree.useRelativePaths
            worktrees.append(real(path.removesuffix("/.git")))
    return worktrees


def _read_git_file(path: str) -> str | None:
    """Return the text of a small file; None if it cannot be read or is not a regular file."""
    try:
        # Opening a FIFO would otherwise wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, encoding="utf-8", errors="surrogateescape") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            return file.read(MAX_GIT_FILE_CHARACTERS).strip()
    except (OSError, ValueError):
        return None
