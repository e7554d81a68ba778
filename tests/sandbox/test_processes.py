"""Escapes through other processes: signals, limits, priorities, memory and /proc."""

import os
import subprocess
from pathlib import Path

from .harness import ANSWER_SECONDS, Sandbox

DENIED = ("EPERM", "ESRCH", "EACCES", "ENOENT", "ENOSYS")


REACHING = [
    "os.kill(pid, 0)",
    "os.kill(pid, 9)",
    "import signal; signal.pidfd_send_signal(os.pidfd_open(pid), 9)",
    "import resource; resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1))",
    "import resource; resource.prlimit(pid, resource.RLIMIT_NOFILE)",
    "syscall(234 if os.uname().machine == 'x86_64' else 131, pid, pid, 9)",  # tgkill
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
]


def test_a_program_cannot_reach_a_process_of_the_same_user(sandbox: Sandbox) -> None:
    pid = sandbox.victim.pid
    limits = Path(f"/proc/{pid}/limits").read_text()
    priority = os.getpriority(os.PRIO_PROCESS, pid)
    affinity = os.sched_getaffinity(pid)
    assert sandbox.successes(REACHING, DENIED, pid=pid) == []
    assert sandbox.victim.poll() is None
    assert Path(f"/proc/{pid}/limits").read_text() == limits
    assert os.getpriority(os.PRIO_PROCESS, pid) == priority
    assert os.sched_getaffinity(pid) == affinity


def test_a_program_cannot_signal_init_or_segue(sandbox: Sandbox) -> None:
    assert sandbox.run("os.kill(pid, 0)", pid=os.getpid()).errno in DENIED
    # In a PID namespace, process 1 is the sandbox's own.
    assert sandbox.run("os.kill(1, 0)").errno in DENIED or sandbox.backend == "bubblewrap"


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


def test_a_program_cannot_write_to_the_kernels_files(sandbox: Sandbox) -> None:
    paths = [
        "/proc/sysrq-trigger",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/hostname",
        "/proc/sys/vm/drop_caches",
        "/sys/kernel/uevent_helper",
        "/sys/fs/cgroup/cgroup.procs",
        "/dev/kmsg",
        "/dev/mem",
        "/dev/escape",
    ]
    codes = [f"os.open({path!r}, os.O_WRONLY | os.O_CREAT)" for path in paths]
    codes.append("os.write(os.open('/proc/self/uid_map', os.O_WRONLY), b'0 0 1')")
    assert sandbox.successes(codes, (*DENIED, "EROFS")) == []


def test_shared_memory_of_other_programs_is_not_visible(sandbox: Sandbox) -> None:
    path = Path(f"/dev/shm/segue-escape-{os.getpid()}")
    path.touch(mode=0o666)
    try:
        assert sandbox.successes(["open(path)"], DENIED, path=str(path)) == []
    finally:
        path.unlink()


def test_a_program_reads_nothing_of_the_kernels_memory(sandbox: Sandbox) -> None:
    paths = ("/proc/kcore", "/proc/kallsyms", "/proc/kmsg", "/proc/slabinfo", "/proc/kpageflags")
    for path in paths:
        answer = sandbox.run("value = len(open(path, 'rb').read(64))", path=path)
        assert answer.errno in DENIED or answer.value == 0


def test_a_program_inherits_no_descriptors(sandbox: Sandbox) -> None:
    code = """
value = []
for descriptor in range(3, 1024):
    try:
        value.append(str(os.fstat(descriptor)))
    except OSError:
        pass
"""
    command = ["/usr/bin/python3", "-I", "-c", f"import os\n{code}\nprint(value)"]
    command, env = sandbox.command(command)
    result = subprocess.run(
        command,
        env=env,
        cwd=sandbox.files.session,
        capture_output=True,
        text=True,
        timeout=ANSWER_SECONDS,
        check=True,
        **sandbox.as_user,
    )
    assert result.stdout == "[]\n"


def test_a_program_does_not_see_other_processes_in_proc(sandbox: Sandbox) -> None:
    answer = sandbox.run("value = [n for n in os.listdir('/proc') if n.isdigit()]")
    if sandbox.backend == "landlock":
        assert answer.errno == "EACCES"
    else:
        assert len(answer.value) <= 5
