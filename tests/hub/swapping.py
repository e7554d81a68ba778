"""Attackers that exchange a directory and a link while segue works in a session's directory."""

import ctypes
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

RENAME_EXCHANGE = 2
AT_FDCWD = -100
_PROGRAM = """
import ctypes, os, random, select, sys
exchange = ctypes.CDLL(None).renameat2
paths = [os.fsencode(path) for path in sys.argv[1:]]
print("ready", flush=True)
count = 0
# Each state lasts a moment or longer, so that some operations succeed and others are hit.
while not select.select([0], [], [], random.choice((0, 0, 0.0001, 0.001, 0.005)))[0]:
    count += exchange(-100, paths[0], -100, paths[1], 2) == 0
print(count)
"""


def exchange(first: Path, second: Path) -> None:
    """Exchange two paths atomically."""
    paths = os.fsencode(first), os.fsencode(second)
    ctypes.CDLL(None).renameat2(AT_FDCWD, paths[0], AT_FDCWD, paths[1], RENAME_EXCHANGE)


@contextmanager
def swapping_process(first: Path, second: Path) -> Iterator[None]:
    """Let a child process exchange two paths, as fast as it can, until the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, str(first), str(second)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            output, _ = process.communicate()
    assert int(output) > 0  # otherwise the test has shown nothing


@contextmanager
def swap_after_resolving(first: Path, second: Path) -> Iterator[None]:
    """Exchange two paths when segue has resolved a path and has not opened it yet.

    That happens each fifth time, so that repeated operations are hit at each of their steps.
    """
    resolve = os.path.realpath
    calls = itertools.count(1)

    def resolve_and_swap(path: str | Path) -> str:
        real_path = resolve(path)
        if first.parent in Path(path).parents and next(calls) % 5 == 0:
            exchange(first, second)
        return real_path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os.path, "realpath", resolve_and_swap)
        yield
