"""Open files in a session's directories, and no others.

A path is first resolved in the usual way, with all symbolic links, and must then be in one of the
directories. The file is opened by walking down from that directory, one file descriptor at a time,
without following links. So a directory that is replaced by a link in between is refused.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from . import file_tree


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
    one of the links may be outside, and everything below `private` directories, apart from
    directories of the session in them. `mounts` are absolute paths that stand for paths in the
    first directory. Below `read_only` directories, which are
    given as real paths, nothing is changed.
    """

    def __init__(
        self,
        directories: Sequence[str],
        *,
        strict: bool = True,
        mounts: Sequence[str] = (),
        private: Sequence[str] = (),
        read_only: Sequence[str] = (),
    ) -> None:
        self.directories = tuple(directories)
        self.mounts = tuple(mounts)
        self.cwd = directories[0]
        self.strict = strict
        self.real_directories = _real_directories(directories)
        self.private = tuple(os.path.realpath(path) for path in private) if strict else ()
        self.read_only = tuple(read_only)

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
        except RecursionError:  # Python before 3.13
            raise ToolError(f"{path} has too many symbolic links") from None
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno == errno.ELOOP:
                raise ToolError(f"{path} has too many symbolic links") from None
            raise ToolError(f"{path}: {error}") from None
        if resolved is None or self._is_private(resolved):
            raise ToolError(f"{path} is outside of the session's directories")
        return resolved

    def _is_private(self, resolved: ResolvedPath) -> bool:
        return any(
            is_below(resolved.path, [path]) and not is_below(resolved.root, [path])
            for path in self.private
        )

    def _resolve_inside(self, path: str) -> ResolvedPath | None:
        _check_links(path)
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

        With `create`, missing directories are created. An OSError in the block becomes a ToolError.
        """
        with _tool_errors(directory.path):
            root = os.open(directory.root, file_tree.DIRECTORY_FLAGS)
            try:
                with file_tree.open_directory(root, directory.names, create=create) as descriptor:
                    yield descriptor
            finally:
                os.close(root)

    def is_directory(self, path: str) -> bool:
        """Return True if there is a directory at a path inside the directories."""
        try:
            with self.open_directory(self.resolve(path)):
                return True
        except ToolError:
            return False

    def exists(self, path: str) -> bool:
        """Return True if there is anything at a path, a link included."""
        entry = self._resolve_entry(path)
        try:
            with self.open_directory(entry.parent) as parent:
                os.stat(entry.names[-1], dir_fd=parent, follow_symlinks=False)
                return True
        except ToolError:
            return False

    def open_file(self, path: str) -> BinaryIO:
        """Open a regular file for reading."""
        return self._open_resolved(self._resolve_file(path))

    def read_file(self, path: str, max_bytes: int) -> tuple[ResolvedPath, bytes, os.stat_result]:
        """Return the resolved path, up to `max_bytes` of the file's content, and its status."""
        file_path = self._resolve_file(path)
        with self._open_resolved(file_path) as file, _tool_errors(file_path.path):
            return file_path, file.read(max_bytes), os.fstat(file.fileno())

    def replace_file(self, path: str, data: bytes, *, create: bool = True) -> ResolvedPath:
        """Write a file atomically, through a temporary file in the same directory.

        The file keeps its permission bits. With `create`, missing directories are created.
        """
        file_path = self._resolve_file(path)
        self._check_writable(file_path)
        name = file_path.names[-1]
        mode = None
        with (
            self.open_directory(file_path.parent, create=create) as parent,
            _tool_errors(file_path.path),
        ):
            with suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):
                    raise ToolError(f"{file_path.path} is not a regular file")
                mode = stat.S_IMODE(status.st_mode)
            file_tree.replace_file(parent, name, data, mode)
        return file_path

    def move_in(self, staged: Path, path: str) -> None:
        """Move a file or directory from outside to a path, and create missing directories.

        A file replaces a file or a link. Raises ToolError if something else is at the path.
        """
        entry = self._resolve_entry(path)
        self._check_writable(entry)
        with self.open_directory(entry.parent, create=True) as parent, _tool_errors(entry.path):
            file_tree.move_in(staged, parent, entry.names[-1])

    def remove_file(self, path: str) -> None:
        """Delete a file or a link. Raises ToolError if there is none."""
        entry = self._resolve_entry(path)
        self._check_writable(entry)
        with self.open_directory(entry.parent) as parent, _tool_errors(entry.path):
            os.unlink(entry.names[-1], dir_fd=parent)

    def _check_writable(self, resolved: ResolvedPath) -> None:
        if is_below(resolved.path, self.read_only):
            raise ToolError(f"{resolved.path} is in a read-only memory store")

    def _resolve_file(self, path: str) -> ResolvedPath:
        resolved = self.resolve(path)
        if not resolved.names:
            raise ToolError(f"{path} is a directory")
        return resolved

    def _resolve_entry(self, path: str) -> ResolvedPath:
        """Resolve a path without following a link at its end."""
        parent, name = os.path.split(path)
        if name in ("", os.curdir, os.pardir):
            raise ToolError(f"{path} is a directory")
        resolved = self.resolve(parent or os.curdir)
        return ResolvedPath(resolved.root, (*resolved.names, name))

    def _open_resolved(self, file_path: ResolvedPath) -> BinaryIO:
        with self.open_directory(file_path.parent) as parent, _tool_errors(file_path.path):
            try:
                return file_tree.open_file(
                    parent, file_path.names[-1], allow_hard_links=not self.strict
                )
            except file_tree.UnusableFile as error:
                raise ToolError(f"{file_path.path} {error}") from None


def is_below(path: str, directories: Sequence[str]) -> bool:
    """Return True if an absolute path is one of the directories or in one of them."""
    path = os.path.normpath(path)
    return any(
        path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)
        for directory in directories
    )


def _real_directories(directories: Sequence[str]) -> tuple[str, ...]:
    """Return the real paths of the directories that a session may access.

    A program of the session may have replaced a directory that is inside another one by a link.
    Such a directory is left out if it leads out of the other directories.
    """
    real_paths = {directory: os.path.realpath(directory) for directory in directories}
    outer = [
        directory
        for directory in real_paths
        if not any(
            _leads_through(directory, real_paths[other])
            for other in real_paths
            if real_paths[other] != real_paths[directory]
        )
    ]
    outer_real_paths = [real_paths[directory] for directory in outer]
    return tuple(
        dict.fromkeys(path for path in real_paths.values() if is_below(path, outer_real_paths))
    )


def _check_links(path: str) -> None:
    """Raise OSError if the system follows fewer links than a path has: Linux follows 40."""
    try:
        os.stat(path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise


def _leads_through(directory: str, real_path: str) -> bool:
    """Return True if a directory above `directory` is at `real_path` or in it."""
    parents = Path(os.path.abspath(directory)).parents
    return any(is_below(os.path.realpath(parent), [real_path]) for parent in parents)


@contextmanager
def _tool_errors(path: str) -> Iterator[None]:
    """Raise ToolError if a file operation in the block fails."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise ToolError(f"{path} changed while it was opened; try again") from None
        if isinstance(error, FileNotFoundError):
            raise ToolError(f"{path} does not exist") from None
        raise ToolError(f"{path}: {error.strerror or error}") from None
