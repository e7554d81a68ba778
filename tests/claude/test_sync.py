"""Imports and pulls of Claude Code's sessions while something else changes them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from segue import LOCAL, Hub, errors, open_hub
from segue.claude.mirror import TranscriptKey, TranscriptMirror
from segue.model.event import ConfigChanged
from segue.sources.claude.exchange.import_diff import ImportDiff
from segue.sources.claude.exchange.transcripts import ClaudeTranscripts
from tests.claude.entries import Home, S, assistant, title
from tests.claude.helpers import append, timed_user, write_session_with_subagent

TIMEOUT_SECONDS = 20


def append_turn(path: Path, number: int = 2) -> None:
    """Append a prompt and its answer, as Claude Code does in the terminal."""
    at = f"2026-02-0{number}T00:00:00Z"
    prompt = timed_user(f"u{number}", f"a{number - 1}", f"and {number}", at)
    append(path, prompt, assistant(f"a{number}", f"u{number}", timestamp=at))


@asynccontextmanager
async def turn_running(hub: Hub) -> AsyncIterator[None]:
    """Let a turn of the session wait for a permission until the context ends."""
    turn = await hub.turns.submit(LOCAL, S, "/ask May I?")
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await hub.turns.wait_started(LOCAL, S, turn)
            while not (await hub.sessions.get(LOCAL, S)).open_asks:
                await asyncio.sleep(0.01)
            yield
    finally:
        await hub.turns.cancel(LOCAL, S)
        await hub.turns.engine.wait_idle()


async def test_session_is_imported_during_a_turn(home: Home, tmp_path: Path) -> None:
    path = home.write_conversation()
    async with await open_hub(tmp_path / "data") as hub:
        await hub.config.set(LOCAL.workspace, "model", "demo")
        await hub.turns.run(LOCAL, S, "/say here")
        async with turn_running(hub):
            append_turn(path)
            session, new_lines = await hub.sync.import_session(LOCAL, S, "claude")
            assert (session.turn is not None, new_lines) == (True, 2)


async def test_prompt_is_accepted_during_a_turn_of_claude_codes_agent(
    home: Home, tmp_path: Path
) -> None:
    home.write_conversation()
    async with await open_hub(tmp_path / "data") as hub:
        await hub.config.set(LOCAL.workspace, "model", "demo")
        await hub.turns.run(LOCAL, S, "/say here")
        async with turn_running(hub):
            agent = hub.records.agent_of(LOCAL.workspace, "claude")
            await hub.editor.configure(LOCAL, S, ConfigChanged(agent=agent))
            session = await hub.turns.prepare_for_prompt(LOCAL, S)
            assert session.turn is not None


async def test_copy_that_is_purged_during_an_import_is_imported_again(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.write_conversation()
    async with await open_hub(tmp_path / "data") as hub:
        await hub.sync.import_session(LOCAL, S, "claude")
        append_turn(path)
        change = hub.store.change

        async def purge_first(*args: Any, **options: Any) -> Any:
            monkeypatch.setattr(hub.store, "change", change)
            await hub.store.purge(LOCAL.workspace, S, lambda _: None)
            return await change(*args, **options)

        monkeypatch.setattr(hub.store, "change", purge_first)
        session, new_lines = await hub.sync.import_session(LOCAL, S, "claude")
        assert (session.messages, new_lines) == (4, 4)


@pytest.mark.parametrize("open_sources", [True, False])
async def test_prompt_to_claude_codes_agent_imports_what_was_said_in_the_terminal(
    home: Home, tmp_path: Path, open_sources: bool
) -> None:
    """The session was created in segue, and `claude --resume` has continued it since."""
    sources = None if open_sources else ()
    async with await open_hub(tmp_path / "data", sources=sources) as hub:
        built_in = await hub.records.built_in_agent(LOCAL.workspace)
        agent = replace(built_in, overrides={"kind": "claude_code"})
        session = await hub.editor.create(LOCAL, cwd="/w", agent=agent)
        home.write_conversation(session.id)
        assert (await hub.turns.prepare_for_prompt(LOCAL, session.id)).messages == 2


async def test_copy_of_a_backup_gets_what_is_added_to_the_original(
    home: Home, tmp_path: Path
) -> None:
    path = home.write_conversation(cwd="/w")
    backup = tmp_path / path.name
    shutil.copy(path, backup)
    async with await open_hub(tmp_path / "data") as hub:
        await hub.sync.import_session(LOCAL, str(backup), "claude")
        for number in (2, 3):
            append_turn(path, number)
            await hub.sync.ensure_current(LOCAL, S)
        assert (await hub.sessions.get(LOCAL, S)).messages == 6


async def test_copy_gets_what_is_added_after_its_project_moved(home: Home, tmp_path: Path) -> None:
    """Claude Code continues in the new project's directory; the old transcript stays."""
    path = home.write_conversation(project="-w", cwd="/w")
    async with await open_hub(tmp_path / "data") as hub:
        await hub.sync.import_session(LOCAL, S, "claude")
        moved = home.projects / "-new" / path.name
        moved.parent.mkdir()
        shutil.copy(path, moved)
        append(moved, {"type": "relocated", "relocatedCwd": "/new", "sessionId": S})
        append_turn(moved)
        await hub.sync.ensure_current(LOCAL, S)
        assert (await hub.sessions.get(LOCAL, S)).messages == 4


