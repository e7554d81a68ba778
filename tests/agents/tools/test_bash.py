"""bash: one shell from command to command, and the walls around it."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from segue.agents.tools import ShellPool, sandbox
from segue.model.event import ToolResult

from .place import Place, told


@pytest.fixture(params=["landlock", "bubblewrap"])
def walls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way of confining that this machine has."""
    way: str = request.param
    if way == "landlock" and sandbox.version() < sandbox.ALONE_SINCE:
        pytest.skip(f"this kernel has no Landlock {sandbox.ALONE_SINCE}")
    if way == "bubblewrap" and not sandbox.wraps():
        pytest.skip("there is no bwrap here that may make namespaces")
    monkeypatch.setattr(sandbox, "way", lambda alone: way)
    return way


async def run(
    place: Place, *commands: Any, local: bool = True, confined: str = "write"
) -> list[ToolResult]:
    """Results of commands, each a string or the tool's arguments, in one shell."""
    shells = ShellPool()
    context = place.context(local=local, shells=shells, config={"bash.confine": confined})
    try:
        return [
            await place.use("bash", context, **(c if isinstance(c, dict) else {"command": c}))
            for c in commands
        ]
    finally:
        await shells.close()


@pytest.mark.usefixtures("walls")
async def test_the_shell_stays_from_one_command_to_the_next(place: Place) -> None:
    *_, last = await run(place, "mkdir sub; cd sub; X=1; f() { echo f$X; }", "pwd; f")
    assert told(last) == f"{place.inside}/sub\nf1\n"


async def test_a_code_that_is_not_zero_is_a_failure_with_its_output(place: Place) -> None:
    first, second = await run(place, "echo out; echo err >&2; false", "echo $?")
    assert first.status == "failed" and told(first) == "out\nerr\n\n\n[exit code 1]"
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
async def test_odd_commands_neither_hang_nor_spoil_the_next(place: Place, command: str) -> None:
    _, restarted, last = await run(place, command, {"restart": True}, "echo fine")
    assert told(restarted) == "The shell was restarted."
    assert told(last) == "fine\n"


async def test_a_command_cannot_pretend_to_be_over(place: Place) -> None:
    (result,) = await run(
        place, "for n in 3 4 5 6 7 8 9 10 11 12; do echo x 0 >&$n; done; echo end"
    )
    assert told(result).endswith("end\n")


async def test_exit_ends_the_shell_and_the_next_command_gets_a_new_one(place: Place) -> None:
    first, second = await run(place, "X=1; exit 3", "echo [$X]")
    assert first.status == "failed" and "the shell ended" in told(first)
    assert told(second) == "[]\n"


@pytest.mark.usefixtures("walls")
async def test_time_runs_out_and_everything_it_began_is_killed(place: Place) -> None:
    slow = {"command": "echo before; sleep 300 & echo $! > pid; wait", "timeout_ms": 400}
    _, first, second = await run(place, "true", slow, "echo after")
    assert first.status == "failed" and told(first).startswith("before\n")
    assert told(second) == "after\n"
    pid = int((place.inside / "pid").read_text())
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or " Z " in state.read_text()


async def test_a_cancelled_command_is_killed_at_once(place: Place) -> None:
    shells = ShellPool()
    context = place.context(shells=shells)
    task = asyncio.create_task(place.use("bash", context, command="echo $$ > pid; sleep 300"))
    while not (place.inside / "pid").exists() or not (place.inside / "pid").read_text():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    pid = int((place.inside / "pid").read_text())
    assert not os.path.exists(f"/proc/{pid}")
    await shells.close()


@pytest.mark.usefixtures("walls")
async def test_what_runs_in_the_background_does_not_hold_up_the_command(place: Place) -> None:
    first, second = await run(place, "sleep 300 & echo begun", "jobs | wc -l")
    assert told(first) == "begun\n" and told(second).strip() == "1"


async def test_endless_output_keeps_its_beginning_and_its_end(place: Place) -> None:
    (result,) = await run(place, "echo first; yes | head -c 3000000; echo last")
    text = told(result)
    assert text.startswith("first\n") and text.endswith("last\n")
    assert "left out" in text and len(text) < 40_000


