"""The files that a watch of a tool's sessions observes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from .reader import Reader


class ToolFiles:
    """The directories and databases of a reader; `is_session` says which paths are sessions."""

    def __init__(self, reader: Reader, label: str, is_session: Callable[[str], bool]) -> None:
        self.label = label
        self._reader = reader
        self._is_session = is_session

    def directories(self) -> list[str]:
        """Return the directories to watch: those of databases, whose logs take the writes."""
        session_paths = self._reader.session_paths()
        paths = [path if os.path.isdir(path) else os.path.dirname(path) for path in session_paths]
        return [path for path in dict.fromkeys(paths) if os.path.isdir(path)]

    def is_recursive(self) -> bool:
        # A database needs only its directory, which may have large directories of other things.
        return any(os.path.isdir(path) for path in self._reader.session_paths())

    def changed_keys(self, paths: Iterable[str]) -> list[str] | None:
        """Return the sessions whose files changed; None if other files did."""
        # Readers of a database, segue included, change its -shm file.
        changed = [path for path in dict.fromkeys(paths) if not path.endswith("-shm")]
        return changed if all(self._is_session(path) for path in changed) else None
