"""A process that is killed while it continues a session leaves a linked session or none."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import segue
from segue.hub import Hub
from segue.model.event import AgentMessage, UserMessage
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.model.session import Session
from segue.sources import registry
from segue.sources.claude.tool_names import NAMES as CLAUDE_NAMES
from segue.sources.kit.edit import programs
from segue.sources.writing.port import ImportingWriter, PreparedSession
from segue.sources.writing.unfinished import UnfinishedWork
from tests.sources.writing.tool_sessions import (
    as_events,
    convert_for,
    rich_session,
    use_homes,
    writer_of,
)

KILLED = """
import asyncio, os, signal, sys
import segue
from segue.hub.sync.continuing import SessionContinuer
from segue.model.principal import LOCAL

store, id, target, moment = sys.argv[1:]

async def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with await segue.open_hub(store, lasting=True) as hub:
        if moment == "before the link":
            SessionContinuer._link = die
        else:
            hub.store.set_overlay = die
        await hub.continuing.continue_in(LOCAL, id, target)

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every tool an empty home."""
    use_homes(monkeypatch, tmp_path)


@asynccontextmanager
async def open_hub(directory: Path) -> AsyncIterator[Hub]:
    async with await segue.open_hub(directory / "store", lasting=True) as hub:
        yield hub


async def create_session(directory: Path) -> str:
    async with open_hub(directory) as hub:
        session = await hub.editor.create(LOCAL, cwd=str(directory), title="Own")
        await hub.editor.append(LOCAL, session.id, *rich_session(str(directory)))
        return session.id


async def continue_and_die(directory: Path, id: str, target: str, moment: str) -> None:
    root = Path(__file__).parents[2]
    arguments = [str(directory / "store"), id, target, moment]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    command = [sys.executable, "-c", textwrap.dedent(KILLED), *arguments]
    process = await asyncio.to_thread(subprocess.run, command, env=environment, cwd=root)
    assert process.returncode == -signal.SIGKILL


async def sessions_of(hub: Hub, tool: str) -> list[Session]:
    return list((await hub.sessions.list(LOCAL, Query(source=tool))).sessions)


def records(directory: Path) -> list[str]:
    return UnfinishedWork(str(directory / "store" / "continuing")).names()


@pytest.mark.parametrize("tool", ["codex", "goose", "opencode"])
async def test_session_is_linked_after_a_kill_between_writing_and_linking(
    tool: str, tmp_path: Path
) -> None:
    id = await create_session(tmp_path)
    await continue_and_die(tmp_path, id, tool, "before the link")
    async with open_hub(tmp_path) as hub:
        (written,) = await sessions_of(hub, tool)
        if tool != "goose":  # it chooses the ids of sessions itself
            assert written.fork is not None and written.fork.session == id
        assert len(records(tmp_path)) == 1
        await hub.continuing.recover(LOCAL)
        (written,) = await sessions_of(hub, tool)
        assert written.fork is not None
        assert (written.fork.session, written.fork.seq) == (id, written.last_seq)
        assert records(tmp_path) == []
        # But for the time, it is the link of a session whose process was not killed.
        other, _, _ = await hub.continuing.continue_in(LOCAL, id, tool)
        overlays = await hub.store.overlays("local", tool)
        link, other_link = overlays[written.id]["fork"], overlays[other.id]["fork"]
        assert {**link, "made_at": 0} == {**other_link, "made_at": 0}
        assert 0 < link["made_at"] < other_link["made_at"]


async def test_kill_before_writing_leaves_nothing(tmp_path: Path) -> None:
    id = await create_session(tmp_path)
    await continue_and_die(tmp_path, id, "codex", "before the session")
    async with open_hub(tmp_path) as hub:
        assert await sessions_of(hub, "codex") == []
        await hub.continuing.recover(LOCAL)
        assert await sessions_of(hub, "codex") == [] and records(tmp_path) == []


async def test_messages_that_the_tool_added_meanwhile_are_not_shared(tmp_path: Path) -> None:
    id = await create_session(tmp_path)
    await continue_and_die(tmp_path, id, "claude", "before the link")
    (path,) = (tmp_path / "claude_config_dir" / "projects").rglob("*.jsonl")
    last = msgspec.json.decode(path.read_bytes().splitlines()[-2])
    prompt = {
        "type": "user",
        "uuid": "5f0c8a4e-0000-4000-8000-000000000001",
        "parentUuid": last["uuid"],
        "sessionId": path.stem,
        "timestamp": "2099-01-01T00:00:00.000Z",
        "message": {"role": "user", "content": "A later prompt"},
    }
    with path.open("ab") as file:
        file.write(msgspec.json.encode(prompt) + b"\n")
    async with open_hub(tmp_path) as hub:
        await hub.continuing.recover(LOCAL)
        (written,) = await sessions_of(hub, "claude")
        assert written.fork is not None and written.fork.seq < written.last_seq
        events = [event async for event in hub.history.conversation(LOCAL, written.id)]
        own = [event.body for event in events if event.seq > written.fork.seq]
        assert [type(body) for body in own] == [UserMessage]


async def test_work_of_a_running_process_is_left_alone(tmp_path: Path) -> None:
    id = await create_session(tmp_path)
    async with open_hub(tmp_path) as hub:
        work = UnfinishedWork(str(tmp_path / "store" / "continuing"))
        with work.recorded("name", b"not read"):
            await hub.continuing.recover(LOCAL)
            new, _, _ = await hub.continuing.continue_in(LOCAL, id, "codex")
            assert work.names() == ["name"]
        assert work.names() == [] and new.fork is not None


def prepared_session(cwd: Path) -> PreparedSession:
    events = as_events(rich_session(str(cwd)))
    conversation = convert_for("opencode", events, CLAUDE_NAMES, str(cwd))[0]
    return writer_of("opencode").prepare(conversation)


async def test_part_of_a_killed_import_is_hidden_and_then_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_of("opencode")
    prepared = prepared_session(tmp_path)
    run = programs.run

    def import_half(command: list[str], **options: Any) -> str:
        path = Path(command[-1])
        exported = msgspec.json.decode(path.read_bytes())
        path.write_bytes(msgspec.json.encode({**exported, "messages": exported["messages"][:3]}))
        run(command, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(programs, "run", import_half)
        writer.write(prepared)
    definition = registry.get("opencode")
    assert list(definition.reader().discover(print)) == []  # type: ignore[attr-defined]
    async with open_hub(tmp_path) as hub:
        assert await sessions_of(hub, "opencode") == []
        assert isinstance(writer, ImportingWriter)
        assert writer.settle(prepared.native_id, "") is None
        assert await sessions_of(hub, "opencode") == []
        # The import can be repeated, and a whole session of a killed process is kept.
        native_id = writer.write(prepared)
        assert writer.settle(native_id, "") == native_id
        (session,) = await sessions_of(hub, "opencode")
        events = [event async for event in hub.history.conversation(LOCAL, session.id)]
        assert any(isinstance(event.body, AgentMessage) for event in events)
