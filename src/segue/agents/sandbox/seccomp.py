"""The filter of system calls for programs in the strict sandbox.

Every call that is not listed fails. The lists follow the default profile of container runtimes,
without the calls that reach beyond the sandbox: namespaces, mounts, keyrings, System V and POSIX
IPC, tracing, BPF, clocks, modules and handles. Some calls are allowed for some arguments only.

A filter sees numbers, not the paths that pointers refer to. Where a mount namespace makes
everything else read-only, programs may change permissions, owners and times of the files they can
name. Otherwise the filter passes these calls to the supervisor (`metadata_broker.py`).
"""

from __future__ import annotations

import ctypes
import errno
import os

from .system_calls import AUDIT_ARCHITECTURES, NUMBERS, call, machine, number

# Names of calls, separated by white space.
_ALLOWED = """
    read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 readahead sendfile
    splice tee vmsplice copy_file_range close close_range dup dup2 dup3 lseek pipe pipe2 poll ppoll
    select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
    eventfd eventfd2 timerfd_create timerfd_settime timerfd_gettime signalfd signalfd4
    stat fstat lstat newfstatat statx statfs fstatfs access faccessat faccessat2 readlink
    readlinkat getcwd chdir fchdir getdents getdents64 mkdir mkdirat rmdir unlink unlinkat rename
    renameat renameat2 link linkat symlink symlinkat truncate ftruncate fallocate umask fsync
    fdatasync sync_file_range syncfs flock fadvise64
    mmap munmap mremap mprotect madvise mincore msync mlock mlock2 munlock mlockall munlockall brk
    membarrier mseal pkey_alloc pkey_free pkey_mprotect map_shadow_stack cachestat
    fork vfork execve execveat exit exit_group wait4 waitid getpid getppid gettid getuid geteuid
    getgid getegid getresuid getresgid getgroups getpgrp getpgid getsid setpgid setsid setuid
    setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capget capset
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigqueueinfo
    rt_sigsuspend rt_tgsigqueueinfo sigaltstack kill tkill tgkill pause restart_syscall pidfd_open
    pidfd_send_signal alarm getitimer setitimer nanosleep clock_gettime clock_getres
    clock_nanosleep gettimeofday time times timer_create timer_settime timer_gettime
    timer_getoverrun timer_delete futex futex_waitv futex_wake futex_wait futex_requeue
    set_robust_list get_robust_list set_tid_address arch_prctl rseq getrlimit setrlimit getrusage
    getpriority ioprio_get sysinfo uname getcpu getrandom sched_yield sched_getaffinity
    sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min sched_getattr
    sched_rr_get_interval
    getsockname getpeername getsockopt setsockopt sendto recvfrom sendmsg recvmsg
    sendmmsg recvmmsg shutdown
"""
_NETWORK = ("connect", "bind")
# These calls fail as if the kernel did not have them, and programs then use another call. The
# filter cannot see the arguments of clone3 and openat2. Memory of memfd_create belongs to no
# process, so the supervisor could not measure it.
_REPORTED_AS_MISSING = """
    clone3 openat2 memfd_create memfd_secret io_uring_setup inotify_init inotify_init1 userfaultfd
"""
METADATA_CALLS = """
    chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat utime utimes futimesat utimensat
"""
_XATTR_CALLS = """
    setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
    removexattr lremovexattr fremovexattr
"""

