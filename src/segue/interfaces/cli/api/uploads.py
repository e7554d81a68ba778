"""Collect the files of a skill for an upload."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import ApiFailure

_IGNORED_NAMES = frozenset({"__pycache__"})  # names that start with a dot are ignored too


def read_uploads(name: str) -> list[tuple[str, bytes]]:
    """Return the files of a directory, a zip file or a single file, by their paths in the skill.

    A single file is placed in the directory of its relative path, or in its parent's directory.
    Raises ApiFailure if a file cannot be read or may not be uploaded.
    """
    path = Path(name.removeprefix("@")).expanduser()
    try:
        if path.is_dir():
            root = path.resolve()
            if not (relative_paths := _list_files(root)):
                raise ApiFailure(f"{name} has no files to upload; a skill needs a SKILL.md")
            return [
                (f"{root.name}/{relative}", (root / relative).read_bytes())
                for relative in relative_paths
            ]
        data = path.read_bytes()
    except OSError as error:
        raise ApiFailure(f"cannot read {error.filename}: {error.strerror}") from None
    if path.suffix.lower() == ".zip":
        return [(path.name, data)]
    has_directory = not path.is_absolute() and ".." not in path.parts and len(path.parts) > 1
    skill_path = path.as_posix() if has_directory else f"{path.resolve().parent.name}/{path.name}"
    return [(skill_path, data)]


def _list_files(root: Path) -> list[str]:
    """Return the relative paths of all files that are not hidden or ignored, sorted."""
    paths = []
    for parent, directories, names in os.walk(root):
        directories[:] = [name for name in directories if not _is_ignored(name)]
        names = [name for name in names if not _is_ignored(name)]
        for name in (*directories, *names):
            _check_entry(Path(parent, name), root)
        relative_parent = Path(parent).relative_to(root)
        paths += [(relative_parent / name).as_posix() for name in names]
    return sorted(paths)


def _check_entry(path: Path, root: Path) -> None:
    """Raise ApiFailure for a link out of the directory, a linked directory or a device."""
    if path.is_symlink():
        destination = path.resolve()
        if not destination.is_relative_to(root):
            raise ApiFailure(f"{path} is a link out of the skill's directory, to {destination}")
        if destination.is_dir():
            raise ApiFailure(f"{path} is a link to a directory; only links to files are uploaded")
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ApiFailure(f"{path} is neither a file nor a directory")


def _is_ignored(name: str) -> bool:
    return name.startswith(".") or name in _IGNORED_NAMES
