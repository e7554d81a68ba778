"""Drop the capabilities of this process, and limit the resources that it can use."""

from __future__ import annotations

import ctypes
import os
import resource

from .system_calls import (
    PR_CAP_AMBIENT,
    PR_CAP_AMBIENT_CLEAR_ALL,
    PR_CAPBSET_DROP,
    PR_SET_SECUREBITS,
    call,
    prctl,
)

# linux/capability.h
_LINUX_CAPABILITY_VERSION_3 = 0x20080522
# linux/securebits.h: root is not special, and no program can change that: NOROOT,
# NO_SETUID_FIXUP, KEEP_CAPS_LOCKED and NO_CAP_AMBIENT_RAISE with their locks.
_SECUREBITS = 0b11101111

MEGABYTE = 1 << 20
# The priority of sandboxed programs, so that the server is scheduled before them.
NICE_LEVEL = 5
_SPARE_PROCESS_FACTOR = 4
# The kernel stops these programs before others when memory runs out.
_OOM_SCORE_ADJUSTMENT = "500"


def drop_capabilities() -> None:
    """Give up all capabilities for good, also those that a program could gain as root."""
    with open("/proc/sys/kernel/cap_last_cap") as file:
        last = int(file.read())
    try:
        prctl(PR_SET_SECUREBITS, _SECUREBITS)
        for capability in range(last + 1):
            prctl(PR_CAPBSET_DROP, capability)
    except PermissionError:
        pass  # without CAP_SETPCAP; then PR_SET_NO_NEW_PRIVS keeps programs from gaining any
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_LINUX_CAPABILITY_VERSION_3, 0)
    no_capabilities = (ctypes.c_uint32 * 6)()
    call("capset", header, no_capabilities)


def limit_resources(limits: dict[str, int], *, in_cgroup: bool) -> None:
    """Apply limits to this process and its children.

    A cgroup limits memory and processes itself.
    """
    values = {
        # With 1, unlike 0, the kernel does not start a program that collects crashes either.
        resource.RLIMIT_CORE: 1,
        resource.RLIMIT_CPU: limits["cpu_seconds"],
        resource.RLIMIT_FSIZE: limits["file_mb"] * MEGABYTE,
        resource.RLIMIT_NOFILE: limits["open_files"],
    }
    if not in_cgroup:
        values[resource.RLIMIT_DATA] = limits["memory_mb"] * MEGABYTE
        if os.getuid() != 0:  # the kernel does not limit root's processes
            # The kernel counts all threads of the user. Other sessions may start some later, and
            # the supervisor enforces the exact number, so this limit only slows a fork bomb down.
            spare = _SPARE_PROCESS_FACTOR * limits["processes"]
            values[resource.RLIMIT_NPROC] = count_user_threads() + spare
    for kind, value in values.items():
        _, hard = resource.getrlimit(kind)
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (limit, limit))


def count_user_threads() -> int:
    """Return the number of threads of this process's user."""
    uid, count = os.getuid(), 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == uid:
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue  # the process has ended, or is hidden
    return count


def lower_priority() -> None:
    """Make the kernel prefer other programs when processor time or memory is short."""
    os.nice(NICE_LEVEL)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(_OOM_SCORE_ADJUSTMENT)
    except OSError:
        pass  # a container may forbid it
