"""The files that a watch of Claude Code's sessions observes."""

from __future__ import annotations

import os
from collections.abc import Iterable

from segue.sources.claude.format import processes
from segue.sources.claude.format.paths import ClaudeHome


class ClaudeFiles:
    """The transcripts of a home, its trash and the files of its processes."""

    label = "Claude Code"

    def __init__(self, home: ClaudeHome) -> None:
        self._home = home
        self._process_files = processes.process_files_directory(home)

    def directories(self) -> list[str]:
        if not os.path.isdir(self._home.projects):
            return []
        watched = (self._home.projects, self._home.trash, self._process_files)
        return [path for path in watched if os.path.isdir(path)]

    def is_recursive(self) -> bool:
        return True

    def changed_keys(self, paths: Iterable[str]) -> list[str] | None:
        transcripts = set()
        for path in paths:
            if os.path.dirname(path) == self._process_files:
                continue
            parts = os.path.relpath(path, self._home.projects).split(os.sep)
            if parts[0] == os.pardir or len(parts) < 2:
                return None  # the trash, or a whole project
            name = parts[1] if parts[1].endswith(".jsonl") else f"{parts[1]}.jsonl"
            transcripts.add(os.path.join(self._home.projects, parts[0], name))
        return sorted(transcripts)
