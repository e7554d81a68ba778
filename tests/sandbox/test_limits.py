"""A program cannot use more resources than its sandbox may."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from segue.agents.sandbox.launch import Limits
from segue.agents.sandbox.pid_namespace import MAX_RESERVED_IDS

from .harness import ANSWER_SECONDS, SYSTEM_PYTHON, Sandbox, SandboxEnded, open_sandbox

KERNEL = tuple(int(number) for number in os.uname().release.split(".")[:2])
SMALL = Limits(cpu_seconds=1, memory_mb=150, file_mb=2, disk_mb=30, open_files=40, processes=20)
# Starts up to 511 processes, so that it does no harm if nothing stops it. `started` gets a byte for
# each of them, and `finished` one for each process that has stopped to fork.
FORK_BOMB = """
import os, time
flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
started, finished = os.open("started", flags), os.open("finished", flags)
print("ready", flush=True)
input()
for _ in range(9):
    try:
        if os.fork() != 0:
            os.write(started, b".")
    except BlockingIOError:
        pass
os.write(finished, b".")
time.sleep(600)
"""


@pytest.fixture
def limited_sandbox(backend: str, user: str) -> Iterator[Sandbox]:
    """Yield a sandbox of one test, with small limits."""
    with open_sandbox(backend, user, SMALL) as sandbox:
        yield sandbox


def test_memory_file_size_and_open_files_of_a_process_are_limited(limited_sandbox: Sandbox) -> None:
    code = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
value = []
try:
    bytearray(200 << 20)
except MemoryError:
    value.append("memory")
try:
    with open("large", "wb") as file:
        file.write(bytes(3 << 20))
except OSError:
    value.append("file")
try:
    descriptors = [os.open(".", 0) for _ in range(60)]
except OSError:
    value.append("open files")
for kind in (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
    try:
        resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError):
        value.append("unchanged")
"""
    assert limited_sandbox.run(code).value == ["memory", "file", "open files", *["unchanged"] * 3]
    assert (limited_sandbox.files.session / "large").stat().st_size <= 2 << 20


def test_memory_of_all_processes_together_is_limited(limited_sandbox: Sandbox) -> None:
    code = """
import subprocess, sys
hold = "import mmap, time; m = mmap.mmap(-1, 60 << 20); m.write(bytes(60 << 20)); time.sleep(600)"
children = [subprocess.Popen([sys.executable, "-c", hold]) for _ in range(4)]
os.wait()
value = True
"""
    assert limited_sandbox.run(code).value


def test_a_sandbox_whose_files_become_too_large_ends(limited_sandbox: Sandbox) -> None:
    """The files may be written by a program in the background."""
    code = """
import time
if os.fork() == 0:
    os.setsid()
    for number in range(40):
        with open(f"part{number}", "wb") as file:
            file.write(bytes(1 << 20))
    time.sleep(600)
time.sleep(600)
"""
    with pytest.raises(SandboxEnded, match="more than 30 MB of disk space"):
        limited_sandbox.run(code)


def test_a_sandbox_with_too_many_processes_ends(limited_sandbox: Sandbox) -> None:
    code = """
import time
for _ in range(40):
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
        os._exit(0)
time.sleep(600)
"""
    with pytest.raises(SandboxEnded, match="more than 20 processes"):
        limited_sandbox.run(code)


@pytest.mark.skipif(os.getuid() != 0, reason="the kernel limits other users with RLIMIT_NPROC")
@pytest.mark.skipif(KERNEL < (6, 14), reason="PID namespaces have no limit before Linux 6.14")
def test_the_kernel_stops_a_fork_bomb_of_root_while_the_supervisor_does_not_run(
    backend: str,
) -> None:
    with open_sandbox(backend, "own") as sandbox:
        command, env = sandbox.command([SYSTEM_PYTHON, "-I", "-c", FORK_BOMB], SMALL)
        supervisor = subprocess.Popen(
            command,
            env=env,
            cwd=sandbox.files.session,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert supervisor.stdin is not None and supervisor.stdout is not None
        try:
            assert supervisor.stdout.readline() == b"ready\n"
            supervisor.send_signal(signal.SIGSTOP)
            supervisor.stdin.write(b"start\n")
            supervisor.stdin.flush()
            started, finished = (sandbox.files.session / name for name in ("started", "finished"))
            deadline = time.monotonic() + ANSWER_SECONDS
            while finished.stat().st_size <= started.stat().st_size:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            supervisor.send_signal(signal.SIGCONT)
            _, errors = supervisor.communicate(timeout=ANSWER_SECONDS)
        assert SMALL.processes < started.stat().st_size <= SMALL.processes + MAX_RESERVED_IDS
        assert supervisor.returncode == 137 and b"more than 20 processes" in errors


@pytest.mark.full
def test_processor_time_of_a_process_is_limited(limited_sandbox: Sandbox) -> None:
    code = """
import subprocess, sys
value = subprocess.run([sys.executable, "-c", "while True: pass"]).returncode
"""
    assert limited_sandbox.run(code).value in (-9, -24)  # SIGKILL or SIGXCPU


@pytest.mark.full
def test_a_loop_that_forks_ends_and_leaves_no_process(backend: str, user: str) -> None:
    # One loop, and not a bomb, which would slow down everything else on this machine.
    with open_sandbox(backend, user) as sandbox:
        loop = "while :; do setsid sleep 600 & done"
        command, env = sandbox.command(["bash", "-c", loop], SMALL._replace(processes=100))
        result = subprocess.run(
            command,
            env=env,
            cwd=sandbox.files.session,
            capture_output=True,
            timeout=5 * ANSWER_SECONDS,
            check=False,
            **sandbox.as_user,
        )
        assert result.returncode == 137  # and it waited for the end of all processes
