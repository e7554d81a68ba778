"""Directories as lists compare them: by real path, with or without a repository's worktrees."""

from __future__ import annotations

import os
import subprocess

from ..model.errors import InvalidInput

GIT_SECONDS = 5


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


def _worktrees(directory: str) -> list[str]:
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