async def test_file_that_is_replaced_while_it_is_compared_does_not_stop_a_reader(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.write_conversation()
    finish = ImportDiff.finish

    def replace_file() -> None:
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(path.read_bytes() + b"\n")
        temporary.replace(path)

    def replace_and_finish(diff: ImportDiff) -> None:
        replace_file()
        finish(diff)

    async with await open_hub(tmp_path / "data") as hub:
        await hub.sync.import_session(LOCAL, S, "claude")
        replace_file()
        with monkeypatch.context() as patched:
            patched.setattr(ImportDiff, "finish", replace_and_finish)
            await hub.sync.ensure_current(LOCAL, S)
            with pytest.raises(errors.NotFound):
                await hub.sync.import_session(LOCAL, S, "claude")
        append_turn(path)
        await hub.sync.ensure_current(LOCAL, S)
        assert (await hub.sessions.get(LOCAL, S)).messages == 4


async def count_titles(hub: Hub) -> int:
    """Return how often the line of `title("A title")` is stored."""
    events = await hub.store.events(LOCAL.workspace, S)
    return sum("A title" in repr(event.body) for event in events)


@pytest.mark.parametrize("way", ["pull", "mirror"])
@pytest.mark.parametrize("transcript", ["own", "subagent"])
async def test_line_that_another_process_stores_during_an_import_is_stored_once(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transcript: str, way: str
) -> None:
    path, subagent_path = write_session_with_subagent(home)
    changed_path = path if transcript == "own" else subagent_path
    subpath = "" if transcript == "own" else "subagents/agent-a1b2c3"
    async with (
        await open_hub(tmp_path / "data") as hub,
        await open_hub(tmp_path / "data") as other,
    ):
        await hub.sync.import_session(LOCAL, S, "claude")
        get, read = hub.store.get, ClaudeTranscripts.read

        async def store_first(*name: str) -> Any:
            """Let another process store a line between the reads of the file and of the row."""
            monkeypatch.setattr(hub.store, "get", get)
            append(changed_path, title("A title"))
            if way == "pull":
                await other.sync.ensure_current(LOCAL, S)
            else:
                mirror = TranscriptMirror(other.store, LOCAL.workspace)
                await mirror.append(TranscriptKey("-w", S, subpath), [title("A title")])
            assert await count_titles(other) == 1
            return await get(*name)

        def read_and_patch(transcripts: ClaudeTranscripts, reference: str) -> Any:
            monkeypatch.setattr(ClaudeTranscripts, "read", read)
            copy = read(transcripts, reference)
            monkeypatch.setattr(hub.store, "get", store_first)
            return copy

        monkeypatch.setattr(ClaudeTranscripts, "read", read_and_patch)
        await hub.sync.import_session(LOCAL, S, "claude")
        assert await count_titles(hub) == 1
        await hub.sync.ensure_current(LOCAL, S)
        assert await count_titles(hub) == 1
        append(changed_path, title("Another"))
        await hub.sync.ensure_current(LOCAL, S)
        assert await count_titles(hub) == 1


async def test_line_that_the_sdk_mirrors_and_writes_is_stored_once(
    home: Home, tmp_path: Path
) -> None:
    path = home.write_conversation()
    async with await open_hub(tmp_path / "data") as hub:
        await hub.sync.import_session(LOCAL, S, "claude")
        mirror = TranscriptMirror(hub.store, LOCAL.workspace)
        append(path, title("A title"))
        await mirror.append(TranscriptKey("-w", S), [title("A title")])
        await hub.sync.ensure_current(LOCAL, S)
        assert await count_titles(hub) == 1
        append_turn(path)
        await hub.sync.ensure_current(LOCAL, S)
        assert (await hub.sessions.get(LOCAL, S)).messages == 4
