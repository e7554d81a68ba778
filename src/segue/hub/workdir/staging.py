"""Private directories in which segue makes files before it moves them into a session's directory.

They are next to the session's directory, not in it. So a program of the session cannot change a
file or a clone before it is complete.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from segue.agents.tools import file_tree
from segue.model import ids

LEFTOVER_SECONDS = 3600.0  # longer than any clone takes


def staging_path(session_directory: Path) -> Path:
    """Return the directory that holds the staging directories of a session's directory."""
    return session_directory.with_name(f"{session_directory.name}.staging")


@contextmanager
def staging_directory(session_directory: Path) -> Iterator[Path]:
    """Create a staging directory, and delete it at the end of the block."""
    directory = create_staging(session_directory)
    try:
        yield directory
    finally:
        remove_staging(directory)


def create_staging(session_directory: Path) -> Path:
    """Create a staging directory, which only this user can enter, and return its path."""
    directory = staging_path(session_directory) / ids.new_id()
    while True:
        directory.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            directory.mkdir(mode=0o700)
            return directory
        except FileNotFoundError:
            continue  # another task deleted the empty parent


def remove_staging(directory: Path) -> None:
    """Delete a staging directory with its content."""
    remove_directory(directory)
    with suppress(OSError):  # other tasks may still use theirs
        directory.parent.rmdir()


def remove_leftovers(session_directory: Path) -> None:
    """Delete staging directories that a killed process left."""
    with suppress(OSError):
        for directory in staging_path(session_directory).iterdir():
            if time.time() - directory.stat().st_mtime > LEFTOVER_SECONDS:
                remove_staging(directory)


def remove_directory(directory: Path) -> None:
    """Delete a directory with its content, as far as possible."""
    with suppress(OSError):
        parent = os.open(directory.parent, file_tree.DIRECTORY_FLAGS)
        try:
            file_tree.remove_tree(parent, directory.name)
        finally:
            os.close(parent)
