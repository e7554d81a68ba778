"""Name directories the way people name their projects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from segue.model.session import is_session_directory


def unique_names(directories: Sequence[str]) -> dict[str, str]:
    """Return for each directory the shortest end of its path that no other directory has."""
    unnamed = {path: path.replace("\\", "/").strip("/").split("/") for path in directories}
    names: dict[str, str] = {}
    for size in range(1, max(map(len, unnamed.values()), default=0) + 1):
        ends = {path: "/".join(parts[-size:]) for path, parts in unnamed.items()}
        frequency = Counter(ends.values())
        names |= {path: end or path for path, end in ends.items() if frequency[end] == 1}
        unnamed = {path: parts for path, parts in unnamed.items() if path not in names}
    return names | {path: path for path in unnamed}


def is_project(directory: str) -> bool:
    """Return True if a person chose the directory, False for a session directory."""
    return not is_session_directory(directory)


def project_name(directory: str) -> str:
    """Return the last part of a directory's path."""
    if not is_project(directory):
        return "no project"
    return directory.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1] or directory
