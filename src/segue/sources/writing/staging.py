"""Write the files of a session so that the tool sees all of it or nothing."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress

from segue.model.errors import Conflict, StoreError

from .port import NewFile


def write_files(files: Sequence[NewFile]) -> None:
    """Create files, each at once; the last one should be that which makes the session visible.

    If one fails, those before it are removed. Raises Conflict instead of replacing a file.
    """
    written: list[str] = []
    try:
        for file in files:
            _create(file)
            written.append(file.path)
    except BaseException as error:
        for path in written:
            with suppress(OSError):
                os.unlink(path)
        if isinstance(error, FileExistsError):
            raise Conflict(f"the file {error.filename} exists") from None
        if isinstance(error, OSError):
            raise StoreError(f"the session cannot be written: {error}") from error
        raise


def _create(file: NewFile) -> None:
    directory = os.path.dirname(file.path)
    os.makedirs(directory, 0o700, exist_ok=True)
    # Tools and segue ignore a file of this name.
    descriptor, staged = tempfile.mkstemp(prefix=".segue-", suffix=".part", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as staged_file:
            staged_file.write(file.data)
            staged_file.flush()
            os.fsync(staged_file.fileno())
        _rename_to_new(staged, file.path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(staged)


def _rename_to_new(staged: str, path: str) -> None:
    """Rename a file. Raises FileExistsError if another file has the new name."""
    try:
        os.link(staged, path)  # unlike a rename, it does not replace a file
    except OSError:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "the file exists", path) from None
        os.rename(staged, path)  # not every file system has links
