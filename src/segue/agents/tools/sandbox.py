"""Programs kept to a few directories, by Landlock or else by bubblewrap, and without sockets by a
system call filter.

This file is also the launcher: `python -I -S confine.py RULES COMMAND…` ties its own process down
and becomes the command, so nothing of it runs in a process that has threads. It needs no privilege
and imports nothing of ours. Rules, as JSON: `wrap` is bubblewrap's program where that
does it; `read` and `write` name directories or files, and everything else is out of reach; `alone`
also takes away sockets, and signals to others.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from typing import Literal

Way = Literal["landlock", "bubblewrap"]

# What programs need of the system. Whatever of it is not there is left out.
SYSTEM = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/opt", "/nix/store"),
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime", "/etc/timezone"),
    *("/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/terminfo", "/etc/mime.types"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/version"),
    *("/dev/zero", "/dev/random", "/dev/urandom"),
)
DEVICES = ("/dev/null", "/dev/full", "/dev/tty")

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on every architecture
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_DEVICE = 1 << 6 | 1 << 11
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
# Signals and abstract sockets can be kept in since this version.
ALONE_SINCE = 6
# (architecture of the filter, socket, io_uring_setup)
_CALLS = {
    "x86_64": (0xC000003E, 41, 425),
    "aarch64": (0xC00000B7, 198, 425),
}


class _Rules(ctypes.Structure):
    _fields_ = (
        ("fs", ctypes.c_uint64),
        ("net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _Step(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("yes", ctypes.c_uint8),
        ("no", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("steps", ctypes.POINTER(_Step)))


@cache
def version() -> int:
    """The version of Landlock that this kernel has; 0 for none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(ctypes.CDLL(None).syscall(_CREATE, None, 0, 1)))


def way(alone: bool) -> Way | None:
    """How programs can be confined here, and to themselves if asked; None if they cannot be."""
    if alone and platform.machine() not in _CALLS:
        return None
    # Before version 3, files could be truncated anywhere.
    if version() >= (ALONE_SINCE if alone else 3):
        return "landlock"
    return "bubblewrap" if wraps() else None


@cache
def wraps() -> bool:
    """Whether bubblewrap is here and may make namespaces, which some systems forbid."""
    program = shutil.which("bwrap")
    if sys.platform != "linux" or program is None:
        return False
    for alone in (True, False):
        tried = [*wrapped(SYSTEM if alone else ("/",), (), alone), "true"]
        try:
            ran = subprocess.run([program, *tried], capture_output=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return False
        if ran.returncode:
            return False
    return True


def confined(
    command: Sequence[str], *, read: Sequence[str], write: Sequence[str], alone: bool
) -> list[str]:
    """The command that runs another one confined, where there is a way."""
    wrap = shutil.which("bwrap") if way(alone) == "bubblewrap" else None
    rules = {"wrap": wrap, "read": [*read], "write": [*write], "alone": alone}
    return [sys.executable, "-I", "-S", __file__, json.dumps(rules), *command]


def wrapped(read: Sequence[str], write: Sequence[str], alone: bool) -> list[str]:
    """What bubblewrap is told: a file system of nothing but this, with no right over it."""
    told = ["--die-with-parent", "--cap-drop", "ALL"]
    told += ["--unshare-all"] if alone else []
    # A directory comes before those below it, which it would hide.
    for path in sorted(read):
        told += ["--ro-bind-try", path, path]
    told += ["--proc", "/proc", "--dev", "/dev"] if alone else ["--dev-bind", "/dev", "/dev"]
    for path in sorted(write):
        told += ["--bind-try", path, path]
    return [*told, "--remount-ro", "/", "--"] if alone else [*told, "--"]


def restrict(read: Sequence[str], write: Sequence[str], alone: bool) -> None:
    """Tie this process down, for good; OSError if that cannot be done."""
    libc = ctypes.CDLL(None, use_errno=True)
    known = version()
    handled = (1 << 13) - 1
    handled |= _REFER if known >= 2 else 0
    handled |= _TRUNCATE if known >= 3 else 0
    handled |= _IOCTL if known >= 5 else 0
    rules = _Rules(fs=handled, net=0, scoped=3 if alone and known >= ALONE_SINCE else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    ruleset = _done(libc, libc.syscall(_CREATE, ctypes.byref(rules), size, 0))
    for paths, allowed in (
        (read, _EXECUTE | _READ_FILE | _READ_DIR),
        (write, handled & ~_MAKE_DEVICE),
    ):
        for path in paths:
            _allow(libc, ruleset, path, allowed & handled)
    _done(libc, libc.prctl(38, 1, 0, 0, 0))  # no new privileges
    _done(libc, libc.syscall(_RESTRICT, ruleset, 0))
    os.close(ruleset)
    if alone:
        steps = _filter()
        wanted = _Filter(length=len(steps), steps=steps)
        _done(libc, libc.prctl(22, 2, ctypes.byref(wanted), 0, 0))


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, allowed: int) -> None:
    try:
        handle = os.open(path, getattr(os, "O_PATH", 0) | os.O_CLOEXEC)
    except OSError:
        return  # not there: nothing to allow
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            allowed &= _OF_FILES
        beneath = _Beneath(allowed=allowed, parent=handle)
        _done(libc, libc.syscall(_ADD, ruleset, 1, ctypes.byref(beneath), 0))
    finally:
        os.close(handle)


def _filter() -> ctypes.Array[_Step]:
    """A program for the kernel that refuses `socket`, and the one other way to make one."""
    machine, *calls = _CALLS[platform.machine()]
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06
    refused, killed, fine = 0x00050000 | 1, 0x80000000, 0x7FFF0000
    steps = [
        (load, 0, 0, 4),
        (equal, 1, 0, machine),
        (answer, 0, 0, killed),  # a call of another architecture has other numbers
        (load, 0, 0, 0),
        (at_least, 0, 1, 0x40000000),
        (answer, 0, 0, refused),
    ]
    for call in calls:
        steps += [(equal, 0, 1, call), (answer, 0, 0, refused)]
    steps.append((answer, 0, 0, fine))
    return (_Step * len(steps))(*(_Step(*step) for step in steps))


def _done(libc: ctypes.CDLL, result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def _handed(alone: bool) -> list[str]:
    """The filter of system calls, which bubblewrap reads from a file."""
    if not alone:
        return []
    file = os.memfd_create("calls", 0)
    os.write(file, bytes(_filter()))
    os.lseek(file, 0, os.SEEK_SET)
    return ["--seccomp", str(file)]


def main() -> None:
    rules, command = json.loads(sys.argv[1]), sys.argv[2:]
    read, write, alone = rules["read"], rules["write"], rules["alone"]
    try:
        if rules["wrap"]:
            command = [rules["wrap"], *_handed(alone), *wrapped(read, write, alone), *command]
        else:
            restrict(read, [*write, *DEVICES], alone)
        os.execvp(command[0], command)
    except OSError as error:
        print(f"segue: {sys.argv[2]} could not be run confined: {error}", file=sys.stderr)
        sys.exit(126)


if __name__ == "__main__":
    main()
