"""Run one program in a sandbox. When the program ends, kill all processes that it started.

segue starts this process with the rules in the environment variable RULES_VARIABLE. It applies the
sandbox in a child, which executes the program, and waits. It ends when the program ends, when it
receives SIGTERM, and when segue itself ends, even by SIGKILL. Before it ends, it kills every
process below it. Programs cannot leave: orphans become children of this process, or of the first
process of their PID namespace.

The rules are a dict in the format of `marshal`, whose decoder needs no import:

- `command`, `env`: the program with its arguments, and its whole environment
- `parent`: the process id of segue
- `backend`: "landlock", "bubblewrap" or None for no sandbox; `bwrap` is bubblewrap's path
- `proxy_port`: the port of the egress proxy on 127.0.0.1, to which alone it may connect, or None
- `isolated`: the program may only read `system` and `read`, and has no network unless `network`;
  otherwise it may read everything
- `write`: the only directories that it may write to
- `read_only`: directories below those that it may not change nevertheless
- `system_private`, `private`: directories that must not be visible below paths of `system`, and
  below paths of `read`, wherever they are mounted
- `shm`: a directory that becomes /dev/shm in bubblewrap, or None
- `measured`: directories of `write` whose size is limited
- `limits`: see `launch.Limits`; None for no limits
"""

from __future__ import annotations

import ctypes
import errno
import marshal
import os
import select
import sys
import time
from itertools import chain

from . import RULES_VARIABLE, bubblewrap, cgroup, landlock, privileges, process_tree, seccomp
from .disk_usage import running_bytes
from .pid_namespace import PidNamespace, continue_below_init
from .private_paths import visible_paths, without_private
from .system_calls import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    call,
    check,
    libc,
    prctl,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, NoReturn

    from .metadata_broker import MetadataBroker

CANNOT_START = 126
_SIGHUP, _SIGINT, _SIGKILL, _SIGTERM, _SIGCHLD = 1, 2, 9, 15, 17
_SIG_BLOCK, _SIG_SETMASK = 0, 2
_SIGSET_BYTES = 128  # sizeof(sigset_t)
_SIGNAL_INFO_BYTES = 128  # sizeof(struct signalfd_siginfo)
_O_PATH = 0o10000000
_SYS_OPENAT2 = 437  # the same on every architecture
_SYS_PIDFD_OPEN = 434
_RESOLVE_NO_SYMLINKS = 0x04
_DEVICES = ("/dev/null", "/dev/full", "/dev/tty")
# How often the supervisor measures the programs, if no cgroup limits them.
_WATCH_SECONDS = 0.2
# How long it measures the directories each time; a large tree takes several times.
_DISK_SECONDS = 0.05


def main() -> None:
    """Run the program of the rules, and exit as it does."""
    rules = marshal.loads(bytes.fromhex(os.environ[RULES_VARIABLE]))
    supervisor = Supervisor(rules)
    try:
        supervisor.start()
    except OSError as error:
        print(f"segue: cannot start the sandbox: {error}", file=sys.stderr)
        sys.exit(CANNOT_START)
    sys.exit(supervisor.wait())


