"""Decide on the sandbox of a program, and return the command that runs the program in it."""

from __future__ import annotations

import asyncio
import marshal
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from . import RULES_VARIABLE, landlock, seccomp
from .private_paths import is_below, visible_paths, without_private

Backend = Literal["landlock", "bubblewrap"]

# The parts of the system that programs need. The sandbox ignores paths that do not exist.
SYSTEM_PATHS = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/opt", "/nix/store"),
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime", "/etc/timezone"),
    *("/etc/os-release", "/etc/debian_version", "/etc/lsb-release", "/etc/redhat-release"),
    *("/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/terminfo", "/etc/mime.types"),
)
# Without a PID namespace and devices of its own, a program can read only these.
_DEVICE_AND_PROC_PATHS = (
    *("/dev/zero", "/dev/random", "/dev/urandom"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/version"),
)
_NETWORK_PATHS = (
    *("/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/services"),
    *("/etc/protocols", "/etc/gai.conf", "/run/systemd/resolve"),
)
# Programs cannot run without these, so no private directory may contain them.
_REQUIRED_PATHS = ("/bin", "/lib", "/usr/bin", "/usr/lib")
_END_SECONDS = 30.0
_PACKAGE_PARENT = str(Path(__file__).parents[3])
_START_SUPERVISOR = (
    "import sys; sys.path.append(sys.argv.pop(1));"
    " from segue.agents.sandbox.supervisor import main; main()"
)


class SandboxError(Exception):
    """This machine cannot run a program in the required sandbox."""


class Limits(NamedTuple):
    """The resources that a sandbox may use. Memory and processes are those of all its programs."""

    cpu_seconds: int = 3600  # of each process
    memory_mb: int = 4096
    file_mb: int = 4096  # the size of each file
    disk_mb: int = 10_240  # of all files in the directories that segue made for the session
    open_files: int = 1024  # of each process
    processes: int = 512  # and threads


class Policy(NamedTuple):
    """What a program may do.

    An `isolated` program reads only the system's programs, `read` and `write`, and signals only
    processes of its sandbox. Others read everything. All write to `write` only. `private`
    directories are invisible to isolated programs, apart from `write` directories inside of
    them. So is the home directory of segue's user, apart from `read` and `write` paths.
    `network` allows connections to Internet addresses, but no other sockets.
    `shm` is a directory that becomes /dev/shm where programs have a mount namespace.
    `read_only` are directories below `write`, which segue has made without write permissions.
    Isolated programs cannot change them or their permissions.
    """

    write: Sequence[str]
    isolated: bool
    read: Sequence[str] = ()
    private: Sequence[str] = ()
    network: bool = False
    shm: str | None = None
    read_only: Sequence[str] = ()
    limits: Limits | None = None


@cache
def landlock_abi() -> int:
    """Return the Landlock version of this kernel, or 0 if it has none."""
    return landlock.abi_version()


def backend(*, isolated: bool) -> Backend | None:
    """Return the sandbox that this machine supports, or None if it supports none.

    Isolated programs get bubblewrap if it works, because its namespaces hide more than Landlock
    denies. Other programs get Landlock if the kernel has it, because it is simpler.
    """
    if not isolated:
        if landlock_abi() >= landlock.MIN_ABI:
            return "landlock"
        return "bubblewrap" if bubblewrap_works() else None
    if not seccomp.is_supported():
        return None
    if bubblewrap_works():
        return "bubblewrap"
    return "landlock" if landlock_abi() >= landlock.MIN_ISOLATION_ABI else None


@cache
def bubblewrap_works() -> bool:
    """Return True if bubblewrap is installed and the system lets it create namespaces."""
    if sys.platform != "linux" or shutil.which("bwrap") is None:
        return False
    for isolated in (True, False):
        policy = Policy(write=(), isolated=isolated)
        command, env = _supervisor_command(["true"], {"PATH": os.defpath}, policy, "bubblewrap")
        try:
            trial = subprocess.run(command, env=env, capture_output=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return False
        if trial.returncode:
            return False
    return True


async def detect_backends() -> None:
    """Find out which sandboxes this machine supports, without blocking the event loop."""
    await asyncio.to_thread(bubblewrap_works)


def sandboxed_command(
    command: Sequence[str], env: Mapping[str, str], policy: Policy
) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment that run a program in a sandbox.

    Raises SandboxError if this machine has no such sandbox, or if a directory that the program
    may write to contains a private one.
    """
    kind = backend(isolated=policy.isolated)
    if kind is None:
        raise SandboxError("this machine has no sandbox for programs; install bubblewrap")
    for private in visible_paths([*policy.private]):
        for directory in policy.write:
            if is_below(private, directory):
                raise SandboxError(
                    f"{directory} contains {private}, which programs must not see;"
                    " use the session in another directory"
                )
    return _supervisor_command(command, env, policy, kind)


def supervised_command(
    command: Sequence[str], env: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment that run a program without a sandbox.

    On Linux, everything that the program starts ends with it.
    """
    if sys.platform != "linux":
        return [*command], {**env}
    return _supervisor_command(command, env, Policy(write=(), isolated=False), None)


async def end(process: asyncio.subprocess.Process) -> None:
    """End a supervised program, and wait until everything that it started has ended."""
    with suppress(ProcessLookupError):
        if sys.platform == "linux":
            process.terminate()  # its supervisor kills all its programs before it ends
        else:
            os.killpg(process.pid, signal.SIGKILL)
    try:
        await asyncio.wait_for(process.wait(), _END_SECONDS)
    except TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def check_private_directories(directories: Sequence[str]) -> None:
    """Raise SandboxError if sandboxes on this machine cannot hide these directories."""
    problem = _visibility_problem(visible_paths([*directories]))
    # Without a sandbox, no program runs for other callers.
    if problem is not None and backend(isolated=True) is not None:
        raise SandboxError(f"{problem}; use another data directory (--data-dir or SEGUE_DATA_DIR)")


def _visibility_problem(private: list[str]) -> str | None:
    """Return why readable paths cannot leave out private directories; None if they can."""
    for path in private:
        for required in _REQUIRED_PATHS:
            if is_below(os.path.realpath(required), path):
                return (
                    f"{path} is private, but it contains the programs of the system ({required}),"
                    " which tools of other callers may read"
                )
    for path in SYSTEM_PATHS:
        try:
            without_private(path, private)
        except OSError as error:
            return (
                f"the entries of {error.filename} cannot be listed, so tools of other callers could"
                " read the data directory below it"
            )
    return None


def _supervisor_command(
    command: Sequence[str], env: Mapping[str, str], policy: Policy, kind: Backend | None
) -> tuple[list[str], dict[str, str]]:
    bwrap = shutil.which("bwrap") if kind == "bubblewrap" else None
    private = [*policy.private] if policy.isolated else []
    read = [*SYSTEM_PATHS] if policy.isolated else ["/"]
    if policy.isolated and kind == "landlock":
        read += _DEVICE_AND_PROC_PATHS
    if policy.isolated and policy.network:
        read += _NETWORK_PATHS
    rules = {
        "command": [*command],
        "env": {**env},
        "parent": os.getpid(),
        "backend": kind,
        "bwrap": bwrap,
        "bind_fd": bwrap is not None and _can_bind_descriptors(bwrap),
        "isolated": policy.isolated,
        "network": policy.network,
        "system": read,
        "system_private": [*private, *_home_directory()] if policy.isolated else [],
        "read": [*policy.read],
        "private": private,
        "write": [*policy.write],
        "read_only": [*policy.read_only],
        # A session's directory may itself be below /dev/shm.
        "shm": None if any(is_below(path, "/dev/shm") for path in policy.write) else policy.shm,
        # Directories that segue made are in private ones. Others may be large already.
        "measured": [
            path
            for path in policy.write
            if any(is_below(path, os.path.realpath(parent)) for parent in private)
        ],
        "limits": None if policy.limits is None else policy.limits._asdict(),
    }
    # The supervisor has an environment of its own: variables such as LD_PRELOAD must not
    # change what it does.
    supervisor_env = {"PATH": os.defpath, RULES_VARIABLE: marshal.dumps(rules).hex()}
    return [*(sys.executable, "-I", "-S", "-c", _START_SUPERVISOR, _PACKAGE_PARENT)], supervisor_env


@cache
def _can_bind_descriptors(bwrap: str) -> bool:
    usage = subprocess.run([bwrap, "--help"], capture_output=True, timeout=10, check=False)
    return b"--bind-fd" in usage.stdout


def _home_directory() -> list[str]:
    """Return the home directory of segue's user in a list.

    The list is empty if another user owns the directory, or if it contains the system's programs.
    """
    home = os.path.expanduser("~")
    try:
        own = os.stat(home).st_uid == os.getuid() and os.path.realpath(home) != "/"
    except OSError:
        return []
    required = (os.path.realpath(path) for path in _REQUIRED_PATHS)
    contains_programs = any(is_below(path, os.path.realpath(home)) for path in required)
    return [home] if own and not contains_programs else []