async def test_nothing_of_our_environment_is_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-hidden")
    monkeypatch.setenv("SEGUE_SECRET_KEY", "hidden")
    for local in (True, False):
        (result,) = await run(place, "env", local=local)
        assert result.status == "completed"
        assert "hidden" not in told(result) and "PATH=" in told(result)


async def test_odd_bytes_are_taken_in_and_given_out(place: Place) -> None:
    (result,) = await run(place, "printf 'a\\xffb\\n'; echo 'ü€😀'")
    assert told(result) == "a\ufffdb\nü€😀\n"


async def test_a_shell_that_is_left_alone_is_closed(place: Place) -> None:
    shells = ShellPool(idle=0.05)
    context = place.context(shells=shells)
    await place.use("bash", context, command="X=1")
    async with asyncio.timeout(10):
        while told(await place.use("bash", context, command="echo [$X]")) != "[]\n":
            await asyncio.sleep(0.2)
    await shells.close()


# The walls.


@pytest.mark.usefixtures("walls")
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
async def test_a_stranger_s_bash_cannot_leave(place: Place, command: str) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    unix = await asyncio.start_unix_server(lambda *_: None, str(place.top / "sock"))
    port = server.sockets[0].getsockname()[1]
    told_of = {
        "secret": place.secret,
        "top": place.top,
        "pid": os.getpid(),
        "port": port,
        "python": "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable,
    }
    (result,) = await run(place, command.format(**told_of), local=False)
    server.close()
    unix.close()
    assert result.status == "failed", told(result)
    assert "SECRET" not in told(result)
    assert place.secret.read_text() == "SECRET"
    assert not (place.top / "new").exists()


@pytest.mark.usefixtures("walls")
async def test_a_stranger_s_bash_works_inside(place: Place) -> None:
    command = (
        "echo one > a; mkdir d; mv a d/b; cat d/b | tr o O; ln d/b d/c; rm d/c;"
        " cat <(echo sub); echo x > $TMPDIR/t; echo gone > /dev/null; ls $HOME"
    )
    (result,) = await run(place, command, local=False)
    assert (result.status, told(result)) == ("completed", "One\nsub\nt\n")


@pytest.mark.usefixtures("walls")
async def test_the_local_user_s_bash_reads_all_and_writes_inside(place: Place) -> None:
    read, wrote, elsewhere = await run(
        place, f"cat {place.secret}", "echo x > a && cat a", f"echo x > {place.secret}"
    )
    assert told(read) == "SECRET" and told(wrote) == "x\n"
    # These directories belong to everyone, and the test's directory is below one of them.
    if not str(place.top).startswith(("/dev/shm", "/tmp", "/var/tmp")):
        assert elsewhere.status == "failed"
    strict = await run(place, f"cat {place.secret}", confined="strict")
    assert strict[0].status == "failed"


async def test_where_nothing_can_be_confined_only_the_local_user_has_a_bash(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "way", lambda alone: None)
    (refused,) = await run(place, "echo hi", local=False)
    assert refused.status == "failed" and "only its local user" in told(refused)
    (strict,) = await run(place, "echo hi", confined="strict")
    assert strict.status == "failed"
    (allowed,) = await run(place, "echo hi")
    assert told(allowed) == "hi\n"


@pytest.mark.parametrize(
    ("landlock", "wraps", "alone", "confined"),
    [
        (6, True, "landlock", "landlock"),
        (3, True, "bubblewrap", "landlock"),
        (3, False, None, "landlock"),
        (0, True, "bubblewrap", "bubblewrap"),
        (0, False, None, None),
    ],
)
def test_bubblewrap_does_what_landlock_cannot(
    landlock: int,
    wraps: bool,
    alone: str | None,
    confined: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox, "version", lambda: landlock)
    monkeypatch.setattr(sandbox, "wraps", lambda: wraps)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert (sandbox.way(alone=True), sandbox.way(alone=False)) == (alone, confined)
