"""Landlock: restrict the files that this process can open, and the processes it can signal."""

from __future__ import annotations

import ctypes
import os
import stat
import sys

from .system_calls import PR_SET_NO_NEW_PRIVS, call, libc, prctl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# The Landlock versions that segue requires. Before version 3, Landlock cannot prevent a program
# from truncating files outside the sandbox; before version 6 it cannot restrict signals.
MIN_ABI = 3
MIN_ISOLATION_ABI = 6

# linux/landlock.h
CREATE_RULESET_VERSION = 1 << 0
RULE_PATH_BENEATH = 1
FS_EXECUTE = 1 << 0
FS_WRITE_FILE = 1 << 1
FS_READ_FILE = 1 << 2
FS_READ_DIR = 1 << 3
FS_REMOVE_DIR = 1 << 4
FS_REMOVE_FILE = 1 << 5
FS_MAKE_CHAR = 1 << 6
FS_MAKE_DIR = 1 << 7
FS_MAKE_REG = 1 << 8
FS_MAKE_SOCK = 1 << 9
FS_MAKE_FIFO = 1 << 10
FS_MAKE_BLOCK = 1 << 11
FS_MAKE_SYM = 1 << 12
FS_REFER = 1 << 13
FS_TRUNCATE = 1 << 14
FS_IOCTL_DEV = 1 << 15
NET_BIND_TCP = 1 << 0
NET_CONNECT_TCP = 1 << 1
SCOPE_ABSTRACT_UNIX_SOCKET = 1 << 0
SCOPE_SIGNAL = 1 << 1

READ_ACCESS = FS_EXECUTE | FS_READ_FILE | FS_READ_DIR
_MAKE_DEVICE_ACCESS = FS_MAKE_CHAR | FS_MAKE_BLOCK
# The rights that apply to a file; the kernel rejects a rule for a file with any other.
_FILE_ACCESS = FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV
# The rights of Landlock's first version; later versions added one each.
_FIRST_ABI_ACCESS = (
    READ_ACCESS
    | _MAKE_DEVICE_ACCESS
    | FS_WRITE_FILE
    | FS_REMOVE_DIR
    | FS_REMOVE_FILE
    | FS_MAKE_DIR
    | FS_MAKE_REG
    | FS_MAKE_SOCK
    | FS_MAKE_FIFO
    | FS_MAKE_SYM
)
_LATER_ACCESS = {2: FS_REFER, 3: FS_TRUNCATE, 5: FS_IOCTL_DEV}
_SYS_CREATE_RULESET = 444  # the same on every architecture


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


def abi_version() -> int:
    """Return the Landlock version of this kernel, or 0 if it has none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(libc.syscall(_SYS_CREATE_RULESET, None, 0, CREATE_RULESET_VERSION)))


def restrict_files(
    read: Iterable[int], write: Iterable[int], *, isolated: bool, deny_tcp: bool = False
) -> None:
    """Restrict this process and its children to files below the paths of these descriptors.

    Closes the descriptors. With `isolated`, the processes can also signal only each other. With
    `deny_tcp`, they can neither connect nor bind TCP sockets. Raises OSError if the kernel refuses.
    """
    abi = abi_version()
    handled = _FIRST_ABI_ACCESS
    for since, access in _LATER_ACCESS.items():
        handled |= access if abi >= since else 0
    scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL if isolated else 0
    network = NET_BIND_TCP | NET_CONNECT_TCP if deny_tcp else 0
    ruleset = _create_ruleset(abi, handled, scoped, network)
    for descriptor in read:
        _allow(ruleset, descriptor, READ_ACCESS & handled)
    for descriptor in write:
        _allow(ruleset, descriptor, handled & ~_MAKE_DEVICE_ACCESS)
    _restrict_self(ruleset)


def restrict_signals() -> None:
    """Allow this process and its children to signal only each other."""
    _restrict_self(_create_ruleset(abi_version(), 0, SCOPE_SIGNAL))


def _create_ruleset(abi: int, handled: int, scoped: int, network: int = 0) -> int:
    attributes = _RulesetAttr(handled_access_fs=handled, handled_access_net=network, scoped=scoped)
    # Older kernels reject a struct with fields that they do not know.
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    return call("landlock_create_ruleset", ctypes.byref(attributes), size, 0)


def _allow(ruleset: int, descriptor: int, access: int) -> None:
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        access &= _FILE_ACCESS
    rule = _PathBeneathAttr(allowed_access=access, parent_fd=descriptor)
    call("landlock_add_rule", ruleset, RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    os.close(descriptor)


def _restrict_self(ruleset: int) -> None:
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    call("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)
