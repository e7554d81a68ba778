"""Escapes through system calls that reach beyond files: all of them are denied."""

import pytest

from segue.agents.sandbox.system_calls import machine

from .harness import Sandbox

# Numbers on x86_64 and aarch64. All arguments are 0, so that nothing happens if one is allowed.
DENIED_CALLS = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "msgctl": (71, 187),
    "semget": (64, 190),
    "semctl": (66, 191),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "quotactl": (179, 60),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "fsconfig": (431, 431),
    "mount_setattr": (442, 442),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "personality": (135, 92),
    "seccomp": (317, 277),
    "landlock_create_ruleset": (444, 444),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "clone3": (435, 435),
    "openat2": (437, 437),
    "a call that does not exist yet": (10_000, 10_000),
}


def test_dangerous_system_calls_are_denied(sandbox: Sandbox) -> None:
    column = ["x86_64", "aarch64"].index(machine())
    code = """
import errno
value = {}
for name, number in calls.items():
    try:
        syscall(number, 0, 0, 0, 0, 0, 0)
        value[name] = "allowed"
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS):
            value[name] = errno.errorcode[error.errno]
"""
    calls = {name: numbers[column] for name, numbers in DENIED_CALLS.items()}
    assert sandbox.run(code, calls=calls).value == {}


@pytest.mark.skipif(machine() != "x86_64", reason="other architectures have no x32 calls")
def test_calls_of_another_binary_interface_are_denied(sandbox: Sandbox) -> None:
    assert sandbox.run("syscall(0x40000000 + 39)").errno == "EPERM"  # getpid of x32


def test_a_program_cannot_create_namespaces(sandbox: Sandbox) -> None:
    clone = 56 if machine() == "x86_64" else 220
    for flag in (0x10000000, 0x20000000, 0x20000, 0x40000000, 0x8000000, 0x2000000, 0x4000000):
        code = """
pid = syscall(number, flags | 17, 0, 0, 0, 0)
if pid == 0:
    os._exit(0)
"""
        assert sandbox.run(code, number=clone, flags=flag).errno == "EPERM"


def test_a_program_has_no_privileges_and_cannot_gain_any(sandbox: Sandbox) -> None:
    code = """
import ctypes
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
data = (ctypes.c_uint32 * 6)()
libc.capget(header, data)
bounding = [n for n in range(64) if libc.prctl(23, n, 0, 0, 0) == 1]
value = [list(data), bounding, libc.prctl(39, 0, 0, 0, 0), libc.prctl(21, 0, 0, 0, 0)]
"""
    capabilities, bounding, no_new_privileges, filter_mode = sandbox.run(code).value
    assert (capabilities, no_new_privileges, filter_mode) == ([0] * 6, 1, 2)
    # An ordinary user cannot change the bounding set, which has no effect with no_new_privs.
    assert bounding == [] or (sandbox.uid != 0 and sandbox.backend == "landlock")


def test_a_program_cannot_replace_the_filter_or_its_memory_map(sandbox: Sandbox) -> None:
    code = "libc.prctl({}, 0, 0, 0, 0); raise OSError(ctypes.get_errno(), '')"
    assert sandbox.successes([code.format(22), code.format(35)], ["EPERM"]) == []


def test_ioctls_that_reach_beyond_a_file_are_denied(sandbox: Sandbox) -> None:
    # TIOCSTI, TIOCLINUX, TIOCCONS, FS_IOC_SETFLAGS and FS_IOC_FSSETXATTR
    codes = [
        f"import fcntl; fcntl.ioctl(os.open('.', 0), {number}, bytes(64))"
        for number in (0x5412, 0x541C, 0x541D, 0x40086602, 0x401C5820)
    ]
    assert sandbox.successes(codes, ["ENOTTY"]) == []


def test_a_program_cannot_direct_signals_or_delays_through_a_file(sandbox: Sandbox) -> None:
    # F_SETOWN, F_SETOWN_EX, F_SETLEASE and F_NOTIFY
    codes = [
        f"import fcntl; fcntl.fcntl(os.open(path, 0), {command}, 0)"
        for command in (8, 15, 1024, 1026)
    ]
    assert sandbox.successes(codes, ["EPERM"], path=str(sandbox.files.public)) == []
