"""Files under a session's directories, and no others.

A path is first resolved as anybody would resolve it, links and all, and must then lie under one of
the roots. It is opened by walking down from that root, one directory descriptor at a time, and
following no link on the way: whoever swaps a directory for a link meanwhile is refused, not obeyed.
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

_DOWN = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# How the names of files begin that are being written.
TEMP_PREFIX = ".segue-"

T = TypeVar("T")


class ToolError(Exception):
    """Why a tool could not do it, in words for the model."""


class ResolvedPath(NamedTuple):
    """A resolved path: its root, and the names from there."""

    root: str
    names: tuple[str, ...]

    @property
    def path(self) -> str:
        return os.path.join(self.root, *self.names)


class PathGuard:
    """The directories that a session may work in, the first being where relative paths begin.

    `strict` is for whoever is not the local user: a file with further names is refused, as one of
    them may lie outside. `mounts` are absolute paths that mean places in the first directory.
    """

    def __init__(
        self, directories: Sequence[str], *, strict: bool = True, mounts: Sequence[str] = ()
    ) -> None:
        self.directories = tuple(directories)
        self.mounts = tuple(mounts)
        self.cwd = directories[0]
        self.strict = strict
        self.real_directories = tuple(dict.fromkeys(os.path.realpath(each) for each in directories))

    def resolve(self, path: str) -> ResolvedPath:
        """Where a path leads, if that is inside."""
        if not path or "\0" in path:
            raise ToolError("a path is needed")
        if path.startswith("~"):
            raise ToolError(f"{path}: give an absolute path, or one relative to {self.cwd}")
        try:
            place = self._inside(os.path.join(self.cwd, path))
            if place is None and is_below(path, self.mounts):
                place = self._inside(os.path.join(self.cwd, path.lstrip(os.sep)))
        except (OSError, ValueError) as error:
            raise ToolError(f"{path}: {error}") from None
        if place is None:
            raise ToolError(f"{path} is outside of the session's directories")
        return place

    def _inside(self, path: str) -> ResolvedPath | None:
        real = os.path.realpath(path)
        for root in self.real_directories:
            if real == root:
                return ResolvedPath(root, ())
            if real.startswith(root.rstrip(os.sep) + os.sep):
                return ResolvedPath(root, tuple(os.path.relpath(real, root).split(os.sep)))
        return None

    @contextmanager
    def open_directory(self, place: ResolvedPath, *, create: bool = False) -> Iterator[int]:
        """A descriptor of a directory, reached without following any link."""
        handle = _checked(place.root, lambda: os.open(place.root, _DOWN))
        try:
            for name in place.names:
                below = _checked(place.path, partial(_down, name, handle, create))
                os.close(handle)
                handle = below
            yield handle
        finally:
            os.close(handle)

    def read_file(self, path: str, limit: int) -> tuple[ResolvedPath, bytes, os.stat_result]:
        """Up to `limit` bytes of a regular file."""
        place = self.resolve(path)
        if not place.names:
            raise ToolError(f"{path} is a directory")
        with self.open_directory(ResolvedPath(place.root, place.names[:-1])) as above:
            data, status = self._read_at(above, place, limit)
        return place, data, status

    def replace_file(
        self, path: str, data: bytes, *, create: bool = True, mode: int | None = None
    ) -> ResolvedPath:
        """Write a file by way of a new one beside it, so that it is never half there.

        It has the mode of the one that it replaces, unless another is given.
        """
        place = self.resolve(path)
        if not place.names:
            raise ToolError(f"{path} is a directory")
        name = place.names[-1]
        with self.open_directory(
            ResolvedPath(place.root, place.names[:-1]), create=create
        ) as above:
            with suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=above, follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):
                    raise ToolError(f"{place.path} is not a regular file")
                mode = stat.S_IMODE(status.st_mode) if mode is None else mode
            _checked(place.path, lambda: _swap(above, name, data, mode))
        return place

    def _read_at(self, above: int, place: ResolvedPath, limit: int) -> tuple[bytes, os.stat_result]:
        handle = _checked(place.path, lambda: os.open(place.names[-1], _READ, dir_fd=above))
        with open(handle, "rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISDIR(status.st_mode):
                raise ToolError(f"{place.path} is a directory")
            if not stat.S_ISREG(status.st_mode):
                raise ToolError(f"{place.path} is not a regular file")
            if self.strict and status.st_nlink > 1:
                raise ToolError(f"{place.path} has a second name, which may be outside")
            return file.read(limit), status


def is_below(path: str, mounts: Sequence[str]) -> bool:
    """Whether an absolute path is one of these, or below one."""
    path = os.path.normpath(path)
    return any(path == each or path.startswith(f"{each}{os.sep}") for each in mounts)


def _down(name: str, above: int, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=above)
    return os.open(name, _DOWN, dir_fd=above)


def _swap(above: int, name: str, data: bytes, mode: int | None) -> None:
    beside = f"{TEMP_PREFIX}{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(beside, flags, 0o666, dir_fd=above)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
        os.replace(beside, name, src_dir_fd=above, dst_dir_fd=above)
    except BaseException:
        os.unlink(beside, dir_fd=above)
        raise


def _checked(path: str, act: Callable[[], T]) -> T:
    """What an operation gives; what it meets instead, in words."""
    try:
        return act()
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise ToolError(f"{path} is not where it was: something on the way changed") from None
        if isinstance(error, FileNotFoundError):
            raise ToolError(f"{path} does not exist") from None
        raise ToolError(f"{path}: {error.strerror or error}") from None
