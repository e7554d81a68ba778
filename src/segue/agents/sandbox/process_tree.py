"""The processes below this one: find them, measure their memory and end them all."""

from __future__ import annotations

import os
import sys
import time

_SIGKILL = 9
_WAIT_SECONDS = 0.01


def descendants(at_least: int = sys.maxsize) -> list[int]:
    """Return the ids of all processes below this one; the search ends when it has `at_least`."""
    processes: list[int] = []
    parents = [os.getpid()]
    while parents and len(processes) < at_least:
        children = _children(parents.pop())
        processes += children
        parents += children
    return processes


def memory_and_threads(pid: int) -> tuple[int, int]:
    """Return the kilobytes of a process's memory, without mapped files, and its thread count."""
    kilobytes = threads = 0
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith((b"RssAnon:", b"RssShmem:", b"VmSwap:")):
                    kilobytes += int(line.split()[1])
                elif line.startswith(b"Threads:"):
                    threads = int(line.split()[1])
    except OSError:
        pass  # the process has ended
    return kilobytes, threads


def reap() -> dict[int, int]:
    """Return the exit statuses of the children that have ended, by process id."""
    statuses: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return statuses
        if pid == 0:
            return statuses
        statuses[pid] = status


def end_all(*, signals_are_restricted: bool) -> None:
    """Kill every process below this one, and wait until none is left.

    This process must be a subreaper, so that orphans become its children. With
    `signals_are_restricted`, Landlock lets it signal the processes below it and no others: one call
    kills all of them at once, and none can fork meanwhile.
    """
    while True:
        try:
            if signals_are_restricted:
                os.kill(-1, _SIGKILL)
            else:
                for pid in descendants():
                    kill(pid)
        except ProcessLookupError:
            pass
        if not _wait_for_any():
            return


def _wait_for_any() -> bool:
    """Return False if there are no children, else wait a moment for them to end."""
    reap()
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    time.sleep(_WAIT_SECONDS)
    return True


def kill(pid: int) -> None:
    """Kill a process, unless it has ended."""
    try:  # noqa: SIM105  # importing contextlib takes longer than this
        os.kill(pid, _SIGKILL)
    except ProcessLookupError:
        pass


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    children: list[int] = []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children += map(int, file.read().split())
        except OSError:
            continue  # the thread has ended
    return children
