"""Write the files of a session so that the tool sees all of it or nothing."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from segue.model.errors import Conflict, StoreError

from .port import NewFile

# Tools and segue ignore files and directories with these names.
_PREFIX, _SUFFIX = ".segue-", ".part"


def write_files(files: Sequence[NewFile]) -> None:
    """Create files, each at once; the last one should be that which makes the session visible.

    If one fails, those before it are removed. Raises Conflict instead of replacing a file.
    """
    written: list[str] = []
    with _described_errors():
        try:
            for file in files:
                _create(file)
                written.append(file.path)
        except BaseException:
            for path in written:
                with suppress(OSError):
                    os.unlink(path)
            raise


def write_directory(path: str, files: Sequence[NewFile], *, staged_in: str) -> None:
    """Create a directory with files, all at once.

    It is written to `staged_in`, where the tool looks for no sessions, and renamed. Raises Conflict
    if the directory exists.
    """
    with _described_errors():
        os.makedirs(staged_in, 0o700, exist_ok=True)
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        staged = tempfile.mkdtemp(prefix=_PREFIX, suffix=_SUFFIX, dir=staged_in)
        try:
            for file in files:
                staged_path = os.path.join(staged, os.path.relpath(file.path, path))
                os.makedirs(os.path.dirname(staged_path), 0o700, exist_ok=True)
                descriptor = os.open(staged_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                _write(descriptor, file.data)
            _rename_to_new(staged, path)
        finally:
            shutil.rmtree(staged, ignore_errors=True)


@contextmanager
def _described_errors() -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise Conflict(f"{error.filename} exists") from None
    except OSError as error:
        raise StoreError(f"the session cannot be written: {error}") from error


def _create(file: NewFile) -> None:
    directory = os.path.dirname(file.path)
    os.makedirs(directory, 0o700, exist_ok=True)
    descriptor, staged = tempfile.mkstemp(prefix=_PREFIX, suffix=_SUFFIX, dir=directory)
    try:
        _write(descriptor, file.data)
        _rename_to_new(staged, file.path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(staged)


def _write(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _rename_to_new(staged: str, path: str) -> None:
    """Rename a file or a directory. Raises FileExistsError if the new name is taken."""
    try:
        os.link(staged, path)  # unlike a rename, it does not replace a file
    except OSError:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "the file exists", path) from None
        os.rename(staged, path)  # directories have no links, nor has every file system
