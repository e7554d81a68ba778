"""Tests of bash: the shell persists between commands, and the sandbox holds."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from segue.agents.sandbox import launch
from segue.agents.tools import ShellPool
from segue.model.event import ToolResult
from tests.sandbox.backends import skip_unless_backend_works

from .session_directory import SessionDirectory, text_of


@pytest.fixture(params=["landlock", "bubblewrap"])
def sandboxed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test with each sandbox backend of this machine."""
    backend: str = request.param
    skip_unless_backend_works(backend)
    monkeypatch.setattr(launch, "backend", lambda *, isolated: backend)
    return backend


async def run(
    directory: SessionDirectory, *commands: Any, local: bool = True, level: str = "write"
) -> list[ToolResult]:
    """Run commands, each a string or the tool's arguments, in one shell; return the results."""
    shells = ShellPool()
    context = directory.context(local=local, shells=shells, config={"bash.confine": level})
    try:
        return [await directory.run("bash", context, **_arguments(command)) for command in commands]
    finally:
        await shells.close()


def _arguments(command: str | dict[str, Any]) -> dict[str, Any]:
    return {"command": command} if isinstance(command, str) else command


@pytest.mark.usefixtures("sandboxed")
async def test_the_shell_keeps_its_state_between_commands(directory: SessionDirectory) -> None:
    *_, last = await run(directory, "mkdir sub; cd sub; X=1; f() { echo f$X; }", "pwd; f")
    assert text_of(last) == f"{directory.path}/sub\nf1\n"


async def test_a_nonzero_exit_code_fails_with_the_output(directory: SessionDirectory) -> None:
    first, second = await run(directory, "echo out; echo err >&2; false", "echo $?")
    assert first.status == "failed" and text_of(first) == "out\nerr\n\n\n[exit code 1]"
    assert second.status == "completed"


@pytest.mark.parametrize(
    "command",
    [
        "cat",
        "read x; echo got $x",
        "echo 'unclosed",
        "(",
        "exec >/dev/null; echo hidden",
        "cat <<E",
    ],
)
async def test_unusual_commands_neither_hang_nor_break_the_next_command(
    directory: SessionDirectory, command: str
) -> None:
    _, restarted, last = await run(directory, command, {"restart": True}, "echo fine")
    assert text_of(restarted) == "The shell was restarted."
    assert text_of(last) == "fine\n"


async def test_a_command_cannot_forge_its_exit_status(directory: SessionDirectory) -> None:
    (result,) = await run(
        directory, "for n in 3 4 5 6 7 8 9 10 11 12; do echo x 0 >&$n; done; echo end"
    )
    assert text_of(result).endswith("end\n")


async def test_exit_ends_the_shell_and_the_next_command_starts_a_new_one(
    directory: SessionDirectory,
) -> None:
    first, second = await run(directory, "X=1; exit 3", "echo [$X]")
    assert first.status == "failed" and "the shell ended" in text_of(first)
    assert "[exit code 3]" in text_of(first) and first.exit_code == 3
    assert text_of(second) == "[]\n"


@pytest.mark.usefixtures("sandboxed")
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("true", 0),
        ("(exit 7)", 7),
        ("exit 7", 7),
        ("exit 0", 0),
        ("exec false", 1),
        ("kill -9 $$", 137),
    ],
)
async def test_every_command_has_its_exit_code(
    directory: SessionDirectory, command: str, code: int
) -> None:
    (result,) = await run(directory, command)
    assert (result.exit_code, result.status) == (code, "failed" if code else "completed")


@pytest.mark.usefixtures("sandboxed")
async def test_a_timeout_kills_the_command_and_its_children(directory: SessionDirectory) -> None:
    slow = {"command": "echo before; sleep 300 & echo $! > pid; wait", "timeout_ms": 400}
    _, first, second = await run(directory, "true", slow, "echo after")
    assert first.status == "failed" and text_of(first).startswith("before\n")
    assert text_of(second) == "after\n"
    pid = int((directory.path / "pid").read_text())
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or " Z " in state.read_text()


async def test_cancelling_kills_the_command_at_once(directory: SessionDirectory) -> None:
    shells = ShellPool()
    context = directory.context(shells=shells)
    task = asyncio.create_task(directory.run("bash", context, command="echo $$ > pid; sleep 300"))
    while not (directory.path / "pid").exists() or not (directory.path / "pid").read_text():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    pid = int((directory.path / "pid").read_text())
    assert not os.path.exists(f"/proc/{pid}")
    await shells.close()


@pytest.mark.usefixtures("sandboxed")
async def test_a_background_process_does_not_delay_the_result(directory: SessionDirectory) -> None:
    first, second = await run(directory, "sleep 300 & echo begun", "jobs | wc -l")
    assert text_of(first) == "begun\n" and text_of(second).strip() == "1"


async def test_long_output_keeps_its_beginning_and_end(directory: SessionDirectory) -> None:
    (result,) = await run(directory, "echo first; yes | head -c 3000000; echo last")
    text = text_of(result)
    assert text.startswith("first\n") and text.endswith("last\n")
    assert "left out" in text and len(text) < 40_000


