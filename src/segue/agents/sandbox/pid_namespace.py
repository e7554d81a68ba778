"""A PID namespace, which limits how many processes root's programs can start.

The kernel applies RLIMIT_NPROC to every user except root. From Linux 6.14 on, each PID namespace
has its own largest process id, and with it a largest number of processes.
"""

from __future__ import annotations

import os

from .system_calls import check, libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

# Once the ids are used up, the kernel starts again after this one.
MAX_RESERVED_IDS = 300
_MAX_ID_FILE = "/proc/sys/kernel/pid_max"
_CLONE_NEWPID = 0x20000000


class PidNamespace:
    """The PID namespace of the children that this process starts from now on.

    The first child is its init: when the init ends, the kernel kills all its other processes.
    """

    def __init__(self) -> None:
        """Create the namespace. Raises OSError if the system refuses, as it does for most users."""
        self._outer_max_id = os.open(_MAX_ID_FILE, os.O_RDONLY | os.O_CLOEXEC)
        check(libc.unshare(_CLONE_NEWPID))

    def limit_processes(self, processes: int) -> None:
        """Limit the number of processes and threads, in the init of the namespace.

        There can be up to MAX_RESERVED_IDS more, because a new namespace begins with the first id.
        Without effect before Linux 6.14, and if the sysctl files are read-only.
        """
        if not os.access(_MAX_ID_FILE, os.W_OK):
            return
        descriptor = os.open(_MAX_ID_FILE, os.O_WRONLY | os.O_CLOEXEC)
        try:
            # An older kernel has one file, and the limit in it applies to the whole machine.
            if os.fstat(descriptor).st_ino != os.fstat(self._outer_max_id).st_ino:
                os.write(descriptor, str(MAX_RESERVED_IDS + processes).encode())
        finally:
            os.close(descriptor)


def continue_below_init(*unused: int) -> None:
    """Continue in a child of the init, whose place this process takes.

    Most programs do not work as an init: they do not wait for orphans, and the kernel ignores
    signals to them. This process ends as the child does. It closes the descriptors `unused`.
    """
    program = os.fork()
    if program != 0:
        _wait_as_init(program, unused)


def _wait_as_init(program: int, unused: tuple[int, ...]) -> NoReturn:
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    for descriptor in unused:
        os.close(descriptor)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == program:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
