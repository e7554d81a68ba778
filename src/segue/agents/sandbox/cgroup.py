"""A cgroup for each sandbox, where the system has delegated a part of the hierarchy to segue.

systemd delegates with `Delegate=memory pids` and `DelegateSubgroup=server`; the user manager also
delegates to the services of its user. Then the kernel limits a sandbox as a whole and can end it at
once. segue never creates groups in a part of the hierarchy that it was not given.
"""

from __future__ import annotations

import os

from .privileges import MEGABYTE

_DELEGATION_ATTRIBUTES = ("user.delegate", "trusted.delegate")


def create(limits: dict[str, int] | None) -> str | None:
    """Create a cgroup for a sandbox and return its path; None if no hierarchy is delegated."""
    parent = delegated_parent()
    if parent is None:
        return None
    path = os.path.join(parent, f"segue-{os.getpid()}")
    try:
        os.mkdir(path)
    except OSError:
        return None
    if not os.path.exists(os.path.join(path, "cgroup.kill")):  # before Linux 5.14
        os.rmdir(path)
        return None
    if limits is not None:
        _write_if_exists(path, "memory.max", str(limits["memory_mb"] * MEGABYTE))
        _write_if_exists(path, "memory.swap.max", "0")
        _write_if_exists(path, "pids.max", str(limits["processes"]))
    return path


def enforces_limits(path: str) -> bool:
    """Return True if a cgroup limits both memory and processes."""
    return all(os.path.exists(os.path.join(path, name)) for name in ("memory.max", "pids.max"))


def enter(path: str) -> None:
    """Move this process into a cgroup."""
    with open(os.path.join(path, "cgroup.procs"), "w") as file:
        file.write("0")


def kill(path: str) -> None:
    """Kill every process in a cgroup."""
    with open(os.path.join(path, "cgroup.kill"), "w") as file:
        file.write("1")


def remove(path: str) -> None:
    """Remove a cgroup whose processes have ended."""
    os.rmdir(path)


def delegated_parent() -> str | None:
    """Return the directory in which segue may create cgroups, or None if there is none."""
    own = _own_directory()
    if own is None:
        return None
    parent = os.path.dirname(own)  # with DelegateSubgroup, segue's own group is a leaf of it
    return parent if _is_delegated(parent) and os.access(parent, os.W_OK) else None


def _own_directory() -> str | None:
    try:
        with open("/proc/self/cgroup") as file:
            lines = file.read().splitlines()
        with open("/proc/self/mountinfo") as file:
            mounts = [line.split(" ") for line in file if " - cgroup2 " in line]
    except OSError:
        return None
    path = next((line[3:] for line in lines if line.startswith("0::")), None)
    if path is None or not mounts:
        return None
    root, point = mounts[0][3], mounts[0][4]
    return os.path.normpath(os.path.join(point, os.path.relpath(path, root)))


def _is_delegated(directory: str) -> bool:
    for name in _DELEGATION_ATTRIBUTES:
        try:
            if os.getxattr(directory, name) == b"1":
                return True
        except OSError:
            continue
    # A user manager's groups belong to its user.
    uid = os.getuid()
    try:
        return uid != 0 and os.stat(directory).st_uid == uid
    except OSError:
        return False


def _write_if_exists(path: str, name: str, value: str) -> None:
    file_path = os.path.join(path, name)
    if os.path.exists(file_path):
        with open(file_path, "w") as file:
            file.write(value)
