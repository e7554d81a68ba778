"""Directories, as people call them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

# What a directory that was made for one session ends with: the session's id.
_OWN = re.compile(r"[/\\][0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def distinct(directories: Sequence[str]) -> dict[str, str]:
    """For each directory as much of the end of its path as tells it from the others."""
    left = {each: each.replace("\\", "/").strip("/").split("/") for each in directories}
    names: dict[str, str] = {}
    for size in range(1, max(map(len, left.values()), default=0) + 1):
        ends = {each: "/".join(parts[-size:]) for each, parts in left.items()}
        common = Counter(ends.values())
        names |= {each: end or each for each, end in ends.items() if common[end] == 1}
        left = {each: parts for each, parts in left.items() if each not in names}
    return names | {each: each for each in left}


def is_project(directory: str) -> bool:
    """Whether a session's directory was chosen, and is not one of the session's own."""
    return _OWN.search(directory) is None


def project(directory: str) -> str:
    """The last part of a directory's path: what people call a project."""
    if not is_project(directory):
        return "no project"
    return directory.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1] or directory
