"""Find every path at which a private directory is visible, and leave it out of readable paths.

A private directory may be below a directory that programs may read, or be mounted a second time
there. Landlock can only allow whole directories. So a readable directory that contains a private
one is replaced by its other entries.
"""

from __future__ import annotations

import os


def is_below(path: str, directory: str) -> bool:
    """Return True if a normalised absolute path is a directory or below it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def visible_paths(directories: list[str]) -> list[str]:
    """Return all real paths at which directories, or parts of them, are mounted.

    Raises OSError if the mounts of this process cannot be read.
    """
    mounts = _read_mounts()
    paths: dict[str, None] = {}
    for directory in directories:
        real = os.path.realpath(directory)
        paths[real] = None
        device, root, point = max(
            (mount for mount in mounts if is_below(real, mount[2])), key=lambda mount: len(mount[2])
        )
        inner = _join(root, os.path.relpath(real, point))  # the path in the file system itself
        for other_device, other_root, other_point in mounts:
            if other_device != device:
                continue
            if is_below(inner, other_root):
                paths[_join(other_point, os.path.relpath(inner, other_root))] = None
            elif is_below(other_root, inner):
                paths[other_point] = None
    return list(paths)


def without_private(path: str, private: list[str]) -> list[str]:
    """Return paths that together contain everything below `path` except `private` directories."""
    path = os.path.realpath(path)
    if not any(is_below(directory, path) for directory in private):
        return [] if any(is_below(path, directory) for directory in private) else [path]
    if path in private:
        return []
    entries: list[str] = []
    for name in sorted(os.listdir(path)):
        entry = os.path.join(path, name)
        if not os.path.islink(entry):  # its target may be anywhere
            entries += without_private(entry, private)
    return entries


def _read_mounts() -> list[tuple[str, str, str]]:
    """Return (device, root in the file system, mount point) of each mount, the newest first."""
    mounts = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields = line.split(" ")
            mounts.append((fields[2], _unescape(fields[3]), _unescape(fields[4])))
    return mounts[::-1]


def _unescape(text: str) -> str:
    for code, character in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
        text = text.replace(f"\\{code}", character)
    return text


def _join(directory: str, relative: str) -> str:
    return os.path.normpath(os.path.join(directory, relative))
