"""Tell whether the process that holds a lease has ended."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from segue.hub import Hub
from segue.hub.turns import holder
from segue.hub.turns.holder import StillnessWatch, holder_name, interrupted_sessions, is_dead
from segue.model import ids
from segue.model.event import StatusChanged
from segue.model.principal import LOCAL
from segue.store.base import ENDED_HOLDER

MakeHub = Callable[..., Hub]


def start_child() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def name_of(pid: int, started: str | None = None) -> str:
    started = started or holder._start_time(pid)
    assert started is not None
    return holder_name(pid, started, ids.new_id())


def test_killed_process_is_dead_before_and_after_its_parent_has_noticed() -> None:
    child = start_child()
    name = name_of(child.pid)
    assert not is_dead(name)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(name)  # a zombie
    child.communicate()
    assert is_dead(name)


def test_holder_of_a_turn_whose_process_has_stopped_is_dead_for_every_process() -> None:
    assert is_dead(ENDED_HOLDER) and holder.is_comparable(ENDED_HOLDER)


def test_another_process_with_the_same_id_is_not_the_holder() -> None:
    child = start_child()
    try:
        assert is_dead(name_of(child.pid, "12345"))
    finally:
        child.kill()
        child.communicate()


def test_process_of_another_boot_or_namespace_may_be_alive() -> None:
    for other in ("boot:1:2:3:x", "not a holder", ""):
        assert not is_dead(other)
        assert not holder.is_comparable(other)


def test_process_that_the_system_hides_may_be_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, signal: int) -> None:
        raise PermissionError

    name = name_of(os.getpid())
    monkeypatch.setattr(os, "access", lambda *_: False)  # /proc is mounted with `hidepid`
    monkeypatch.setattr(os, "kill", refuse)
    assert not is_dead(name)
    assert not holder.is_comparable(name)


async def test_closed_engine_of_a_living_process_is_dead(make_hub: MakeHub) -> None:
    hub = make_hub()
    name = hub.turns.engine.holder
    assert not is_dead(name)
    await hub.close()
    assert is_dead(name)


def test_value_that_does_not_change_is_watched_by_a_monotonic_clock() -> None:
    watch = StillnessWatch()
    assert watch.seconds("a", 1) == 0.0
    assert watch.seconds("a", 1) > 0.0
    assert watch.seconds("a", 2) == 0.0
    watch.forget(60)
    assert watch.seconds("a", 2) > 0.0
    watch.forget(-1)
    assert watch.seconds("a", 2) == 0.0


async def test_running_session_of_a_dead_process_is_interrupted(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        rows = [await hub.editor.create(LOCAL) for _ in range(3)]
        dead, alive, idle = rows
        child = start_child()
        name = name_of(child.pid)
        child.kill()
        await asyncio.to_thread(child.communicate)
        for row, holding in ((dead, name), (alive, hub.turns.engine.holder), (idle, name)):
            assert await hub.store.acquire("local", row.id, holding)
        for row in (dead, alive):
            running = StatusChanged(status="running", turn=ids.new_id())
            await hub.editor.append(LOCAL, row.id, running)
        sessions = [await hub.store.get("local", row.id) or row for row in rows]
        assert await interrupted_sessions(hub.store, sessions) == {dead.id}
