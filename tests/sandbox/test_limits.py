"""A program cannot use more resources than its sandbox may."""

import subprocess
from collections.abc import Iterator

import pytest

from segue.agents.sandbox.launch import Limits

from .harness import ANSWER_SECONDS, Sandbox, SandboxEnded, open_sandbox

SMALL = Limits(cpu_seconds=1, memory_mb=150, file_mb=2, open_files=40, processes=20)


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
