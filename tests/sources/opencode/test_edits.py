"""opencode's own program makes the edits; without it they are in the overlay, or refused."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from segue.hub import Hub
from segue.model.errors import AgentFailed, NotFound, ReadOnly
from segue.model.event import ToolResult
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.sources.kit.source import KitSource
from segue.store.memory import MemoryStore
from segue.testing.helpers import message_texts
from tests.sources.opencode import opencode_program
from tests.sources.opencode.opencode_rows import DatabaseSessions, FileSessions, millis

CWD = "/work/project"
NOON = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DatabaseSessions]:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    tool = DatabaseSessions(tmp_path / "opencode", tmp_path / "opencode.index")
    with closing(tool):
        yield tool


@pytest.fixture
def source(tool: DatabaseSessions) -> KitSource:
    return tool.open_source()


def open_hub(source: KitSource, tmp_path: Path) -> Hub:
    return Hub(MemoryStore(), tmp_path / "data", sources=[source])


async def texts(source: KitSource, id: str) -> list[str]:
    return message_texts([event async for event in source.conversation(id)])


async def test_names_and_archive_are_those_of_opencode(
    tool: DatabaseSessions, source: KitSource, tmp_path: Path
) -> None:
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    opencode_program.install(tmp_path / "bin")
    async with open_hub(source, tmp_path) as hub:
        assert (await hub.editor.set_title(LOCAL, id, "A name")).title == "A name"
        assert (await hub.editor.archive(LOCAL, id)).state == "archived"
        row = tool.connection.execute("SELECT title, time_archived FROM session").fetchone()
        assert row[0] == "A name" and row[1] > 0
        assert (await hub.editor.unarchive(LOCAL, id)).state == "active"


async def test_session_is_found_by_the_id_that_the_tool_gave_it(
    tool: DatabaseSessions, source: KitSource, tmp_path: Path
) -> None:
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    native_id = await tool.native_id(id)
    async with open_hub(source, tmp_path) as hub:
        assert (await hub.sessions.resolve(LOCAL, native_id)).id == id
        assert (await hub.sessions.resolve(LOCAL, native_id, titles=False)).id == id
        with pytest.raises(NotFound):
            await hub.sessions.resolve(LOCAL, f"{native_id}0")


async def test_restored_session_is_the_same_with_its_subagents(
    tool: DatabaseSessions, source: KitSource, tmp_path: Path
) -> None:
    opencode_program.install(tmp_path / "bin")
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    native_id = await tool.native_id(id)
    child = tool.add_session(NOON, parent_id=native_id)
    tool.add_prompt(child, "task", NOON)
    tool.add_answer(child, "result", NOON)
    async with open_hub(source, tmp_path) as hub:
        before = await hub.sessions.get(LOCAL, id)
        assert (await hub.editor.trash(LOCAL, id)).state == "trashed"
        assert tool.connection.execute("SELECT count(*) FROM session").fetchone() == (0,)
        assert await texts(source, id) == ["question", "answer"]
        assert [thread.id for thread in await source.threads(id)] == [child]
        assert await source.page(Query()) == []
        restored = await hub.editor.restore(LOCAL, id)
        assert (restored.id, restored.title, restored.messages) == (id, before.title, 2)
        assert [thread.id for thread in await source.threads(id)] == [child]
        assert await source.page(Query(trash=True)) == []
        await hub.editor.trash(LOCAL, id)
        await hub.editor.purge(LOCAL, id)
        assert await source.get(id) is None
    assert list((tool.directory / "segue-trash").iterdir()) == []


async def test_fork_has_the_parts_up_to_an_event_and_no_open_call(
    tool: DatabaseSessions, source: KitSource, tmp_path: Path
) -> None:
    opencode_program.install(tmp_path / "bin")
    native_id = tool.add_session(NOON, cwd=CWD, title="A title")
    tool.add_prompt(native_id, "question", NOON)
    times = {"created": millis(NOON), "completed": millis(NOON) + 9}
    message = tool.add_message(native_id, "assistant", NOON, time=times, finish="stop")
    span = {"start": millis(NOON), "end": millis(NOON) + 5}
    state = {"status": "completed", "input": {"command": "ls"}, "output": "file", "time": span}
    tool.add_part(native_id, message, NOON, type="tool", tool="bash", callID="c", state=state)
    end = {"start": millis(NOON) + 6, "end": millis(NOON) + 8}
    tool.add_part(native_id, message, NOON, type="text", text="answer", time=end)
    id = (await tool.row(native_id)).id
    async with open_hub(source, tmp_path) as hub:
        await source.refresh()
        events = await source.events(id)
        call = next(event for event in events if event.body.__class__.__name__ == "ToolCall")
        fork = await hub.editor.fork(LOCAL, id, at=call.seq, title="A fork")
        assert (fork.title, fork.source, fork.fork and fork.fork.session) == (
            "A fork",
            "opencode",
            id,
        )
        assert await texts(source, fork.id) == ["question"]
        results = [
            event.body
            for event in await source.events(fork.id)
            if isinstance(event.body, ToolResult)
        ]
        assert [result.status for result in results] == ["cancelled"]
        whole = await hub.editor.fork(LOCAL, id)
        assert await texts(source, whole.id) == ["question", "answer"]
        assert await texts(source, id) == ["question", "answer"]


async def test_session_in_files_is_changed_in_the_overlay(
    tool: DatabaseSessions, source: KitSource, tmp_path: Path
) -> None:
    opencode_program.install(tmp_path / "bin")
    files = FileSessions(tmp_path / "other", tmp_path / "unused.index")
    native_id = files.add_session(NOON, cwd=CWD, title="In files")
    files.add_prompt(native_id, "question", NOON)
    files.add_answer(native_id, "answer", NOON)
    (tmp_path / "other" / "storage").rename(tool.directory / "storage")
    async with open_hub(source, tmp_path) as hub:
        await source.refresh()
        (session,) = await source.page(Query())
        assert (await hub.editor.set_title(LOCAL, session.id, "Overlay")).title == "Overlay"
        assert (await hub.editor.trash(LOCAL, session.id)).state == "trashed"
        with pytest.raises(ReadOnly, match="does not have the session"):
            await hub.editor.purge(LOCAL, session.id)
        await hub.editor.restore(LOCAL, session.id)
        fork = await hub.editor.fork(LOCAL, session.id)
        assert fork.source == "segue"


async def test_without_the_program_edits_are_in_the_overlay_or_refused(
    tool: DatabaseSessions, source: KitSource, tmp_path: Path
) -> None:
    first = await tool.create("question", "answer", cwd=CWD, at=NOON)
    second = await tool.create("question 2", "answer 2", cwd=CWD, at=NOON)
    opencode_program.install(tmp_path / "bin")
    async with open_hub(source, tmp_path) as hub:
        await hub.editor.trash(LOCAL, first)
        (tmp_path / "bin" / "opencode").unlink()
        with pytest.raises(ReadOnly, match="needs the program `opencode`, which is not installed"):
            await hub.editor.restore(LOCAL, first)
        assert (await hub.editor.archive(LOCAL, second)).state == "archived"
        with pytest.raises(ReadOnly, match="needs the program `opencode`, which is not installed"):
            await hub.editor.purge(LOCAL, second)
        await hub.editor.purge(LOCAL, first)
        assert await source.page(Query(trash=True)) == []


async def test_program_that_does_not_start_loses_nothing(
    tool: DatabaseSessions, source: KitSource, tmp_path: Path
) -> None:
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    program = tmp_path / "bin" / "opencode"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    async with open_hub(source, tmp_path) as hub:
        with pytest.raises(AgentFailed, match="ended unexpectedly"):
            await hub.editor.trash(LOCAL, id)
        assert (await hub.sessions.get(LOCAL, id)).state == "active"
    assert not (tool.directory / "segue-trash").exists()


async def test_session_that_is_deleted_late_stays_in_the_trash(
    tool: DatabaseSessions,
    source: KitSource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    opencode_program.install(tmp_path / "bin")
    monkeypatch.setenv("OPENCODE_DELETE_SECONDS", "0.7")
    monkeypatch.setattr("segue.sources.opencode.program._ANSWER_SECONDS", 0.5)
    async with open_hub(source, tmp_path) as hub:
        with pytest.raises(AgentFailed, match="did not answer DELETE"):
            await hub.editor.trash(LOCAL, id)
        assert tool.connection.execute("SELECT count(*) FROM session").fetchone() == (0,)
        await source.refresh()
        assert (await hub.sessions.get(LOCAL, id)).state == "trashed"
        assert await texts(source, id) == ["question", "answer"]


async def test_session_whose_subagent_is_not_imported_stays_in_the_trash(
    tool: DatabaseSessions, source: KitSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opencode_program.install(tmp_path / "bin")
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    child = tool.add_session(NOON, parent_id=await tool.native_id(id))
    tool.add_prompt(child, "task", NOON)
    tool.add_answer(child, "result", NOON)
    async with open_hub(source, tmp_path) as hub:
        await hub.editor.trash(LOCAL, id)
        monkeypatch.setenv("OPENCODE_IGNORED_IMPORT", child)
        with pytest.raises(AgentFailed, match=f"did not import session {child}"):
            await hub.editor.restore(LOCAL, id)
        await source.refresh()
        assert (await hub.sessions.get(LOCAL, id)).state == "trashed"
        assert [thread.id for thread in await source.threads(id)] == [child]
        monkeypatch.delenv("OPENCODE_IGNORED_IMPORT")
        assert (await hub.editor.restore(LOCAL, id)).state == "active"
        assert [thread.id for thread in await source.threads(id)] == [child]


async def test_session_of_another_channel_is_restored(
    tool: DatabaseSessions, source: KitSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opencode_program.install(tmp_path / "bin")
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    tool.connection.close()
    (tool.directory / "opencode.db").rename(tool.directory / "opencode-dev.db")
    monkeypatch.setenv("OPENCODE_CHANNEL_DB", "opencode-dev.db")
    async with open_hub(source, tmp_path) as hub:
        await source.refresh()
        await hub.editor.trash(LOCAL, id)
        assert (await hub.editor.restore(LOCAL, id)).state == "active"
    assert list((tool.directory / "segue-trash").iterdir()) == []
