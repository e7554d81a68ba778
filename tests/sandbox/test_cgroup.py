"""Sandboxes get a cgroup of their own where the system has delegated a part of the hierarchy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from segue.agents.sandbox import cgroup

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


def unified_hierarchy() -> Path | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            return Path(line.split(" ")[4])
    return None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can delegate a group to itself")
def test_a_sandbox_in_a_delegated_hierarchy_has_its_own_group(tmp_path: Path) -> None:
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
        result = subprocess.run(
            [sys.executable, "-c", IN_DELEGATED_GROUP, str(parent), str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.stdout == "in a group of its own\n['server']\n", result.stderr
    finally:
        (parent / "server").rmdir()
        parent.rmdir()


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
