"""No process outlives its shell, its session or segue."""

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from segue.agents.sandbox import launch, scratch
from segue.agents.tools import BUILT_IN, PathGuard, ShellPool, ToolContext
from segue.agents.tools.bash import BashInput

from .harness import skip_unless_available

WAIT_SECONDS = 60
# Runs a command in a shell, prints "ready" and waits to be killed.
SERVER = """
import asyncio, json, sys
from segue.agents.sandbox import launch
from segue.agents.tools import BUILT_IN, PathGuard, ShellPool, ToolContext
from segue.agents.tools.bash import BashInput

async def main():
    backend, directory, local, command = json.loads(sys.argv[1])
    if backend:
        launch.backend = lambda *, isolated: backend
    context = ToolContext("killed", PathGuard([directory]), local, {}, ShellPool())
    await BUILT_IN["bash"].run(context, BashInput(command=command))
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def processes_with(token: str) -> list[int]:
    """Return the processes whose command line contains a token."""
    pids = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and path.name != str(os.getpid()):
            try:
                if token.encode() in (path / "cmdline").read_bytes().split(b"\0"):
                    pids.append(int(path.name))
            except OSError:
                continue
    return pids


def daemons(token: str) -> str:
    """Return a shell command that starts processes that try to outlive it."""
    sleep = f"bash -c 'sleep 600; true' {token}"
    return (
        f"setsid {sleep} & (setsid {sleep} &) ; nohup {sleep} >/dev/null 2>&1 & disown;"
        f" (trap '' TERM HUP INT; {sleep}) & sleep 0.3"
    )


@pytest.mark.parametrize("level", ["strict", "write", "off"])
async def test_closing_a_shell_ends_its_daemons(
    backend: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_unless_available(backend, "own")
    monkeypatch.setattr(launch, "backend", lambda *, isolated: backend)
    token = secrets.token_hex(8)
    shells = ShellPool()
    context = ToolContext(
        "lifetime", PathGuard([str(tmp_path)]), True, {"bash.confine": level}, shells
    )
    await BUILT_IN["bash"].run(context, BashInput(command=daemons(token)))
    assert len(processes_with(token)) >= 3
    await shells.close()
    assert processes_with(token) == []


@pytest.mark.parametrize("local", [True, False])
async def test_killing_segue_ends_its_daemons(backend: str, local: bool, tmp_path: Path) -> None:
    skip_unless_available(backend, "own")
    token = secrets.token_hex(8)
    arguments = json.dumps([backend, str(tmp_path), local, daemons(token)])
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, arguments], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    with server.stdout:
        assert server.stdout.readline() == "ready\n"
        assert len(processes_with(token)) >= 3
        server.send_signal(signal.SIGKILL)
        server.wait()
    async with asyncio.timeout(WAIT_SECONDS):
        while processes_with(token):
            await asyncio.sleep(0.05)


async def test_a_program_cannot_stop_its_supervisor(backend: str, tmp_path: Path) -> None:
    skip_unless_available(backend, "own")
    policy = launch.Policy(write=[str(tmp_path)], isolated=True)
    command, env = launch._supervisor_command(
        ["bash", "-c", "kill -9 $PPID; kill -9 -- -1; kill -STOP $PPID; echo still here"],
        {"PATH": os.defpath},
        policy,
        "landlock" if backend == "landlock" else "bubblewrap",
    )
    result = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )
    assert result.returncode in (0, 137) and "segue" not in result.stdout


@pytest.mark.skipif(os.getuid() != 0, reason="only root's programs have a PID namespace")
async def test_killing_the_supervisor_ends_its_daemons(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_unless_available(backend, "own")
    monkeypatch.setattr(launch, "backend", lambda *, isolated: backend)
    token = secrets.token_hex(8)
    policy = launch.Policy(write=[str(tmp_path)], isolated=True, limits=launch.Limits())
    command, env = launch.sandboxed_command(
        ["bash", "-c", f"{daemons(token)}; echo ready; sleep 600"], {"PATH": os.defpath}, policy
    )
    supervisor = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.PIPE)
    assert supervisor.stdout is not None
    with supervisor.stdout:
        assert supervisor.stdout.readline() == b"ready\n"
    assert len(processes_with(token)) >= 3
    supervisor.kill()
    supervisor.wait()
    async with asyncio.timeout(WAIT_SECONDS):
        while processes_with(token):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("session", ["", "..", "../victim", "{victim}"])
def test_only_directories_of_sessions_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = scratch.make_scratch_directory("kept")
    victim = tmp_path / "victim"
    victim.mkdir()
    with pytest.raises(ValueError, match="does not name a directory"):
        scratch.remove_scratch_directory(session.format(victim=victim))
    assert victim.exists() and kept.exists()
    scratch.remove_scratch_directory("kept")
    assert not kept.exists()