async def test_commands_do_not_inherit_the_secrets_of_the_environment(
    directory: SessionDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-hidden")
    monkeypatch.setenv("SEGUE_SECRET_KEY", "hidden")
    for local in (True, False):
        (result,) = await run(directory, "env", local=local)
        assert result.status == "completed"
        assert "hidden" not in text_of(result) and "PATH=" in text_of(result)


async def test_invalid_utf8_output_is_replaced(directory: SessionDirectory) -> None:
    (result,) = await run(directory, "printf 'a\\xffb\\n'; echo 'ü€😀'")
    assert text_of(result) == "a\ufffdb\nü€😀\n"


async def test_an_idle_shell_is_closed(directory: SessionDirectory) -> None:
    shells = ShellPool(idle_seconds=1.0)  # longer than a shell takes to start
    context = directory.context(shells=shells)
    await directory.run("bash", context, command="X=1")
    async with asyncio.timeout(60):
        while text_of(await directory.run("bash", context, command="echo [$X]")) != "[]\n":
            await asyncio.sleep(1.2)
    await shells.close()


# The sandbox.


@pytest.mark.usefixtures("sandboxed")
@pytest.mark.parametrize(
    "command",
    [
        "cat ../secret.txt",
        "cat {secret}",
        "ln -s {secret} l; cat l",
        "ln {secret} hard; cat hard",
        "cp {secret} .",
        "ls {top} | grep -v inside",
        "cat /etc/shadow",
        "cat /proc/{pid}/environ",
        "cat /proc/{pid}/cmdline",
        "cat /proc/self/root{secret}",
        "echo x > {secret}",
        "echo x > {top}/new",
        "rm {secret}",
        "mv {secret} .",
        "kill -0 {pid}",
        "mknod d c 1 3",
        "mount -t tmpfs none .",
        "unshare -Urm mount -o remount,rw,bind /usr",
        "unshare -Urm sh -c 'umount -l /proc && cat {secret}'",
        "echo > /dev/tcp/127.0.0.1/{port}",
        "echo > /dev/udp/127.0.0.1/{port}",
        "{python} -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{top}/sock\")'",
    ],
)
async def test_a_remote_callers_bash_cannot_leave_the_sandbox(
    directory: SessionDirectory, command: str
) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    unix = await asyncio.start_unix_server(lambda *_: None, str(directory.parent / "sock"))
    port = server.sockets[0].getsockname()[1]
    values = {
        "secret": directory.secret,
        "top": directory.parent,
        "pid": os.getpid(),
        "port": port,
        "python": "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable,
    }
    (result,) = await run(directory, command.format(**values), local=False)
    server.close()
    unix.close()
    assert result.status == "failed", text_of(result)
    assert "SECRET" not in text_of(result)
    assert directory.secret.read_text() == "SECRET"
    assert not (directory.parent / "new").exists()


@pytest.mark.usefixtures("sandboxed")
async def test_a_remote_callers_bash_works_in_the_directory(directory: SessionDirectory) -> None:
    command = (
        "echo one > a; mkdir d; mv a d/b; cat d/b | tr o O; ln d/b d/c; rm d/c;"
        " cat <(echo sub); echo x > $TMPDIR/t; echo gone > /dev/null; ls $HOME"
    )
    (result,) = await run(directory, command, local=False)
    assert (result.status, text_of(result)) == ("completed", "One\nsub\nt\n")


@pytest.mark.usefixtures("sandboxed")
async def test_the_local_users_bash_reads_everything_and_writes_in_the_directory(
    directory: SessionDirectory,
) -> None:
    read, wrote, wrote_outside = await run(
        directory, f"cat {directory.secret}", "echo x > a && cat a", f"echo x > {directory.secret}"
    )
    assert text_of(read) == "SECRET" and text_of(wrote) == "x\n"
    # The local user may write to these directories, and the test uses one of them.
    if not str(directory.parent).startswith(("/dev/shm", "/tmp", "/var/tmp")):
        assert wrote_outside.status == "failed"
    strict = await run(directory, f"cat {directory.secret}", level="strict")
    assert strict[0].status == "failed"


async def test_without_a_sandbox_only_the_local_user_has_bash(
    directory: SessionDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "backend", lambda *, isolated: None)
    (refused,) = await run(directory, "echo hi", local=False)
    assert refused.status == "failed" and "only its local user" in text_of(refused)
    (strict,) = await run(directory, "echo hi", level="strict")
    assert strict.status == "failed"
    (allowed,) = await run(directory, "echo hi")
    assert text_of(allowed) == "hi\n"


@pytest.mark.parametrize(
    ("landlock_abi", "bubblewrap_works", "isolated", "not_isolated"),
    [
        (6, True, "bubblewrap", "landlock"),
        (6, False, "landlock", "landlock"),
        (3, True, "bubblewrap", "landlock"),
        (3, False, None, "landlock"),
        (0, True, "bubblewrap", "bubblewrap"),
        (0, False, None, None),
    ],
)
def test_isolated_programs_run_in_bubblewrap_and_others_in_landlock_if_they_can(
    landlock_abi: int,
    bubblewrap_works: bool,
    isolated: str | None,
    not_isolated: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch, "landlock_abi", lambda: landlock_abi)
    monkeypatch.setattr(launch, "bubblewrap_works", lambda: bubblewrap_works)
    assert launch.backend(isolated=True) == isolated
    assert launch.backend(isolated=False) == not_isolated
