"""Sandboxes get a cgroup of their own where the system has delegated a part of the hierarchy."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from segue.agents.sandbox import cgroup

from .harness import skip_unless_available

LIMITS = {"memory_mb": 100, "processes": 30}
# Runs in the leaf group of a delegated one: starts a sandbox that leaves a daemon behind.
IN_DELEGATED_GROUP = """
import os, subprocess, sys
from segue.agents.sandbox import cgroup, launch
parent, directory = sys.argv[1:]
with open(f"{parent}/server/cgroup.procs", "w") as file:
    file.write("0")
assert cgroup.delegated_parent() == parent, cgroup.delegated_parent()
command, env = launch.supervised_command(
    ["bash", "-c", "setsid sleep 600 & cat /proc/self/cgroup"], {"PATH": os.defpath}
)
output = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
print("in a group of its own" if "/segue-" in output else output)
print(sorted(name for name in os.listdir(parent) if os.path.isdir(f"{parent}/{name}")))
"""
# The same, with a program that forks until it cannot, and one that uses too much memory.
LIMITS_IN_GROUP = """
import os, subprocess, sys
from segue.agents.sandbox import launch
parent, directory, backend = sys.argv[1:]
with open(f"{parent}/server/cgroup.procs", "w") as file:
    file.write("0")
launch.backend = lambda *, isolated: backend
policy = launch.Policy(
    write=[directory], isolated=True, limits=launch.Limits(memory_mb=100, processes=30)
)

def run(code):
    command, env = launch.sandboxed_command(
        ["/usr/bin/python3", "-I", "-c", code], {"PATH": os.defpath}, policy
    )
    return subprocess.run(command, env=env, cwd=directory, capture_output=True, text=True)

fork = '''
import os, time
count = 0
try:
    while os.fork():
        count += 1
    time.sleep(600)
except BlockingIOError:
    print(count)
'''
print(0 < int(run(fork).stdout) < 30)
print("Killed" if run("text = 'x' * (200 << 20)").returncode == 137 else "")
print(sorted(name for name in os.listdir(parent) if os.path.isdir(f"{parent}/{name}")))
"""


def unified_hierarchy() -> Path | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            return Path(line.split(" ")[4])
    return None


@pytest.fixture
def delegated_group() -> Iterator[Path]:
    """Yield a delegated group with a leaf group `server`."""
    if os.getuid() != 0:
        pytest.skip("only root can delegate a group to itself")
    root = unified_hierarchy()
    if root is None:
        pytest.skip("there is no cgroup2 hierarchy")
    parent = root / f"segue-test-{os.getpid()}"
    try:
        (parent / "server").mkdir(parents=True)
        os.setxattr(parent, "user.delegate", b"1")
    except OSError as error:
        pytest.skip(f"this machine's cgroups cannot be changed: {error}")
    try:
        yield parent
    finally:
        (parent / "server").rmdir()
        parent.rmdir()


def run_in_leaf_group(code: str, *arguments: str) -> str:
    """Run Python code in another process, and return its output."""
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_sandbox_in_a_delegated_hierarchy_has_its_own_group(
    delegated_group: Path, tmp_path: Path
) -> None:
    output = run_in_leaf_group(IN_DELEGATED_GROUP, str(delegated_group), str(tmp_path))
    assert output == "in a group of its own\n['server']\n"


def test_the_kernel_limits_memory_and_processes_of_a_group(
    delegated_group: Path, backend: str, tmp_path: Path
) -> None:
    skip_unless_available(backend, "own")
    controllers = (delegated_group / "cgroup.controllers").read_text().split()
    if missing := {"memory", "pids"} - {*controllers}:
        pytest.skip(f"this cgroup2 hierarchy does not have the controllers {sorted(missing)}")
    (delegated_group / "cgroup.subtree_control").write_text("+memory +pids")
    output = run_in_leaf_group(LIMITS_IN_GROUP, str(delegated_group), str(tmp_path), backend)
    # Fewer than 30 forks succeed, because the sandbox has processes of its own.
    assert output == "True\nKilled\n['server']\n"


def test_a_sandbox_without_a_delegated_hierarchy_has_no_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cgroup, "_is_delegated", lambda directory: False)
    assert cgroup.create(LIMITS) is None


def test_a_cgroup_gets_the_limits_of_its_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "delegated_parent", lambda: str(tmp_path))
    make_directory = os.mkdir

    def make_group(path: str) -> None:
        make_directory(path)
        for name in ("cgroup.kill", "memory.max", "memory.swap.max", "pids.max"):
            (Path(path) / name).touch()

    monkeypatch.setattr(os, "mkdir", make_group)
    path = cgroup.create(LIMITS)
    assert path is not None and cgroup.enforces_limits(path)
    contents = {file.name: file.read_text() for file in Path(path).iterdir()}
    assert contents == {
        "cgroup.kill": "",
        "memory.max": str(100 << 20),
        "memory.swap.max": "0",
        "pids.max": "30",
    }
