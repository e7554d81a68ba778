"""Escapes through other processes: signals, limits, priorities, memory and /proc."""

import os
from pathlib import Path

import pytest

from .harness import Sandbox

DENIED = ("EPERM", "ESRCH", "EACCES", "ENOENT", "ENOSYS")


@pytest.mark.parametrize(
    "code",
    [
        "os.kill(pid, 0)",
        "os.kill(pid, 9)",
        "import signal; signal.pidfd_send_signal(os.pidfd_open(pid), 9)",
        "import resource; resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1))",
        "import resource; resource.prlimit(pid, resource.RLIMIT_NOFILE)",
        "os.setpriority(os.PRIO_PROCESS, pid, 19)",
        "os.setpriority(os.PRIO_PGRP, os.getpgid(pid), 19)",
        "os.setpriority(os.PRIO_USER, os.getuid(), 19)",
        "os.sched_setaffinity(pid, {0})",
        "os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))",
        "syscall(251 if os.uname().machine == 'x86_64' else 30, 1, pid, 0)",  # ioprio_set
        "open(f'/proc/{pid}/environ').read()",
        "open(f'/proc/{pid}/mem', 'rb').read(1)",
        "open(f'/proc/{pid}/maps').read()",
        "open(f'/proc/{pid}/cmdline').read()",
        "os.listdir(f'/proc/{pid}/fd')",
        "os.listdir(f'/proc/{pid}/root/')",
        "open(f'/proc/{pid}/oom_score_adj', 'w').write('1000')",
        "open(f'/proc/{pid}/comm', 'w').write('x')",
    ],
)
def test_a_program_cannot_reach_a_process_of_the_same_user(sandbox: Sandbox, code: str) -> None:
    pid = sandbox.victim.pid
    limits = Path(f"/proc/{pid}/limits").read_text()
    priority = os.getpriority(os.PRIO_PROCESS, pid)
    affinity = os.sched_getaffinity(pid)
    assert sandbox.run(code, pid=pid).errno in DENIED
    assert sandbox.victim.poll() is None
    assert Path(f"/proc/{pid}/limits").read_text() == limits
    assert os.getpriority(os.PRIO_PROCESS, pid) == priority
    assert os.sched_getaffinity(pid) == affinity


@pytest.mark.parametrize("pid", [1, os.getpid()])
def test_a_program_cannot_signal_init_or_segue(sandbox: Sandbox, pid: int) -> None:
    answer = sandbox.run("os.kill(pid, 0)", pid=pid)
    # In a PID namespace, process 1 is the sandbox's own.
    assert answer.errno in DENIED or (pid == 1 and sandbox.backend == "bubblewrap")


def test_a_signal_to_all_processes_reaches_only_the_sandbox(sandbox: Sandbox) -> None:
    code = """
import signal, subprocess
child = subprocess.Popen(["sleep", "600"])
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
os.kill(-1, signal.SIGUSR1)
value = child.wait(60)
"""
    assert sandbox.run(code).value == -10
    assert sandbox.victim.poll() is None


@pytest.mark.parametrize(
    "path",
    [
        "/proc/sysrq-trigger",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/hostname",
        "/proc/sys/vm/drop_caches",
        "/sys/kernel/uevent_helper",
        "/proc/self/uid_map",
        "/proc/self/attr/current",
        "/sys/fs/cgroup/cgroup.procs",
        "/dev/kmsg",
        "/dev/mem",
        "/dev/shm/escape",
    ],
)
def test_a_program_cannot_write_to_the_kernels_files(sandbox: Sandbox, path: str) -> None:
    # /dev/shm may be a directory of the sandbox's own.
    answer = sandbox.run("os.open(path, os.O_WRONLY | os.O_CREAT)", path=path)
    if path == "/dev/shm/escape" and sandbox.backend == "bubblewrap":
        assert not os.path.exists(path)
    elif path == "/proc/self/uid_map" and answer.errno is None:
        code = "os.write(os.open(path, os.O_WRONLY), b'0 0 1')"
        assert sandbox.run(code, path=path).errno == "EPERM"
    elif path == "/proc/self/attr/current" and answer.errno is None:
        pytest.skip("without a security module this file has no effect")
    else:
        assert answer.errno in (*DENIED, "EROFS")


@pytest.mark.parametrize("path", ["/proc/kcore", "/proc/kallsyms", "/proc/kmsg", "/proc/slabinfo"])
def test_a_program_reads_nothing_of_the_kernels_memory(sandbox: Sandbox, path: str) -> None:
    answer = sandbox.run("value = len(open(path, 'rb').read(64))", path=path)
    assert answer.errno in DENIED or answer.value == 0


def test_a_program_does_not_see_other_processes_in_proc(sandbox: Sandbox) -> None:
    answer = sandbox.run("value = [n for n in os.listdir('/proc') if n.isdigit()]")
    if sandbox.backend == "landlock":
        assert answer.errno == "EACCES"
    else:
        assert len(answer.value) <= 5
