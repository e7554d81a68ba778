"""Copies of Claude Code's sessions in the store follow what happens to their files."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from segue import LOCAL, Hub, claude, errors
from segue.model.content import plain_text
from segue.model.event import AgentMessage, Event, UserMessage
from segue.model.session import Session
from segue.sources import safe_io
from segue.sources.claude.exchange import pull
from tests.claude.entries import (
    Home,
    S,
    assistant,
    user,
)
from tests.claude.helpers import Within, append, claude_hub, text, timed_user


async def opened_session(hub: Hub, id: str) -> Session:
    """Return a session as an interface opens it: current, with what its tool has added."""
    await hub.sync.ensure_current(LOCAL, id)
    return await hub.sessions.get(LOCAL, id)


def moved_session(home: Home, tmp_path: Path) -> str:
    """Write a session, relocate it, and return its new directory."""
    old, new = tmp_path / "old", tmp_path / "new"
    new.mkdir()
    home.write_conversation(S, claude.project_key_for_directory(old), cwd=str(old))
    claude.relocate_session(S, str(new))
    return str(new)


def test_imported_copy_of_a_relocated_session_has_its_new_directory(
    home: Home, within: Within, tmp_path: Path
) -> None:
    new = moved_session(home, tmp_path)

    async def steps(hub: Hub) -> None:
        assert (await opened_session(hub, S)).cwd == new
        await hub.turns.run(LOCAL, S, "/say more")
        assert (await opened_session(hub, S)).cwd == new
        session, count = await hub.sync.import_session(LOCAL, S, "claude")
        assert (session.cwd, count) == (new, 0)

    within(steps)


def test_import_finds_the_copy_of_a_session_that_was_relocated_later(
    home: Home, within: Within, tmp_path: Path
) -> None:
    moved_session(home, tmp_path)
    again = tmp_path / "again"
    again.mkdir()

    async def steps(hub: Hub) -> None:
        await hub.sync.import_session(LOCAL, S, "claude")
        claude.relocate_session(S, str(again))
        session, count = await hub.sync.import_session(LOCAL, S, "claude")
        assert (session.id, session.cwd, count) == (S, str(again), 1)
        assert await hub.sync.import_session(LOCAL, S, "claude") == (session, 0)
        path = next(home.projects.rglob(f"{S}.jsonl"))
        before = path.read_bytes()
        path.unlink()
        assert (await hub.sync.write(LOCAL, S, "claude")).path == str(path)
        assert path.read_bytes() == before

    within(steps)


async def test_opening_a_copy_pulls_new_messages(home: Home) -> None:
    path = home.write_conversation(prompt="at first")

    async def texts(hub: Hub) -> list[str]:
        await opened_session(hub, S)
        events = [event.body async for event in hub.history.conversation(LOCAL, S)]
        return [plain_text(e.content) for e in events if isinstance(e, UserMessage | AgentMessage)]

    def append_turn(number: int, parent: str) -> None:
        at = f"2026-02-0{number}T00:00:00Z"
        prompt = timed_user(f"u{number}", parent, f"and {number}", at)
        append(path, prompt, assistant(f"a{number}", f"u{number}", timestamp=at))

    async with claude_hub(home) as (hub, source):
        await hub.turns.run(LOCAL, S, "/say here")
        conversation = ["at first", "a1", "/say here", "here"]
        assert await texts(hub) == conversation
        append_turn(2, "a1")
        conversation += ["and 2", "a2"]
        assert await texts(hub) == conversation
        before = (await opened_session(hub, S)).last_seq
        append_turn(3, "a2")
        await hub.turns.run(LOCAL, S, "/say again")  # after the messages of Claude Code
        conversation += ["and 3", "a3", "/say again", "again"]
        assert await texts(hub) == conversation
        assert (await hub.sessions.resolve(LOCAL, "at first")).last_seq > before
        last = (await opened_session(hub, S)).last_seq
        async with aclosing(hub.history.follow(LOCAL, S, last)) as following:
            waiting = asyncio.ensure_future(anext(following))
            while not source.current_index.watched:
                await asyncio.sleep(0.01)
            append_turn(4, "a3")
            async with asyncio.timeout(60):
                assert (await waiting).body.content == text("and 4")  # type: ignore[union-attr]
        conversation += ["and 4", "a4"]
        home.write_process_file()
        append_turn(5, "a4")
        assert await texts(hub) == conversation  # a running turn is not imported


async def test_opening_an_unchanged_copy_reads_no_events_and_no_bytes(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_conversation(prompt="at first")
    async with claude_hub(home) as (hub, _):
        await hub.sync.import_session(LOCAL, S, "claude")
        reads: list[Any] = []
        events, open_for_reading = hub.store.events, safe_io.open_for_reading

        async def counted(*name: str, **options: Any) -> list[Event]:
            reads.append(options)
            return await events(*name, **options)

        def counted_open(path: str) -> Any:
            reads.append(path)
            return open_for_reading(path)

        monkeypatch.setattr(hub.store, "events", counted)
        monkeypatch.setattr(safe_io, "open_for_reading", counted_open)
        for _ in range(3):
            await opened_session(hub, S)
        assert reads == []


async def test_pull_does_not_interrupt_a_turn_that_starts_meanwhile(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.write_conversation(prompt="at first")
    read = pull.pull_appended
    async with claude_hub(home) as (hub, _):
        await hub.sync.import_session(LOCAL, S, "claude")
        other = Hub(hub.store, hub.data_dir)  # without the source, so its turns pull nothing
        await other.turns.run(LOCAL, S, "/say here")
        loop = asyncio.get_running_loop()

        async def begin() -> None:
            turn = await other.turns.submit(LOCAL, S, "/ask May I?")
            assert await other.turns.wait_started(LOCAL, S, turn)

        def pull_slowly(path: str, position: pull.SessionPosition) -> pull.PulledLines:
            asyncio.run_coroutine_threadsafe(begin(), loop).result(60)
            return read(path, position)

        at = "2026-02-02T00:00:00Z"
        append(path, timed_user("u2", "a1", "and 2", at), assistant("a2", "u2", timestamp=at))
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(pull, "pull_appended", pull_slowly)
            async with asyncio.timeout(60):
                # With the prompt of the turn that began, without the file's new messages.
                assert (await opened_session(hub, S)).messages == 5
        await other.turns.cancel(LOCAL, S)
        await other.turns.engine.wait_idle()
        await opened_session(hub, S)
        events = [event.body async for event in hub.history.conversation(LOCAL, S)]
        texts = [plain_text(e.content) for e in events if isinstance(e, UserMessage)]
        assert texts == ["at first", "/say here", "/ask May I?", "and 2"]
        await other.detach()


async def test_turn_waits_for_a_running_pull(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home.write_conversation(prompt="at first")
    reading, go = threading.Event(), threading.Event()
    read = pull.pull_appended

    def pull_slowly(path: str, position: pull.SessionPosition) -> pull.PulledLines:
        pulled = read(path, position)
        reading.set()
        assert go.wait(60)
        return pulled

    async with claude_hub(home) as (hub, _):
        await hub.sync.import_session(LOCAL, S, "claude")
        without_source = Hub(hub.store, hub.data_dir)  # its turns pull nothing
        await without_source.turns.run(LOCAL, S, "/say here")
        await without_source.detach()
        at = "2026-02-02T00:00:00Z"
        append(path, timed_user("u2", "a1", "and 2", at), assistant("a2", "u2", timestamp=at))
        monkeypatch.setattr(pull, "pull_appended", pull_slowly)
        gone, other = (asyncio.ensure_future(opened_session(hub, S)) for _ in range(2))
        await asyncio.to_thread(reading.wait, 60)
        gone.cancel()
        turn = asyncio.ensure_future(hub.turns.run(LOCAL, S, "/say again"))
        await asyncio.wait([turn], timeout=0.2)
        go.set()
        await asyncio.gather(turn, other)
        events = [event.body async for event in hub.history.conversation(LOCAL, S)]
    texts = [plain_text(e.content) for e in events if isinstance(e, UserMessage | AgentMessage)]
    assert texts == ["at first", "a1", "/say here", "here", "and 2", "a2", "/say again", "again"]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_fork_of_a_relocated_session_is_written_to_its_project(
    home: Home, within: Within, tmp_path: Path, elsewhere: bool
) -> None:
    new = moved_session(home, tmp_path)
    directory = str(tmp_path) if elsewhere else new

    async def steps(hub: Hub) -> None:
        await hub.sync.import_session(LOCAL, S, "claude")
        fork = await hub.editor.fork(LOCAL, S, cwd=directory if elsewhere else None)
        assert fork.cwd == directory
        path = Path((await hub.sync.write(LOCAL, fork.id, "claude")).path)
        assert path.parent.name == claude.project_key_for_directory(directory)
        (info,) = [info for info in claude.list_sessions(directory) if info.session_id == fork.id]
        assert info.cwd == directory
        again, count = await hub.sync.import_session(LOCAL, fork.id, "claude")
        assert (again.cwd, count) == (directory, 0)

    within(steps)


def test_relative_directory_in_a_transcript_does_not_stop_a_fork(
    home: Home, within: Within
) -> None:
    home.write([user("u1", None, "hello"), {"type": "relocated", "relocatedCwd": "x"}])

    async def steps(hub: Hub) -> None:
        fork = await hub.editor.fork(LOCAL, S, in_store=True)
        assert fork.cwd == "x" and fork.messages == 1
        with pytest.raises(errors.InvalidInput, match="absolute"):
            await hub.editor.fork(LOCAL, S, in_store=True, cwd="y")

    within(steps)
