"""Which of Claude Code's sessions are running, according to the files of its processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from segue.model.errors import Busy
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.sources.index import watch
from tests.claude.entries import S2, Home, S
from tests.claude.helpers import S3, claude_hub, list_ids


async def test_session_that_claude_code_works_on_is_running(home: Home) -> None:
    for id in (S, S2):
        home.write_conversation(id)
    async with claude_hub(home) as (hub, _):
        assert (await hub.sessions.get(LOCAL, S)).status == "idle"
        home.write_process_file()
        one, two = (await hub.sessions.list(LOCAL, Query(descending=False))).sessions
        assert (one.id, one.status, one.running_since) == (S, "running", 1_700_000_000_000_000)
        assert (two.id, two.status) == (S2, "idle")
        assert (await hub.sessions.get(LOCAL, S)).status == "running"
        (match,) = (
            await hub.sessions.search(LOCAL, Query(text="hi", statuses=("running",)))
        ).matches
        assert match.session.status == "running"
        (best,) = (
            await hub.sessions.search(LOCAL, Query(text="hi", statuses=("running",)), ranked=True)
        ).matches
        assert best.session.id == S


async def test_hub_rejects_a_prompt_while_claude_code_works_on_the_session(home: Home) -> None:
    home.write_conversation()
    async with claude_hub(home) as (hub, _):
        home.write_process_file()
        with pytest.raises(Busy):
            await hub.turns.submit(LOCAL, S, "/say Yes.")
        assert await hub.sessions.owner(LOCAL, S) == "claude"


async def test_list_filters_by_status(home: Home) -> None:
    for id in (S, S2, S3):
        home.write_conversation(id, cwd="/w")
    home.write_process_file(S2)
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub, statuses=("running",)) == [S2]
        assert await list_ids(hub, statuses=("running",), cwd="/w", order="created") == [S2]
        assert await list_ids(hub, statuses=("idle",)) == [S3, S]
        assert await list_ids(hub, statuses=("idle", "running")) == [S3, S2, S]
        assert await list_ids(hub, statuses=("terminated",)) == []
        await hub.editor.archive(LOCAL, S2)
        # REST shows an archived session as terminated, whatever Claude Code does with it.
        options: dict[str, Any] = {"archived": "include", "archived_as": "terminated"}
        assert await list_ids(hub, statuses=("running",), **options) == []
        assert await list_ids(hub, statuses=("idle", "terminated"), **options) == [S3, S2, S]


@pytest.mark.parametrize("status", ["idle", "waiting", "shell", "new to us", None])
async def test_open_session_without_a_turn_is_idle(home: Home, status: str | None) -> None:
    home.write_conversation()
    home.write_process_file(status=status)  # type: ignore[arg-type]  # older versions write no status
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub, statuses=("idle",)) == [S]
        assert await list_ids(hub, statuses=("running",)) == []


async def test_session_of_an_ended_process_is_idle(home: Home) -> None:
    home.write_conversation()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    home.write_process_file(pid=child.pid)
    async with claude_hub(home) as (hub, _):
        assert (await hub.sessions.get(LOCAL, S)).status == "running"
        child.communicate(b"\n")
        assert (await hub.sessions.get(LOCAL, S)).status == "idle"
        home.write_process_file(procStart="1")  # another process has the id now
        assert await list_ids(hub, statuses=("running",)) == []


async def test_watcher_is_notified_of_the_start_and_end_of_a_turn(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_CHECK_PROCESSES_MS", 200)
    home.write_conversation()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    async with claude_hub(home) as (hub, _):
        await list_ids(hub)
        changes = hub.history.changes(LOCAL)
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0.2)
        home.write_process_file(pid=child.pid)
        async with asyncio.timeout(20):
            assert (await waiting).session == S
            assert (await hub.sessions.get(LOCAL, S)).status == "running"
            child.communicate(b"\n")  # it does not delete its file
            assert (await anext(changes)).session == S
            assert (await hub.sessions.get(LOCAL, S)).status == "idle"
        await changes.aclose()  # type: ignore[attr-defined]
