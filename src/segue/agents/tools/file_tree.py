"""Read and change a directory tree that another program may change at the same time.

Each function starts from the descriptor of an open directory and follows no symbolic link. So a
directory that the other program replaces by a link is refused, not entered.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

# The prefix of temporary files and directories, which are renamed when they are complete.
TEMP_PREFIX = ".segue-"
# A walk keeps one descriptor open per level, and the process has a limited number of them.
MAX_WALK_DEPTH = 32
MAX_WALK_ENTRIES = 10_000
_MAX_REMOVAL_PASSES = 10

DIRECTORY_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A descriptor with O_PATH cannot list its directory.
_LIST_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a FIFO without O_NONBLOCK would wait for a writer.
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class UnusableFile(Exception):
    """A file is special or may be reachable from outside. Messages begin with a verb."""


class TreeFile(NamedTuple):
    """A file of a tree: its path, which begins with a slash, and its directory's descriptor."""

    path: str
    parent: int

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[1]


@contextmanager
def open_directory(top: int, names: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """Open the directory at a path below `top`, and yield its descriptor.

    With `create`, missing directories are created. Raises OSError if the path contains a link or a
    file.
    """
    descriptor = os.dup(top)
    try:
        for name in names:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=descriptor)
            child = os.open(name, DIRECTORY_FLAGS, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = child
        yield descriptor
    finally:
        os.close(descriptor)


def open_file(parent: int, name: str, *, allow_hard_links: bool) -> BinaryIO:
    """Open a regular file for reading.

    Raises UnusableFile if it is not a regular file, or has a second hard link and these are not
    allowed. Raises OSError if it is a symbolic link or cannot be opened.
    """
    descriptor = os.open(name, _READ_FLAGS, dir_fd=parent)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise UnusableFile("is a directory")
        if not stat.S_ISREG(status.st_mode):
            raise UnusableFile("is not a regular file")
        if status.st_nlink > 1 and not allow_hard_links:
            raise UnusableFile(
                "has a second hard link, which may be outside of the session's directories"
            )
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def replace_file(parent: int, name: str, data: bytes, mode: int | None) -> None:
    """Write a file atomically, through a temporary file in the same directory."""
    temp_name = _temp_name()
    descriptor = os.open(temp_name, _CREATE_FLAGS, 0o666, dir_fd=parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
        os.replace(temp_name, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temp_name, dir_fd=parent)
        raise


def walk_files(top: int, skipped: dict[str, str]) -> Iterator[TreeFile]:
    """Yield everything below a directory that is not a directory, links included.

    Adds to `skipped` which paths were left out, and why: directories that cannot be listed or are
    too deep, and the rest of a tree that has too many entries.
    """
    levels = [_Level("", os.dup(top), ["."])]
    entry_count = 0
    try:
        while levels:
            level = levels[-1]
            if not level.unvisited:
                os.close(levels.pop().descriptor)
                continue
            name = level.unvisited.pop()
            path = "" if name == "." else f"{level.path}/{name}"
            if len(levels) > MAX_WALK_DEPTH:
                skipped[printable(path)] = f"it is more than {MAX_WALK_DEPTH} directories deep"
                continue
            try:
                descriptor = os.open(name, _LIST_FLAGS, dir_fd=level.descriptor)
            except FileNotFoundError:  # deleted since its parent was listed
                continue
            except OSError as error:
                skipped[printable(path or "/")] = str(error.strerror)
                continue
            subdirectories: list[str] = []
            levels.append(_Level(path, descriptor, subdirectories))
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    entry_count += 1
                    if entry_count > MAX_WALK_ENTRIES:
                        skipped["/"] = f"only {MAX_WALK_ENTRIES} files and directories are read"
                        return
                    if entry.is_dir(follow_symlinks=False):
                        subdirectories.append(entry.name)
                    else:
                        yield TreeFile(f"{path}/{entry.name}", descriptor)
    finally:
        for level in levels:
            os.close(level.descriptor)


def printable(path: str) -> str:
    """Return a path with escapes in place of bytes that are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


class _Level(NamedTuple):
    """An open directory of a walk, and the names of its subdirectories that are still to come."""

    path: str
    descriptor: int
    unvisited: list[str]


def move_in(staged: Path, parent: int, name: str) -> None:
    """Move a staged file or directory to `name` in an open directory.

    A file replaces a file. Raises OSError if something else is there. A tree on another file system
    is copied.
    """
    try:
        os.rename(staged, name, dst_dir_fd=parent)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    temp_name = _temp_name()
    try:
        _copy_in(staged, parent, temp_name)
        os.rename(temp_name, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(OSError):
            remove_tree(parent, temp_name)
        raise


def _copy_in(staged: Path, parent: int, name: str) -> None:
    if not staged.is_dir():
        _copy_file(staged, parent, name)
        return
    os.mkdir(name, dir_fd=parent)
    with open_directory(parent, (name,)) as top:
        pending: list[tuple[str, ...]] = [()]
        while pending:
            names = pending.pop()
            source = staged.joinpath(*names)
            with open_directory(top, names) as target, os.scandir(source) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        os.symlink(os.readlink(entry.path), entry.name, dir_fd=target)
                    elif entry.is_dir():
                        os.mkdir(entry.name, dir_fd=target)
                        pending.append((*names, entry.name))
                    else:
                        _copy_file(Path(entry.path), target, entry.name)


def _copy_file(source: Path, parent: int, name: str) -> None:
    descriptor = os.open(name, _CREATE_FLAGS, 0o666, dir_fd=parent)
    with open(descriptor, "wb") as target, source.open("rb") as content:
        shutil.copyfileobj(content, target)
        os.fchmod(target.fileno(), os.fstat(content.fileno()).st_mode & 0o777)


def remove_tree(parent: int, name: str) -> None:
    """Delete a directory with everything in it, or a file. Raises OSError if something remains.

    Subdirectories are moved to the top before they are emptied, so that a tree of any depth needs
    two descriptors.
    """
    try:
        top = _open_to_empty(parent, name)
    except NotADirectoryError:
        os.unlink(name, dir_fd=parent)
        return
    try:
        for _ in range(_MAX_REMOVAL_PASSES):  # a program may add files meanwhile
            pending = os.listdir(top)
            while pending:
                pending += _empty_and_remove(top, pending.pop())
            with suppress(OSError):
                os.rmdir(name, dir_fd=parent)
                return
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _empty_and_remove(top: int, name: str) -> list[str]:
    """Delete one entry of `top`. Return the new names of its subdirectories, moved to `top`."""
    moved: list[str] = []
    try:
        directory = _open_to_empty(top, name)
    except NotADirectoryError:
        with suppress(OSError):
            os.unlink(name, dir_fd=top)
        return moved
    except OSError:
        return moved
    try:
        for child in os.listdir(directory):
            with suppress(OSError):
                try:
                    os.close(_open_to_empty(directory, child))  # only then can it be moved
                except NotADirectoryError:
                    os.unlink(child, dir_fd=directory)
                    continue
                new_name = _temp_name()
                os.rename(child, new_name, src_dir_fd=directory, dst_dir_fd=top)
                moved.append(new_name)
    finally:
        os.close(directory)
    with suppress(OSError):
        os.rmdir(name, dir_fd=top)
    return moved


def _open_to_empty(parent: int, name: str) -> int:
    """Open a directory with all rights of its owner. Raises NotADirectoryError if it is none."""
    try:
        descriptor = os.open(name, _LIST_FLAGS, dir_fd=parent)
    except PermissionError:
        _allow_owner(parent, name)
        return os.open(name, _LIST_FLAGS, dir_fd=parent)
    except OSError as error:
        if error.errno == errno.ELOOP:  # macOS says this for a link
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name) from None
        raise
    os.fchmod(descriptor, stat.S_IRWXU)
    return descriptor


def _allow_owner(parent: int, name: str) -> None:
    """Give the owner all rights on a directory that cannot be opened yet."""
    if sys.platform != "linux":
        os.chmod(name, stat.S_IRWXU, dir_fd=parent, follow_symlinks=False)
        return
    descriptor = os.open(name, DIRECTORY_FLAGS, dir_fd=parent)
    try:  # Linux cannot change a mode through an O_PATH descriptor, nor without following links.
        os.chmod(f"/proc/self/fd/{descriptor}", stat.S_IRWXU)
    finally:
        os.close(descriptor)


def _temp_name() -> str:
    return f"{TEMP_PREFIX}{secrets.token_hex(8)}"
