"""bubblewrap: run a program in namespaces of its own, with a file system of chosen paths."""

from __future__ import annotations

import os

from .private_paths import is_below, visible_paths

# A user id inside the sandbox for root, so that programs do not try what only root may do.
_UID_IN_SANDBOX = "1000"
# Files of /proc that describe the whole machine and that root, their owner, could read.
_MASKED_FILES = (
    *("kallsyms", "kcore", "keys", "kmsg", "kpagecount", "kpageflags", "kpagecgroup"),
    *("latency_stats", "sched_debug", "slabinfo", "timer_list", "vmallocinfo"),
)
_MASKED_DIRECTORIES = ("acpi", "asound", "fs", "scsi")
# Paths of /proc that root owns and could therefore change even without capabilities.
_READ_ONLY_PATHS = ("bus", "irq", "sys", "sysrq-trigger")


def bind_arguments(
    directories: dict[str, int], *, by_descriptor: bool, read_only: bool = False
) -> list[str]:
    """Return the arguments that make directories visible and, unless `read_only`, writable.

    `directories` has an open descriptor for each path. Without `by_descriptor`, for a bubblewrap
    that cannot use descriptors, bubblewrap resolves the paths again.
    """
    option = "--ro-bind" if read_only else "--bind"
    result = []
    for path, descriptor in sorted(directories.items()):
        source = [f"{option}-fd", str(descriptor)] if by_descriptor else [option, path]
        result += [*source, path]
    return result


def arguments(
    readable: list[tuple[list[str], list[str]]],
    binds: list[str],
    shm: str | None,
    *,
    network: bool,
) -> list[str]:
    """Return the arguments for an isolated program.

    Each entry of `readable` has a list of paths, and a list of the private directories to hide
    below them. `binds` are the arguments for the writable directories. The directory `shm` becomes
    /dev/shm.
    Raises OSError if the mounts of this process cannot be read.
    """
    result = ["--die-with-parent", "--unshare-all", "--cap-drop", "ALL", "--hostname", "sandbox"]
    if network:
        result += ["--share-net"]
    if os.getuid() == 0:
        result += ["--uid", _UID_IN_SANDBOX, "--gid", _UID_IN_SANDBOX]
    result += ["--proc", "/proc"]
    for name in _MASKED_FILES:
        if os.path.exists(f"/proc/{name}"):
            result += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    for name in _MASKED_DIRECTORIES:
        if os.path.isdir(f"/proc/{name}"):
            result += ["--tmpfs", f"/proc/{name}", "--remount-ro", f"/proc/{name}"]
    for name in _READ_ONLY_PATHS:
        result += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    result += ["--dev", "/dev"]
    masked: list[str] = []
    for paths, private in readable:
        # A bind mount hides earlier mounts below it, so parents come before subdirectories.
        for path in sorted(paths):
            result += ["--ro-bind-try", path, path]
        hidden = _directories_below(paths, private)
        for path in hidden:
            result += ["--tmpfs", path]
        masked += hidden
    if shm is not None:
        result += ["--bind", shm, "/dev/shm"]
    result += binds
    for path in (*dict.fromkeys(masked), "/dev", "/"):
        result += ["--remount-ro", path]
    return [*result, "--"]


def arguments_with_all_readable(binds: list[str]) -> list[str]:
    """Return the arguments for a program that may read everything."""
    result = ["--die-with-parent", "--cap-drop", "ALL", "--ro-bind", "/", "/"]
    return [*result, "--dev-bind", "/dev", "/dev", *binds, "--"]


def _directories_below(paths: list[str], private: list[str]) -> list[str]:
    """Return the paths below `paths` at which private directories are visible, parents first."""
    real_paths = [os.path.realpath(path) for path in paths]
    return [
        directory
        for directory in sorted(visible_paths(private))
        if os.path.isdir(directory) and any(is_below(directory, path) for path in real_paths)
    ]
