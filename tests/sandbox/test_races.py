"""Escapes through races: a path changes between its check and its use."""

import os
import stat
import subprocess

import pytest

from .harness import ANSWER_SECONDS, Sandbox

# Each call costs the supervisor a fraction of a millisecond.
ROUNDS = [60, pytest.param(5000, marks=pytest.mark.full)]


@pytest.mark.parametrize("rounds", ROUNDS)
def test_swapping_a_path_while_its_permissions_change_reaches_no_file_outside(
    sandbox: Sandbox, rounds: int
) -> None:
    outside = sandbox.files.outside
    before = outside.stat()
    code = """
import threading
import shutil
shutil.rmtree('race', ignore_errors=True)
os.makedirs('race/inside'); open('race/inside/outside.txt', 'w').close()
os.symlink(os.path.dirname(outside), 'race/link')
stop = False
def swap():
    while not stop:
        libc.renameat2(-100, b'race/inside', -100, b'race/link', 2)
thread = threading.Thread(target=swap); thread.start()
for n in range(rounds):
    try:
        os.chmod('race/inside/outside.txt', 0o600 + n % 8)
        os.utime('race/inside/outside.txt', (n, n))
    except OSError:
        pass
stop = True
thread.join()
value = True
"""
    assert sandbox.run(code, outside=str(outside), rounds=rounds).value
    after = outside.stat()
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_memory_change_during_a_call_reaches_no_file_outside(
    sandbox: Sandbox, rounds: int
) -> None:
    outside = sandbox.files.outside
    code = """
import threading
open('inside.txt', 'w').close()
paths = [b'inside.txt', outside.encode()]
buffer = ctypes.create_string_buffer(4096)
stop = False
def swap():
    while not stop:
        for path in paths:
            ctypes.memmove(buffer, path + bytes(1), len(path) + 1)
thread = threading.Thread(target=swap); thread.start()
for n in range(rounds):
    libc.chmod(buffer, 0o777)
stop = True
thread.join()
value = True
"""
    assert sandbox.run(code, outside=str(outside), rounds=rounds).value
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644


def test_a_session_directory_that_became_a_link_is_not_opened(sandbox: Sandbox) -> None:
    files = sandbox.files
    moved = files.session.with_name("moved")
    command, env = sandbox.command(["cat", "secret.key"])
    files.session.rename(moved)
    files.session.symlink_to(files.data)
    try:
        result = subprocess.run(
            command,
            env=env,
            cwd="/",
            capture_output=True,
            timeout=ANSWER_SECONDS,
            check=False,
            **sandbox.as_user,
        )
    finally:
        files.session.unlink()
        moved.rename(files.session)
    assert result.returncode == 126 and b"SECRET" not in result.stdout
    assert os.strerror(40).encode() in result.stderr  # ELOOP