# Each condition is (index of the argument, mask, value): it holds if argument & mask == value.
_ANY = 0xFFFFFFFF
_NEW_NAMESPACE_FLAGS = 0x7E020000  # CLONE_NEWNS … CLONE_NEWNET
_O_CREAT = 0o100
_O_TMPFILE = 0o20000000
_S_ISUID_OR_ISGID = (0o4000, 0o2000)
# These calls act on the calling process if the argument at this index is 0.
_OWN_PROCESS = {
    "prlimit64": ((0, _ANY, 0),),
    "sched_setaffinity": ((0, _ANY, 0),),
    "sched_setattr": ((0, _ANY, 0),),
    "sched_setparam": ((0, _ANY, 0),),
    "sched_setscheduler": ((0, _ANY, 0),),
    "setpriority": ((0, _ANY, 0), (1, _ANY, 0)),  # PRIO_PROCESS
    "ioprio_set": ((0, _ANY, 1), (1, _ANY, 0)),  # IOPRIO_WHO_PROCESS
}
# F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE and F_NOTIFY send signals or delay other programs.
_DENIED_FCNTLS = (8, 10, 15, 1024, 1026)
# PR_SET_SECCOMP, PR_SET_MM and PR_SET_PTRACER
_DENIED_PRCTLS = (22, 35, 0x59616D61)
# TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD and FIOASYNC; other requests of terminals are harmless.
_FIRST_TTY_IOCTL, _LAST_TTY_IOCTL = 0x5401, 0x5460
_DENIED_TTY_IOCTLS = (0x5412, 0x541C, 0x541D, 0x5423, 0x5452)
# TCGETS2 … TCSETSF2, TIOCGPTN, TIOCSPTLCK; FICLONE, FICLONERANGE, FS_IOC_GETFLAGS,
# FS_IOC_FIEMAP and FS_IOC_FSGETXATTR
_ALLOWED_IOCTLS = (
    *(0x802C542A, 0x402C542B, 0x402C542C, 0x402C542D, 0x80045430, 0x40045431),
    *(0x40049409, 0x4020940D, 0x80086601, 0xC020660B, 0x801C581F),
)
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_SOCK_STREAM, _SOCK_TYPE_MASK = 1, 0xF
_IPPROTO_TCP = 6
_MSG_FASTOPEN = 0x20000000
_SENDING_CALLS = {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}  # the index of the argument `flags`

# linux/seccomp.h
_SET_MODE_FILTER = 1
_FLAG_NEW_LISTENER = 1 << 3
_RET_KILL_PROCESS = 0x80000000
_RET_ERRNO = 0x00050000
_RET_USER_NOTIF = 0x7FC00000
_RET_ALLOW = 0x7FFF0000
_RET_ENOTTY = _RET_ERRNO | errno.ENOTTY
_DATA_NR_OFFSET, _DATA_ARCH_OFFSET, _DATA_ARGS_OFFSET = 0, 4, 16

# linux/bpf_common.h
_LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_IF_GREATER = 0x25  # BPF_JMP | BPF_JGT | BPF_K
_IF_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_AND = 0x54  # BPF_ALU | BPF_AND | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K
_X32_SYSCALL_BIT = 0x40000000

_Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand
_Condition = tuple[int, int, int]


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


def is_supported() -> bool:
    """Return True if the filter knows this processor architecture."""
    return machine() in AUDIT_ARCHITECTURES