class Supervisor:
    """Starts the program of the rules, and ends it with everything that it started."""

    def __init__(self, rules: dict[str, Any]) -> None:
        self._rules = rules
        self._limits: dict[str, int] | None = rules["limits"]
        self._has_disk_limit = rules["limits"] is not None and bool(rules["measured"])
        self._sizes = running_bytes(rules["measured"])
        self._program = 0
        self._signals = -1
        self._cgroup: str | None = None
        self._listener = -1
        self._broker: MetadataBroker | None = None
        self._signals_are_restricted = False

    def start(self) -> None:
        """Start the program in its sandbox. Raises OSError if the system refuses."""
        rules = self._rules
        prctl(PR_SET_PDEATHSIG, _SIGTERM)
        if os.getppid() != rules["parent"]:
            raise OSError("segue has ended")
        self._signals = _block_signals()
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._cgroup = cgroup.create(self._limits)
        if self._cgroup is not None and cgroup.enforces_limits(self._cgroup):
            self._limits = None
        namespace = None
        if rules["isolated"] and self._limits is not None and os.getuid() == 0:
            namespace = _new_pid_namespace()
        uses_broker = rules["isolated"] and rules["backend"] == "landlock"
        if uses_broker:
            privileges.drop_capabilities()
            landlock.restrict_signals()
            # Without this proof, a signal to all processes would reach others.
            self._signals_are_restricted = _cannot_signal(rules["parent"])
        from_child, to_parent = os.pipe()
        from_parent, to_child = os.pipe()
        self._program = os.fork()
        if self._program == 0:
            os.close(to_child)
            _run_child(rules, self._cgroup, namespace, to_parent, from_parent)
        os.close(to_parent)
        os.close(from_parent)
        if uses_broker:
            self._connect_broker(os.read(from_child, 16))
        os.close(from_child)
        os.close(to_child)
        # The program's pipes end with the program, not with this process.
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)

    def wait(self) -> int:
        """Wait for the end of the program, end all others, and return its exit code."""
        try:
            code = self._wait_for_program()
        finally:
            self._end_all()
        return code if code >= 0 else 128 - code

    def _wait_for_program(self) -> int:
        """Return the program's exit code, or a negative signal number."""
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        if self._broker is not None:
            poll.register(self._listener, select.POLLIN)
        code: int | None = None
        watch_at = time.monotonic()
        watches = self._limits is not None or self._has_disk_limit
        while code is None:
            seconds = max(0.0, watch_at - time.monotonic())
            for descriptor, event in poll.poll(seconds * 1000 if watches else None):
                if descriptor == self._signals:
                    code = 128 + _SIGTERM if self._is_stop_signal() else None
                elif self._broker is not None and event & select.POLLIN:
                    self._broker.answer_call()
                else:  # the filter applies to no process any more
                    poll.unregister(descriptor)
            statuses = process_tree.reap()
            if self._program in statuses:
                code = os.waitstatus_to_exitcode(statuses[self._program])
            elif code is None and watches and time.monotonic() >= watch_at:
                exceeded = self._has_too_many_processes() or self._fills_disk()
                watch_at = time.monotonic() + _WATCH_SECONDS
                code = -_SIGKILL if exceeded else None
        return code

    def _fills_disk(self) -> bool:
        """Continue to measure the directories; return whether they are too large."""
        if not self._has_disk_limit:
            return False
        limit_mb: int = self._rules["limits"]["disk_mb"]
        end = time.monotonic() + _DISK_SECONDS
        for size in self._sizes:
            if size > limit_mb << 20:
                _report(f"more than {limit_mb} MB of disk space")
                return True
            if time.monotonic() > end:
                return False
        self._sizes = running_bytes(self._rules["measured"])
        return False

    def _end_all(self) -> None:
        if self._cgroup is not None:
            cgroup.kill(self._cgroup)
        process_tree.end_all(signals_are_restricted=self._signals_are_restricted)
        if self._cgroup is not None:
            cgroup.remove(self._cgroup)

    def _connect_broker(self, number: bytes) -> None:
        """Copy the listener from the child, which has sent its number, and create the broker."""
        if not number:
            return  # the child has failed and has reported that itself
        from .metadata_broker import MetadataBroker
        from .proxy_connect import ProxyConnector

        # The child is the last descendant: above it there is at most the init of its namespace.
        child = process_tree.descendants()[-1]
        process = check(libc.syscall(_SYS_PIDFD_OPEN, child, 0))
        self._listener = call("pidfd_getfd", process, int(number), 0)
        os.close(process)
        directories = [os.path.realpath(path) for path in self._rules["write"]]
        read_only, port = self._rules["read_only"], self._rules["proxy_port"]
        connector = None if port is None else ProxyConnector(port)
        self._broker = MetadataBroker(self._listener, directories, read_only, connector)

    def _is_stop_signal(self) -> bool:
        info = os.read(self._signals, _SIGNAL_INFO_BYTES)
        return int.from_bytes(info[:4], sys.byteorder) != _SIGCHLD

    def _has_too_many_processes(self) -> bool:
        """Return whether all programs must end because there are too many processes.

        Kills the largest program if all programs together use too much memory.
        """
        limits = self._limits
        if limits is None:
            return False
        # A fork bomb must not make the search long.
        pids = process_tree.descendants(limits["processes"] + 1)
        usage = {pid: process_tree.memory_and_threads(pid) for pid in pids[: limits["processes"]]}
        threads = sum(threads for _, threads in usage.values())
        if max(threads, len(pids)) > limits["processes"]:
            _report(f"more than {limits['processes']} processes")
            return True
        if sum(memory for memory, _ in usage.values()) > limits["memory_mb"] * 1024:
            _report(f"more than {limits['memory_mb']} MB of memory")
            process_tree.kill(max(usage, key=lambda pid: usage[pid][0]))
        return False


def _new_pid_namespace() -> PidNamespace | None:
    try:
        return PidNamespace()
    except OSError:  # root of a container may lack the right
        return None


