"""Run a program in a sandbox: Landlock or bubblewrap limits its files, seccomp its sockets.

This file is also the launcher: `python -I -S sandbox.py RULES COMMAND…` restricts its own process
and then executes the command, so that no restriction is applied in a process that has threads. It
needs no privileges and imports no other module of segue. RULES is a JSON object: `bwrap` is the
path of bubblewrap if that is the backend; `read` and `write` list the only accessible paths;
`isolated` also forbids sockets, and signals to other processes.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple

Backend = Literal["landlock", "bubblewrap"]

# The parts of the system that programs need. The sandbox ignores paths that do not exist.
SYSTEM_PATHS = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/opt", "/nix/store"),
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime", "/etc/timezone"),
    *("/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/terminfo", "/etc/mime.types"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/version"),
    *("/dev/zero", "/dev/random", "/dev/urandom"),
)
DEVICE_PATHS = ("/dev/null", "/dev/full", "/dev/tty")

# The Landlock versions that segue requires. Before version 3, Landlock cannot prevent a program
# from truncating files outside the sandbox; before version 6 it cannot restrict signals.
MIN_LANDLOCK_ABI = 3
MIN_ISOLATION_ABI = 6

# linux/landlock.h
LANDLOCK_CREATE_RULESET_VERSION = 1 << 0
LANDLOCK_RULE_PATH_BENEATH = 1
LANDLOCK_ACCESS_FS_EXECUTE = 1 << 0
LANDLOCK_ACCESS_FS_WRITE_FILE = 1 << 1
LANDLOCK_ACCESS_FS_READ_FILE = 1 << 2
LANDLOCK_ACCESS_FS_READ_DIR = 1 << 3
LANDLOCK_ACCESS_FS_REMOVE_DIR = 1 << 4
LANDLOCK_ACCESS_FS_REMOVE_FILE = 1 << 5
LANDLOCK_ACCESS_FS_MAKE_CHAR = 1 << 6
LANDLOCK_ACCESS_FS_MAKE_DIR = 1 << 7
LANDLOCK_ACCESS_FS_MAKE_REG = 1 << 8
LANDLOCK_ACCESS_FS_MAKE_SOCK = 1 << 9
LANDLOCK_ACCESS_FS_MAKE_FIFO = 1 << 10
LANDLOCK_ACCESS_FS_MAKE_BLOCK = 1 << 11
LANDLOCK_ACCESS_FS_MAKE_SYM = 1 << 12
LANDLOCK_ACCESS_FS_REFER = 1 << 13
LANDLOCK_ACCESS_FS_TRUNCATE = 1 << 14
LANDLOCK_ACCESS_FS_IOCTL_DEV = 1 << 15
LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET = 1 << 0
LANDLOCK_SCOPE_SIGNAL = 1 << 1

# asm-generic/unistd.h: these numbers are the same on every architecture.
SYS_LANDLOCK_CREATE_RULESET = 444
SYS_LANDLOCK_ADD_RULE = 445
SYS_LANDLOCK_RESTRICT_SELF = 446
SYS_IO_URING_SETUP = 425

# linux/prctl.h, linux/seccomp.h
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
SECCOMP_RET_KILL_PROCESS = 0x80000000
SECCOMP_RET_ERRNO = 0x00050000
SECCOMP_RET_ALLOW = 0x7FFF0000
SECCOMP_DATA_NR_OFFSET = 0  # offsetof(struct seccomp_data, nr)
SECCOMP_DATA_ARCH_OFFSET = 4  # offsetof(struct seccomp_data, arch)

# linux/bpf_common.h
BPF_LD, BPF_JMP, BPF_RET = 0x00, 0x05, 0x06
BPF_W, BPF_ABS, BPF_K = 0x00, 0x20, 0x00
BPF_JEQ, BPF_JGE = 0x10, 0x30

# linux/audit.h, asm/unistd.h
AUDIT_ARCH_X86_64 = 0xC000003E
AUDIT_ARCH_AARCH64 = 0xC00000B7
X32_SYSCALL_BIT = 0x40000000

_READ_ACCESS = (
    LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR
)
_MAKE_DEVICE_ACCESS = LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK
# The rights that apply to a file; the kernel rejects a rule for a file with any other.
_FILE_ACCESS = (
    LANDLOCK_ACCESS_FS_EXECUTE
    | LANDLOCK_ACCESS_FS_WRITE_FILE
    | LANDLOCK_ACCESS_FS_READ_FILE
    | LANDLOCK_ACCESS_FS_TRUNCATE
    | LANDLOCK_ACCESS_FS_IOCTL_DEV
)
# The rights of Landlock's first version; later versions added one each.
_FIRST_ABI_ACCESS = (
    _READ_ACCESS
    | _MAKE_DEVICE_ACCESS
    | LANDLOCK_ACCESS_FS_WRITE_FILE
    | LANDLOCK_ACCESS_FS_REMOVE_DIR
    | LANDLOCK_ACCESS_FS_REMOVE_FILE
    | LANDLOCK_ACCESS_FS_MAKE_DIR
    | LANDLOCK_ACCESS_FS_MAKE_REG
    | LANDLOCK_ACCESS_FS_MAKE_SOCK
    | LANDLOCK_ACCESS_FS_MAKE_FIFO
    | LANDLOCK_ACCESS_FS_MAKE_SYM
)
_LATER_ACCESS = {
    2: LANDLOCK_ACCESS_FS_REFER,
    3: LANDLOCK_ACCESS_FS_TRUNCATE,
    5: LANDLOCK_ACCESS_FS_IOCTL_DEV,
}


class _Architecture(NamedTuple):
    """The constants of a processor architecture that the system call filter needs."""

    audit_arch: int
    sys_socket: int


_ARCHITECTURES = {
    "x86_64": _Architecture(AUDIT_ARCH_X86_64, sys_socket=41),
    "aarch64": _Architecture(AUDIT_ARCH_AARCH64, sys_socket=198),
}


class _RulesetAttr(ctypes.Structure):
    """struct landlock_ruleset_attr"""

    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneathAttr(ctypes.Structure):
    """struct landlock_path_beneath_attr"""

    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


class _SockFilter(ctypes.Structure):
    """struct sock_filter: one instruction of a BPF program"""

    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _SockFprog(ctypes.Structure):
    """struct sock_fprog: a BPF program"""

    _fields_ = (("len", ctypes.c_uint16), ("filter", ctypes.POINTER(_SockFilter)))


@cache
def landlock_abi() -> int:
    """Return the Landlock version of this kernel, or 0 if it has none."""
    if sys.platform != "linux":
        return 0
    abi = ctypes.CDLL(None).syscall(
        SYS_LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_CREATE_RULESET_VERSION
    )
    return max(0, int(abi))


def backend(*, isolated: bool) -> Backend | None:
    """Return the sandbox that this machine supports, or None if it supports none."""
    if isolated and platform.machine() not in _ARCHITECTURES:
        return None
    if landlock_abi() >= (MIN_ISOLATION_ABI if isolated else MIN_LANDLOCK_ABI):
        return "landlock"
    return "bubblewrap" if bubblewrap_works() else None


@cache
def bubblewrap_works() -> bool:
    """Return True if bubblewrap is installed and the system lets it create namespaces."""
    program = shutil.which("bwrap")
    if sys.platform != "linux" or program is None:
        return False
    for isolated in (True, False):
        read = SYSTEM_PATHS if isolated else ("/",)
        arguments = bubblewrap_arguments(read, (), isolated=isolated)
        try:
            trial = subprocess.run(
                [program, *arguments, "true"], capture_output=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        if trial.returncode:
            return False
    return True


def sandboxed_command(
    command: Sequence[str], *, read: Sequence[str], write: Sequence[str], isolated: bool
) -> list[str]:
    """Return the command that runs `command` in a sandbox. `backend` must not be None."""
    bwrap = shutil.which("bwrap") if backend(isolated=isolated) == "bubblewrap" else None
    rules = {"bwrap": bwrap, "read": [*read], "write": [*write], "isolated": isolated}
    return [sys.executable, "-I", "-S", __file__, json.dumps(rules), *command]


def bubblewrap_arguments(read: Sequence[str], write: Sequence[str], *, isolated: bool) -> list[str]:
    """Return bubblewrap's arguments for a file system that contains only these paths."""
    arguments = ["--die-with-parent", "--cap-drop", "ALL"]
    arguments += ["--unshare-all"] if isolated else []
    # A bind mount hides earlier mounts below it, so parents come before their subdirectories.
    for path in sorted(read):
        arguments += ["--ro-bind-try", path, path]
    if isolated:
        arguments += ["--proc", "/proc", "--dev", "/dev"]
    else:
        arguments += ["--dev-bind", "/dev", "/dev"]
    for path in sorted(write):
        arguments += ["--bind-try", path, path]
    return [*arguments, "--remount-ro", "/", "--"] if isolated else [*arguments, "--"]