def filter_program(*, network: bool, mount_namespace: bool, proxy: bool = False) -> bytes:
    """Return the filter as a BPF program.

    With `network`, programs may connect to Internet addresses. With `proxy`, they may create TCP
    sockets, and the supervisor connects them (`proxy_connect.py`). With `mount_namespace`, they
    may change permissions and times themselves, otherwise the supervisor receives these calls.
    """
    deny = _RET_ERRNO | errno.EPERM
    program: list[_Instruction] = [
        (_LOAD_WORD, 0, 0, _DATA_ARCH_OFFSET),
        (_IF_EQUAL, 1, 0, AUDIT_ARCHITECTURES[machine()]),
        # Another architecture has other system call numbers, which this filter does not know.
        (_RETURN, 0, 0, _RET_KILL_PROCESS),
        (_LOAD_WORD, 0, 0, _DATA_NR_OFFSET),
        (_IF_AT_LEAST, 0, 1, _X32_SYSCALL_BIT),
        (_RETURN, 0, 0, deny),
    ]
    allowed = [*_ALLOWED.split(), *(_NETWORK if network else ())]
    if proxy:
        allowed = [name for name in allowed if name not in _SENDING_CALLS]
        # TCP Fast Open connects without a call of connect.
        for name, index in _SENDING_CALLS.items():
            program += _answer(name, _allow_if(((index, _MSG_FASTOPEN, 0),)))
        program += _answer("socket", _allow_tcp_sockets())
    if mount_namespace:
        allowed += ["chown", "lchown", "fchown", "fchownat", "utime", "utimes", "futimesat"]
        allowed += ["utimensat", *_XATTR_CALLS.split()]
    program += _allow_numbers([nr for name in allowed if (nr := number(name)) is not None])
    for name in _REPORTED_AS_MISSING.split():
        program += _answer(name, [(_RETURN, 0, 0, _RET_ERRNO | errno.ENOSYS)])
    for name, block in _checked_calls(network=network).items():
        program += _answer(name, block)
    if proxy:
        program += _answer("connect", [(_RETURN, 0, 0, _RET_USER_NOTIF)])
    if mount_namespace:
        for name, index in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2)):
            program += _answer(name, _allow_unless_set_id(index))
    else:
        for name in METADATA_CALLS.split():
            program += _answer(name, [(_RETURN, 0, 0, _RET_USER_NOTIF)])
        for name in _XATTR_CALLS.split():
            program += _answer(name, [(_RETURN, 0, 0, _RET_ERRNO | errno.EOPNOTSUPP)])
    # Calls that are newer than these lists fail as if the kernel did not have them.
    newest = max(nr for numbers in NUMBERS.values() for nr in numbers if nr is not None)
    program += [
        (_IF_GREATER, 0, 1, newest),
        (_RETURN, 0, 0, _RET_ERRNO | errno.ENOSYS),
        (_RETURN, 0, 0, deny),
    ]
    return b"".join(bytes(_SockFilter(*instruction)) for instruction in program)


def install(program: bytes, *, listen: bool) -> int | None:
    """Apply a filter to this process for good. The process must have PR_SET_NO_NEW_PRIVS.

    With `listen`, return the descriptor that receives the calls for the supervisor.
    """
    length = len(program) // ctypes.sizeof(_SockFilter)
    instructions = (_SockFilter * length).from_buffer_copy(program)
    attributes = _SockFprog(len=length, filter=instructions)
    flags = _FLAG_NEW_LISTENER if listen else 0
    listener = call("seccomp", _SET_MODE_FILTER, flags, ctypes.byref(attributes))
    return listener if listen else None


def in_memory_file(program: bytes) -> int:
    """Return a descriptor from which another process can read a filter."""
    descriptor = os.memfd_create("seccomp", 0)
    os.write(descriptor, program)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _allow_numbers(numbers: list[int]) -> list[_Instruction]:
    """Return instructions that allow these calls, with one comparison for consecutive numbers."""
    program: list[_Instruction] = []
    ordered = sorted(numbers)
    while ordered:
        first = last = ordered.pop(0)
        while ordered and ordered[0] == last + 1:
            last = ordered.pop(0)
        program += [
            (_IF_AT_LEAST, 0, 2, first),
            (_IF_GREATER, 1, 0, last),
            (_RETURN, 0, 0, _RET_ALLOW),
        ]
    return program


def _answer(name: str, block: list[_Instruction]) -> list[_Instruction]:
    """Return instructions that run `block` for one call. `block` must end with a return."""
    nr = number(name)
    return [] if nr is None else [(_IF_EQUAL, 0, len(block), nr), *block]


