"""The directories for temporary files of a session's programs, outside of its own directory."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from .launch import SandboxError

# HOME and TMPDIR of programs, and what they see as /dev/shm.
_SUBDIRECTORIES = ("home", "shm")


def scratch_parent() -> Path:
    """Return the directory that contains the scratch directories of this user's sessions."""
    return Path(tempfile.gettempdir()) / f"segue-{os.getuid()}"


def make_scratch_directory(session: str) -> Path:
    """Create the scratch directory of a session and return it.

    Programs may write to its subdirectories only. Raises SandboxError if another user could.
    """
    parent = scratch_parent()
    parent.mkdir(mode=0o700, exist_ok=True)
    if parent.is_symlink() or parent.stat().st_uid != os.getuid():
        raise SandboxError(f"{parent} belongs to another user; remove it or set TMPDIR")
    directory = parent / session
    for path in (directory, *(directory / name for name in _SUBDIRECTORIES)):
        path.mkdir(mode=0o700, exist_ok=True)
    return directory.resolve()


def remove_scratch_directory(session: str) -> None:
    """Delete the scratch directory of a session whose programs have ended."""
    directory = scratch_parent() / session
    if directory.resolve().parent != scratch_parent().resolve():
        raise ValueError(f"{session!r} does not name a directory in {scratch_parent()}")
    if not directory.exists():
        return
    # Programs may leave trees that are deeper than Python's recursion limit, and directories
    # without permissions.
    remove = ["rm", "-rf", "--", str(directory)]
    if subprocess.run(remove, capture_output=True, check=False).returncode:
        make_writable = ["chmod", "-R", "u+rwX", "--", str(directory)]
        subprocess.run(make_writable, capture_output=True, check=False)
        subprocess.run(remove, capture_output=True, check=False)
