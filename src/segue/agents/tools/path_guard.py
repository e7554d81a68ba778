"""Open files in a session's directories, and no others.

A path is first resolved in the usual way, with all symbolic links, and must then be in one of the
directories. The file is opened by walking down from that directory, one file descriptor at a time,
without following links. So a directory that is replaced by a link in between is refused.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple, TypeVar

_DIRECTORY_FLAGS = (
    getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
)
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# The prefix of temporary files, which are renamed when they are complete.
TEMP_PREFIX = ".segue-"

T = TypeVar("T")


class ToolError(Exception):
    """A tool call failed; the message is for the model."""


class ResolvedPath(NamedTuple):
    """A path without symbolic links: one of the directories, and the names below it."""

    root: str
    names: tuple[str, ...]

    @property
    def path(self) -> str:
        return os.path.join(self.root, *self.names)

    @property
    def parent(self) -> ResolvedPath:
        return ResolvedPath(self.root, self.names[:-1])


class PathGuard:
    """The directories that a session may access; relative paths start from the first.

    `strict` is for callers other than the local user: it refuses files with several hard links, as
    one of the links may be outside. `mounts` are absolute paths that stand for paths in the first
    directory.
    """

    def __init__(
        self, directories: Sequence[str], *, strict: bool = True, mounts: Sequence[str] = ()
    ) -> None:
        self.directories = tuple(directories)
        self.mounts = tuple(mounts)
        self.cwd = directories[0]
        self.strict = strict
        self.real_directories = tuple(
            dict.fromkeys(os.path.realpath(directory) for directory in directories)
        )

    def resolve(self, path: str) -> ResolvedPath:
        """Resolve a path. Raises ToolError if it is outside the directories."""
        if not path or "\0" in path:
            raise ToolError("a path is required, without NUL characters")
        if path.startswith("~"):
            raise ToolError(f"{path}: use an absolute path, or one relative to {self.cwd}")
        try:
            resolved = self._resolve_inside(os.path.join(self.cwd, path))
            if resolved is None and is_below(path, self.mounts):
                resolved = self._resolve_inside(os.path.join(self.cwd, path.lstrip(os.sep)))
        except (OSError, ValueError) as error:
            raise ToolError(f"{path}: {error}") from None
        if resolved is None:
            raise ToolError(f"{path} is outside of the session's directories")
        return resolved

    def _resolve_inside(self, path: str) -> ResolvedPath | None:
        real_path = os.path.realpath(path)
        for root in self.real_directories:
            if real_path == root:
                return ResolvedPath(root, ())
            if real_path.startswith(root.rstrip(os.sep) + os.sep):
                return ResolvedPath(root, tuple(os.path.relpath(real_path, root).split(os.sep)))
        return None

    @contextmanager
    def open_directory(self, directory: ResolvedPath, *, create: bool = False) -> Iterator[int]:
        """Open a directory without following links, and yield its file descriptor.

        With `create`, missing directories are created.
        """
        descriptor = _or_tool_error(
            directory.root, lambda: os.open(directory.root, _DIRECTORY_FLAGS)
        )
        try:
            for name in directory.names:
                child = _or_tool_error(
                    directory.path, partial(_open_child, name, descriptor, create=create)
                )
                os.close(descriptor)
                descriptor = child
            yield descriptor
        finally:
            os.close(descriptor)

    def read_file(self, path: str, max_bytes: int) -> tuple[ResolvedPath, bytes, os.stat_result]:
        """Return the resolved path, up to `max_bytes` of the file's content, and its status."""
        file_path = self._resolve_file(path)
        with self.open_directory(file_path.parent) as parent:
            data, status = self._read_at(parent, file_path, max_bytes)
        return file_path, data, status

    def replace_file(
        self, path: str, data: bytes, *, create: bool = True, mode: int | None = None
    ) -> ResolvedPath:
        """Write a file atomically, through a temporary file in the same directory.

        The file keeps its permission bits unless `mode` sets them. With `create`, missing
        directories are created.
        """
        file_path = self._resolve_file(path)
        name = file_path.names[-1]
        with self.open_directory(file_path.parent, create=create) as parent:
            with suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):
                    raise ToolError(f"{file_path.path} is not a regular file")
                mode = stat.S_IMODE(status.st_mode) if mode is None else mode
            _or_tool_error(file_path.path, lambda: _replace_at(parent, name, data, mode))
        return file_path

    def _resolve_file(self, path: str) -> ResolvedPath:
        resolved = self.resolve(path)
        if not resolved.names:
            raise ToolError(f"{path} is a directory")
        return resolved

    def _read_at(
        self, parent: int, file_path: ResolvedPath, max_bytes: int
    ) -> tuple[bytes, os.stat_result]:
        descriptor = _or_tool_error(
            file_path.path, lambda: os.open(file_path.names[-1], _READ_FLAGS, dir_fd=parent)
        )
        with open(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISDIR(status.st_mode):
                raise ToolError(f"{file_path.path} is a directory")
            if not stat.S_ISREG(status.st_mode):
                raise ToolError(f"{file_path.path} is not a regular file")
            if self.strict and status.st_nlink > 1:
                raise ToolError(
                    f"{file_path.path} has a second hard link, which may be outside of the"
                    " session's directories"
                )
            return file.read(max_bytes), status


def is_below(path: str, directories: Sequence[str]) -> bool:
    """Return True if an absolute path is one of the directories or in one of them."""
    path = os.path.normpath(path)
    return any(
        path == directory or path.startswith(f"{directory}{os.sep}") for directory in directories
    )


def _open_child(name: str, parent: int, *, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
    return os.open(name, _DIRECTORY_FLAGS, dir_fd=parent)


def _replace_at(parent: int, name: str, data: bytes, mode: int | None) -> None:
    temp_name = f"{TEMP_PREFIX}{secrets.token_hex(8)}"
    descriptor = os.open(temp_name, _CREATE_FLAGS, 0o666, dir_fd=parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
        os.replace(temp_name, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        os.unlink(temp_name, dir_fd=parent)
        raise


def _or_tool_error(path: str, operation: Callable[[], T]) -> T:
    """Return the result of a file operation. Raises ToolError if it fails."""
    try:
        return operation()
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise ToolError(f"{path} changed while it was opened; try again") from None
        if isinstance(error, FileNotFoundError):
            raise ToolError(f"{path} does not exist") from None
        raise ToolError(f"{path}: {error.strerror or error}") from None