def _checked_calls(*, network: bool) -> dict[str, list[_Instruction]]:
    """Return, by name, the instructions for calls that are allowed for some arguments only."""
    families = (_AF_INET, _AF_INET6, _AF_NETLINK) if network else ()
    terminal_requests = [
        (_LOAD_WORD, 0, 0, _argument_offset(1)),
        *(jump for request in _DENIED_TTY_IOCTLS for jump in _return_if(request, _RET_ENOTTY)),
        *(jump for request in _ALLOWED_IOCTLS for jump in _return_if(request, _RET_ALLOW)),
        (_IF_AT_LEAST, 0, 2, _FIRST_TTY_IOCTL),
        (_IF_GREATER, 1, 0, _LAST_TTY_IOCTL),
        (_RETURN, 0, 0, _RET_ALLOW),
        (_RETURN, 0, 0, _RET_ENOTTY),
    ]
    return {
        **{name: _allow_if(conditions) for name, conditions in _OWN_PROCESS.items()},
        "clone": _allow_if(((0, _NEW_NAMESPACE_FLAGS, 0),)),
        "fcntl": _allow_unless(1, _DENIED_FCNTLS),
        "prctl": _allow_unless(0, _DENIED_PRCTLS),
        "ioctl": terminal_requests,
        "socket": [
            (_LOAD_WORD, 0, 0, _argument_offset(0)),
            *(jump for family in families for jump in _return_if(family, _RET_ALLOW)),
            (_RETURN, 0, 0, _RET_ERRNO | errno.EPERM),
        ],
        # A datagram of a pair can be sent to any other socket, by its address.
        "socketpair": _allow_if(
            ((0, _ANY, _AF_UNIX), (1, _SOCK_TYPE_MASK, _SOCK_STREAM), (2, _ANY, 0))
        ),
        # A program with the set-user-ID bit would run as segue's user outside the sandbox.
        "open": _allow_unless_creates_set_id(1, 2),
        "openat": _allow_unless_creates_set_id(2, 3),
        "creat": _allow_unless_set_id(1),
        "mknod": _allow_unless_set_id(1),
        "mknodat": _allow_unless_set_id(2),
    }


def _allow_tcp_sockets() -> list[_Instruction]:
    """Return instructions that allow TCP sockets only, for IPv4 and IPv6."""
    deny = (_RETURN, 0, 0, _RET_ERRNO | errno.EPERM)
    return [
        (_LOAD_WORD, 0, 0, _argument_offset(1)),
        (_AND, 0, 0, _SOCK_TYPE_MASK),
        (_IF_EQUAL, 1, 0, _SOCK_STREAM),
        deny,
        (_LOAD_WORD, 0, 0, _argument_offset(2)),
        (_IF_EQUAL, 2, 0, 0),
        (_IF_EQUAL, 1, 0, _IPPROTO_TCP),
        deny,
        (_LOAD_WORD, 0, 0, _argument_offset(0)),
        *_return_if(_AF_INET, _RET_ALLOW),
        *_return_if(_AF_INET6, _RET_ALLOW),
        deny,
    ]


def _argument_offset(index: int) -> int:
    """Return the offset of an argument's lower half; the kernel ignores the upper half here."""
    return _DATA_ARGS_OFFSET + 8 * index


def _return_if(value: int, answer: int) -> list[_Instruction]:
    return [(_IF_EQUAL, 0, 1, value), (_RETURN, 0, 0, answer)]


def _allow_if(conditions: tuple[_Condition, ...]) -> list[_Instruction]:
    block: list[_Instruction] = []
    for index, mask, value in conditions:
        block += [
            (_LOAD_WORD, 0, 0, _argument_offset(index)),
            (_AND, 0, 0, mask),
            (_IF_EQUAL, 1, 0, value),
            (_RETURN, 0, 0, _RET_ERRNO | errno.EPERM),
        ]
    return [*block, (_RETURN, 0, 0, _RET_ALLOW)]


def _allow_unless(index: int, values: tuple[int, ...]) -> list[_Instruction]:
    return [
        (_LOAD_WORD, 0, 0, _argument_offset(index)),
        *(jump for value in values for jump in _return_if(value, _RET_ERRNO | errno.EPERM)),
        (_RETURN, 0, 0, _RET_ALLOW),
    ]


def _allow_unless_set_id(mode_index: int) -> list[_Instruction]:
    """Return instructions that deny a mode with a set-user-ID or set-group-ID bit."""
    return _allow_if(tuple((mode_index, bit, 0) for bit in _S_ISUID_OR_ISGID))


def _allow_unless_creates_set_id(flags_index: int, mode_index: int) -> list[_Instruction]:
    """Return instructions that check the mode of a call if its flags create a file."""
    check = _allow_unless_set_id(mode_index)
    return [
        (_LOAD_WORD, 0, 0, _argument_offset(flags_index)),
        (_AND, 0, 0, _O_CREAT | _O_TMPFILE),
        (_IF_EQUAL, 0, 1, 0),
        (_RETURN, 0, 0, _RET_ALLOW),
        *check,
    ]
