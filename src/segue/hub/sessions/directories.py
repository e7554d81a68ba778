"""Directories as lists compare them: by real path, with or without a repository's worktrees."""

from __future__ import annotations

import os

from segue.model.errors import InvalidInput

GIT_SECONDS = 5

# Where an agent puts what people are to have, in a directory of the session's own.
OUTPUTS = "mnt/session/outputs"


def real(path: str) -> str:
    """The normalised path with its links resolved, whether or not it exists."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # a NUL in it, or a loop of links: then as it is written
        return os.path.normpath(path)


def absolute(path: str) -> str:
    """The path, if it is absolute."""
    if not os.path.isabs(path):
        raise InvalidInput(f"the working directory must be an absolute path, not {path!r}")
    return path


def directories(cwd: str, worktrees: bool) -> tuple[str, ...]:
    """The real paths that a filter by `cwd` matches, its own first."""
    own = real(cwd)
    return (own, *(tree for tree in _worktrees(own) if tree != own)) if worktrees else (own,)


def branch(cwd: str) -> str | None:
    """The branch that is checked out there, read from the repository's own files."""
    directory = real(cwd)
    while True:
        head = _head(os.path.join(directory, ".git"))
        if head is not None:
            name = head.removeprefix("ref: refs/heads/")
            return name if name != head else None
        parent = os.path.dirname(directory)
        if parent == directory:
            return None
        directory = parent


def _head(git: str) -> str | None:
    try:
        if os.path.isfile(git):  # of a worktree: the file says where its own part is
            with open(git, encoding="utf-8") as file:
                place = file.read(4096).strip().removeprefix("gitdir: ")
            git = os.path.join(os.path.dirname(git), place)
        head = os.path.join(git, "HEAD")
        if not os.path.isfile(head):  # nor a pipe, at which this would wait for ever
            return None
        with open(head, encoding="utf-8") as file:
            return file.read(4096).strip()
    except (OSError, ValueError):
        return None


def _worktrees(directory: str) -> list[str]:
    import subprocess  # only where worktrees are asked for: it takes a while to import

    # No hook or monitor of the repository may run because somebody lists sessions.
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=", "-C", directory]
    try:
        found = subprocess.run(
            [*command, "worktree", "list", "--porcelain", "-z"],
            capture_output=True,
            timeout=GIT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return []
    if found.returncode != 0:
        return []
    fields = found.stdout.decode("utf-8", "surrogateescape").split("\0")
    return [real(field[9:]) for field in fields if field.startswith("worktree ")]