def restrict_self(read: Sequence[str], write: Sequence[str], *, isolated: bool) -> None:
    """Restrict this process permanently with Landlock. Raises OSError if the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    abi = landlock_abi()
    handled = _FIRST_ABI_ACCESS
    for since, access in _LATER_ACCESS.items():
        handled |= access if abi >= since else 0
    scoped = LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL
    attributes = _RulesetAttr(
        handled_access_fs=handled,
        handled_access_net=0,
        scoped=scoped if isolated and abi >= MIN_ISOLATION_ABI else 0,
    )
    # Older kernels reject a struct with fields that they do not know.
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _check(libc.syscall(SYS_LANDLOCK_CREATE_RULESET, ctypes.byref(attributes), size, 0))
    for path in read:
        _allow_path(libc, ruleset, path, _READ_ACCESS & handled)
    for path in write:
        _allow_path(libc, ruleset, path, handled & ~_MAKE_DEVICE_ACCESS)
    _check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _check(libc.syscall(SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)
    if isolated:
        instructions = _socket_filter()
        program = _SockFprog(len=len(instructions), filter=instructions)
        _check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0))


def _allow_path(libc: ctypes.CDLL, ruleset: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, getattr(os, "O_PATH", 0) | os.O_CLOEXEC)
    except OSError:
        return  # the path does not exist, so there is nothing to allow
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= _FILE_ACCESS
        rule = _PathBeneathAttr(allowed_access=access, parent_fd=descriptor)
        _check(
            libc.syscall(
                SYS_LANDLOCK_ADD_RULE, ruleset, LANDLOCK_RULE_PATH_BENEATH, ctypes.byref(rule), 0
            )
        )
    finally:
        os.close(descriptor)


def _socket_filter() -> ctypes.Array[_SockFilter]:
    """Return a seccomp filter that denies the system calls that can create sockets."""
    architecture = _ARCHITECTURES[platform.machine()]
    load_word = BPF_LD | BPF_W | BPF_ABS
    if_equal = BPF_JMP | BPF_JEQ | BPF_K
    if_at_least = BPF_JMP | BPF_JGE | BPF_K
    answer = BPF_RET | BPF_K
    deny = SECCOMP_RET_ERRNO | errno.EPERM
    # Each instruction is (code, jump if true, jump if false, operand).
    instructions = [
        (load_word, 0, 0, SECCOMP_DATA_ARCH_OFFSET),
        (if_equal, 1, 0, architecture.audit_arch),
        # Another architecture has other system call numbers, which this filter does not know.
        (answer, 0, 0, SECCOMP_RET_KILL_PROCESS),
        (load_word, 0, 0, SECCOMP_DATA_NR_OFFSET),
        (if_at_least, 0, 1, X32_SYSCALL_BIT),
        (answer, 0, 0, deny),
    ]
    for call in (architecture.sys_socket, SYS_IO_URING_SETUP):
        instructions += [(if_equal, 0, 1, call), (answer, 0, 0, deny)]
    instructions.append((answer, 0, 0, SECCOMP_RET_ALLOW))
    return (_SockFilter * len(instructions))(*(_SockFilter(*fields) for fields in instructions))


def _check(result: int) -> int:
    """Return the result of a system call. Raises OSError if the call failed."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _seccomp_arguments() -> list[str]:
    """Return the arguments that make bubblewrap read the socket filter from a file descriptor."""
    descriptor = os.memfd_create("seccomp", 0)
    os.write(descriptor, bytes(_socket_filter()))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return ["--seccomp", str(descriptor)]


def main() -> None:
    """Restrict this process as the first argument says, and execute the remaining arguments."""
    rules, command = json.loads(sys.argv[1]), sys.argv[2:]
    read, write, isolated = rules["read"], rules["write"], rules["isolated"]
    try:
        if rules["bwrap"]:
            seccomp = _seccomp_arguments() if isolated else []
            arguments = bubblewrap_arguments(read, write, isolated=isolated)
            command = [rules["bwrap"], *seccomp, *arguments, *command]
        else:
            restrict_self(read, [*write, *DEVICE_PATHS], isolated=isolated)
        os.execvp(command[0], command)
    except OSError as error:
        print(f"segue: cannot run {sys.argv[2]} in the sandbox: {error}", file=sys.stderr)
        sys.exit(126)


if __name__ == "__main__":
    main()