def _run_child(
    rules: dict[str, Any],
    group: str | None,
    namespace: PidNamespace | None,
    to_parent: int,
    from_parent: int,
) -> NoReturn:
    """Restrict this process and execute the program."""
    command = rules["command"]
    try:
        prctl(PR_SET_PDEATHSIG, _SIGKILL)
        if namespace is not None:
            namespace.limit_processes(rules["limits"]["processes"])
            if rules["backend"] == "landlock":  # bubblewrap has an init of its own
                continue_below_init(to_parent, from_parent)
        os.setsid()
        check(libc.sigprocmask(_SIG_SETMASK, bytes(_SIGSET_BYTES), None))
        if group is not None:
            cgroup.enter(group)
        if rules["limits"] is not None:
            in_cgroup = group is not None and cgroup.enforces_limits(group)
            privileges.limit_resources(rules["limits"], in_cgroup=in_cgroup)
        if rules["isolated"]:
            privileges.lower_priority()
        if rules["backend"] == "bubblewrap":
            command = [rules["bwrap"], *_bubblewrap_arguments(rules), *command]
        elif rules["backend"] == "landlock":
            _restrict_with_landlock(rules, to_parent, from_parent)
        _execute(command, rules["env"])
    except OSError as error:
        print(f"segue: cannot run {command[0]} in the sandbox: {error}", file=sys.stderr)
        sys.stderr.flush()
    os._exit(CANNOT_START)


def _execute(command: list[str], env: dict[str, str]) -> NoReturn:
    """Execute a program. Unlike `os.execvpe`, this imports no module, which Landlock may deny."""
    program = command[0]
    directories = [""] if "/" in program else env.get("PATH", os.defpath).split(":")
    failure: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    for directory in directories:
        try:
            os.execve(os.path.join(directory, program), command, env)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                failure = error
    raise failure


def _restrict_with_landlock(rules: dict[str, Any], to_parent: int, from_parent: int) -> None:
    isolated = rules["isolated"]
    readable = [
        path
        for key, private_key in (("system", "system_private"), ("read", "private"))
        for path in _without_private(rules[key], rules[private_key])
    ]
    landlock.restrict_files(
        _open_existing(readable),
        chain(map(_open_own_path, rules["write"]), _open_existing(_DEVICES)),
        isolated=isolated,
        deny_tcp=rules["proxy_port"] is not None,
    )
    if isolated:
        program = seccomp.filter_program(
            network=rules["network"], mount_namespace=False, proxy=rules["proxy_port"] is not None
        )
        listener = seccomp.install(program, listen=True)
        os.write(to_parent, str(listener).encode())
        os.read(from_parent, 1)  # ends when the supervisor has the listener


def _bubblewrap_arguments(rules: dict[str, Any]) -> list[str]:
    write = {path: _open_own_path(path) for path in rules["write"]}
    for descriptor in write.values() if rules["bind_fd"] else ():
        os.set_inheritable(descriptor, True)
    binds = bubblewrap.bind_arguments(write, by_descriptor=rules["bind_fd"])
    read_only = {path: _open_own_path(path) for path in rules["read_only"]}
    for descriptor in read_only.values() if rules["bind_fd"] else ():
        os.set_inheritable(descriptor, True)
    binds += bubblewrap.bind_arguments(read_only, by_descriptor=rules["bind_fd"], read_only=True)
    if not rules["isolated"]:
        return bubblewrap.arguments_with_all_readable(binds)
    program = seccomp.filter_program(network=rules["network"], mount_namespace=True)
    descriptor = seccomp.in_memory_file(program)
    readable = [(rules["system"], rules["system_private"]), (rules["read"], rules["private"])]
    arguments = bubblewrap.arguments(readable, binds, rules["shm"], network=rules["network"])
    return ["--seccomp", str(descriptor), *arguments]


def _without_private(paths: list[str], private: list[str]) -> list[str]:
    visible = visible_paths(private)
    return [entry for path in paths for entry in without_private(path, visible)]


def _open_existing(paths: Sequence[str]) -> Iterator[int]:
    for path in paths:
        try:
            yield os.open(path, _O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # the path does not exist, so there is nothing to allow


def _open_own_path(path: str) -> int:
    """Open a path without symbolic links: a program may have replaced a part of it by one."""
    how = (ctypes.c_uint64 * 3)(_O_PATH | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS)
    name = os.fsencode(path)
    descriptor = libc.syscall(_SYS_OPENAT2, -1, name, ctypes.byref(how), ctypes.sizeof(how))
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return int(descriptor)


def _block_signals() -> int:
    """Block the signals that end this process or a child; return a descriptor that reads them."""
    mask = bytearray(_SIGSET_BYTES)
    for signal in (_SIGHUP, _SIGINT, _SIGTERM, _SIGCHLD):
        mask[(signal - 1) // 8] |= 1 << (signal - 1) % 8
    check(libc.sigprocmask(_SIG_BLOCK, bytes(mask), None))
    return check(libc.signalfd(-1, bytes(mask), os.O_CLOEXEC))


def _cannot_signal(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        pass
    return False


def _report(excess: str) -> None:
    print(f"segue: the sandbox uses {excess}; programs were killed", file=sys.stderr)
    sys.stderr.flush()
