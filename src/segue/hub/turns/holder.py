"""Name the process that holds a lease, so that other processes notice when it has ended.

A holder's name has the boot id, the PID namespace, and the id and start time of its process. A
process of the same boot and namespace can look whether that process still exists. Any other one,
for example in another container, cannot. It watches whether the lease is renewed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from segue.model import ids
from segue.model.lifecycle import RUNNING_STATUSES
from segue.model.session import Session
from segue.store.base import ENDED_HOLDER, Store

_SEPARATOR = ":"
_DEAD_STATES = ("Z", "X")  # a zombie, or a process that is being removed

_open_tokens: set[str] = set()  # of the holders of this process that are in use


class _Process(NamedTuple):
    """The parts of a holder's name. `boot` is empty if the system does not tell."""

    boot: str
    namespace: str
    pid: str
    started: str
    token: str


def new_holder() -> str:
    """Return a new name for this process. `close_holder` ends its use."""
    token = ids.new_id()
    _open_tokens.add(token)
    return holder_name(os.getpid(), _start_time(os.getpid()) or "", token)


def holder_name(pid: int, started: str, token: str) -> str:
    """Return the name of a holder on this host, in this PID namespace."""
    boot, namespace = _own_namespace()
    return _SEPARATOR.join(_Process(boot, namespace, str(pid), started, token))


def close_holder(holder: str) -> None:
    """Release one of this process's names."""
    _open_tokens.discard(holder.rpartition(_SEPARATOR)[2])


def holder_pid(holder: str) -> int:
    """Return the process id in a holder's name."""
    return int(_Process(*holder.split(_SEPARATOR)).pid)


def is_dead(holder: str) -> bool:
    """Return whether a holder has ended for certain; False if that cannot be known."""
    if holder == ENDED_HOLDER:
        return True
    process = _comparable(holder)
    if process is None:
        return False
    started = _start_time(int(process.pid))
    if int(process.pid) == os.getpid() and process.started == started:
        return process.token not in _open_tokens
    return started != process.started


def is_comparable(holder: str) -> bool:
    """Return whether this process can know if a holder has ended."""
    return holder == ENDED_HOLDER or _comparable(holder) is not None


def _comparable(holder: str) -> _Process | None:
    """Return the parts of a holder's name; None if this process cannot see that process."""
    parts = holder.split(_SEPARATOR)
    boot, namespace = _own_namespace()
    if not boot or len(parts) != len(_Process._fields) or parts[:2] != [boot, namespace]:
        return None
    process = _Process(*parts)
    return None if _is_hidden(int(process.pid)) else process


def _is_hidden(pid: int) -> bool:
    """Return whether a process of another user exists that /proc does not show (`hidepid`)."""
    if os.access(f"/proc/{pid}/stat", os.R_OK):
        return False
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


@cache
def _own_namespace() -> tuple[str, str]:
    """Return the boot id and the PID namespace; empty strings if the system does not have them."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return boot, str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "", ""


def _start_time(pid: int) -> str | None:
    """Return when a process was started, in ticks since boot; None if it does not run."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name of the program, in parentheses, may contain anything.
    state, *fields = status.rpartition(")")[2].split()
    return None if state in _DEAD_STATES else fields[18]


async def interrupted_sessions(store: Store, sessions: Iterable[Session]) -> set[str]:
    """Return the ids of those sessions that say that they run, but whose process has died.

    Another process closes their turns soon. Until then they are to be shown as interrupted.
    """
    leases = await store.leases()
    if not leases:
        return set()
    running = {(row.workspace, row.id) for row in sessions if row.status in RUNNING_STATUSES}
    leases = [lease for lease in leases if (lease.workspace, lease.session) in running]
    dead = {holder for holder in {lease.holder for lease in leases} if is_dead(holder)}
    return {lease.session for lease in leases if lease.holder in dead}


class StillnessWatch:
    """Measure how long values have not changed, by a clock that is never set."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, tuple[object, float, float]] = {}  # value, first, last time

    def seconds(self, key: Hashable, value: object) -> float:
        """Return for how long this value has been seen; 0 if it is new."""
        now = time.monotonic()
        seen, first, _ = self._seen.get(key, (None, now, now))
        if seen != value:
            first = now
        self._seen[key] = (value, first, now)
        return now - first

    def forget(self, seconds: float) -> None:
        """Drop the values that were not compared in the last `seconds`."""
        oldest = time.monotonic() - seconds
        self._seen = {key: seen for key, seen in self._seen.items() if seen[2] >= oldest}
