"""A full or read-only disk gives a clear error, loses nothing, and work continues afterwards."""

import asyncio
import json
import os
import sqlite3
import subprocess
from functools import cache
from pathlib import Path

import pytest

from segue.agents.base import Turn
from segue.hub import Hub
from segue.hub.turns import engine
from segue.model import ids
from segue.model.content import plain_text
from segue.model.event import (
    AgentMessage,
    Created,
    Event,
    Failed,
    InfoChanged,
    PermissionAsked,
    ToolResult,
)
from segue.model.lifecycle import StopReason
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore, connection, writer
from tests.faults import audit
from tests.faults.idle import assert_idle
from tests.faults.processes import TIMEOUT_SECONDS, StoreLocation, child
from tests.faults.takeover import bodies, read_events, wait_until_idle

WORKSPACE = "local"


@cache
def namespace() -> list[str]:
    """Return the command that gives a child its own mounts; empty if that is forbidden."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", "--mount", *user]
    try:
        tried = subprocess.run(
            [*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True
        )
    except FileNotFoundError:
        return []
    return command if tried.returncode == 0 else []


@pytest.mark.parametrize("kind", ["tmpfs", "quota", "pages"])
def test_a_full_disk_gives_a_clear_error_and_loses_nothing(tmp_path: Path, kind: str) -> None:
    before = namespace() if kind == "tmpfs" else []
    if kind == "tmpfs" and not before:
        pytest.skip("mounting a small disk is not allowed here")

    async def main() -> None:
        async with child("disk.py", tmp_path, kind, before=before) as filler:
            reports = []
            while (line := await filler.read_line()) is not None and line["says"] != "done":
                reports.append(line)
            assert line is not None
        # Each of eight writers, one that tries again, and on the real disk one new store.
        assert len(reports) == (10 if kind == "tmpfs" else 9)
        for line in reports:
            assert line["error"] == "StoreFull", line
            assert "full" in line["message"] and ".db" in line["message"]
            assert "\n" not in line["message"]

        path = tmp_path / "copy" / "segue.db"
        store = SQLiteStore.open(path)
        acknowledged_by_session = json.loads((tmp_path / "kept.json").read_text())
        for session, acknowledged in acknowledged_by_session.items():
            # What was acknowledged is there, and of what was refused there is nothing.
            events = await store.events(WORKSPACE, session)
            assert [event.id for event in events][1:] == acknowledged
        await store.close()
        audit.sqlite_file(path, thorough=True)

    asyncio.run(main())


READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


@pytest.mark.skipif(not namespace(), reason="mounting is not allowed here")
@pytest.mark.parametrize("state", ["new", "closed", "open elsewhere"])
def test_read_only_disk_gives_a_clear_error_and_loses_nothing(tmp_path: Path, state: str) -> None:
    location = StoreLocation(tmp_path)

    async def main() -> None:
        store = None
        if state != "new":
            store = await location.open()
            session = await store.create(WORKSPACE, ids.new_id(), [Created(cwd="/work")])
            if state == "closed":
                await store.close()
        before = [*namespace(), "sh", "-c", READ_ONLY, str(tmp_path)]
        async with child("opener.py", before=before) as opener:
            report = await opener.request(directory=str(tmp_path), url="")
        assert report.get("error") == "StoreReadOnly", report
        assert str(location.file) in report["message"] and "\n" not in report["message"]
        if state == "new":
            assert list(tmp_path.iterdir()) == []
            return
        if state == "closed":
            store = await location.open()
        # A process that can write to the disk still can.
        assert store is not None
        title = InfoChanged(title="still here")
        after, _ = await store.change(WORKSPACE, session.id, lambda _: [title])
        assert after.title == "still here"
        await store.close()
        audit.sqlite_file(location.file, thorough=True)

    asyncio.run(main())


class Pages:
    """Limits how many pages the store's writing connection may add."""

    def __init__(self) -> None:
        self._connections: list[sqlite3.Connection] = []

    def connect(self, path: Path, *, writable: bool) -> sqlite3.Connection:
        self._connections.append(connection.connect(path, writable=writable))
        return self._connections[-1]

    def allow(self, extra: int) -> None:
        (pages,) = self._connections[0].execute("PRAGMA page_count").fetchone()
        self._connections[0].execute(f"PRAGMA max_page_count = {pages + extra}")


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Pages:
    pages = Pages()
    monkeypatch.setattr(writer, "connect", pages.connect)
    monkeypatch.setattr(engine, "RECOVER_SECONDS", 0.1)
    return pages


@pytest.mark.parametrize("others", ["alone", "with another turn"])
def test_turn_that_fails_on_a_full_disk_is_closed_when_there_is_space(
    sqlite_location: StoreLocation, pages: Pages, others: str
) -> None:
    async def main() -> None:
        async with Hub(
            await sqlite_location.open(), sqlite_location.directory, lease=500_000
        ) as hub:
            session = (await hub.editor.create(LOCAL, cwd="/work")).id
            if others != "alone":
                other = (await hub.editor.create(LOCAL, cwd="/work")).id
                await hub.turns.submit(LOCAL, other, "/wait 60")
            await hub.turns.submit(LOCAL, session, "/ask Continue?\n/say " + "x" * 500_000)
            async for item in hub.history.follow(LOCAL, session):
                if isinstance(item, Event) and isinstance(item.body, PermissionAsked):
                    await hub.turns.answer(LOCAL, session, item.body.ask_id, "allow")
                if isinstance(item, Event) and isinstance(item.body, ToolResult):
                    break
            pages.allow(0)
            # Neither the message nor the end of the turn can be stored; the turn's task gives up.
            while (WORKSPACE, session) in hub.turns.engine._drivers:
                await asyncio.sleep(0.01)
            pages.allow(10_000)
            await asyncio.wait_for(wait_until_idle(hub, session), TIMEOUT_SECONDS)
            assert_idle(await hub.sessions.get(LOCAL, session), await read_events(hub, session))
            assert await hub.turns.run(LOCAL, session, "/say again") == "end_turn"

    asyncio.run(main())


def test_message_that_fails_on_a_full_disk_is_stored_with_the_end_of_its_turn(
    sqlite_location: StoreLocation, pages: Pages
) -> None:
    class Streaming:
        async def run(self, turn: Turn) -> StopReason:
            pages.allow(0)
            await turn.delta("x" * 500_000)
            try:
                await turn.emit()
            finally:
                pages.allow(10_000)
            return "end_turn"

    async def main() -> None:
        async with Hub(await sqlite_location.open(), sqlite_location.directory) as hub:
            session = (await hub.editor.create(LOCAL, cwd="/work")).id
            opened = await hub.turns.open(LOCAL, session, agent=Streaming())
            assert await hub.turns.run(LOCAL, session, "go", opened=opened) == "error"
            events = await read_events(hub, session)
            (failed,) = bodies(events, Failed)
            assert failed.code == "StoreFull" and "full" in failed.message
            (message,) = bodies(events, AgentMessage)
            assert plain_text(message.content) == "x" * 500_000

    asyncio.run(main())
