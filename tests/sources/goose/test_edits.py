"""Goose's own program makes the edits; without it they are in the overlay, or refused."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from segue.hub import Hub
from segue.model.errors import AgentFailed, ReadOnly
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.sources.kit.source import KitSource
from segue.store.memory import MemoryStore
from segue.testing.helpers import message_texts
from tests.sources.goose import goose_program
from tests.sources.goose.goose_rows import GooseSessions, response, text

CWD = "/work/project"
NOON = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GooseSessions]:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with closing(GooseSessions(tmp_path / "goose" / "sessions", tmp_path / "goose.index")) as tool:
        yield tool


@pytest.fixture
def source(tool: GooseSessions) -> KitSource:
    return tool.open_source()


def open_hub(source: KitSource, tmp_path: Path) -> Hub:
    return Hub(MemoryStore(), tmp_path / "data", sources=[source])


async def texts(source: KitSource, id: str) -> list[str]:
    return message_texts([event async for event in source.conversation(id)])


async def test_names_and_archive_are_those_of_goose(
    tool: GooseSessions, source: KitSource, tmp_path: Path
) -> None:
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    goose_program.install(tmp_path / "bin")
    async with open_hub(source, tmp_path) as hub:
        assert (await hub.editor.set_title(LOCAL, id, "A name")).title == "A name"
        assert (await hub.editor.archive(LOCAL, id)).state == "archived"
        row = tool.connection.execute("SELECT name, archived_at FROM sessions").fetchone()
        assert row[0] == "A name" and row[1] is not None
        assert (await hub.editor.unarchive(LOCAL, id)).state == "active"
        assert (await hub.editor.set_title(LOCAL, id, None)).title is None  # in the overlay
        assert tool.connection.execute("SELECT name FROM sessions").fetchone() == ("A name",)


async def test_restored_session_has_a_new_id_and_keeps_its_tag_and_subagents(
    tool: GooseSessions, source: KitSource, tmp_path: Path
) -> None:
    goose_program.install(tmp_path / "bin")
    native_id = tool.add_session(NOON, cwd=CWD, name="A title")
    child = tool.add_session(NOON, session_type="sub_agent", parent_session_id=native_id)
    tool.add_message(native_id, "user", text("question"), at=NOON)
    spawned = response("call", "done", _meta={"subagent_session_id": child})
    tool.add_message(native_id, "user", spawned, at=NOON)
    tool.add_message(child, "user", text("task"), at=NOON)
    tool.add_message(child, "assistant", text("result"), at=NOON)
    tool.add_message(native_id, "assistant", text("answer"), at=NOON)
    id = (await tool.row(native_id)).id
    async with open_hub(source, tmp_path) as hub:
        await hub.editor.set_tag(LOCAL, id, "important")
        trashed = await hub.editor.trash(LOCAL, id)
        assert (trashed.id, trashed.state, trashed.tag) == (id, "trashed", "important")
        assert native_id not in sessions_of(tool)
        assert await texts(source, id) == ["question", "answer"]
        assert [thread.id for thread in await source.threads(id)] == [child]
        restored = await hub.editor.restore(LOCAL, id)
        assert restored.id != id and restored.native_id in sessions_of(tool)
        assert (restored.title, restored.tag, restored.cwd) == ("A title", "important", CWD)
        assert await texts(source, restored.id) == ["question", "answer"]
        assert [thread.id for thread in await source.threads(restored.id)] == [child]
        assert await source.page(Query(trash=True)) == []


def sessions_of(tool: GooseSessions) -> list[str]:
    """Return the ids in Goose's database."""
    return [id for (id,) in tool.connection.execute("SELECT id FROM sessions")]


async def test_fork_has_the_messages_up_to_an_event(
    tool: GooseSessions, source: KitSource, tmp_path: Path
) -> None:
    goose_program.install(tmp_path / "bin")
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    await tool.add_turn(id, "next question", "next answer", at=NOON + timedelta(minutes=1))
    async with open_hub(source, tmp_path) as hub:
        await source.refresh()
        answer = next(e for e in await source.events(id) if message_texts([e]) == ["answer"])
        fork = await hub.editor.fork(LOCAL, id, at=answer.seq, title="A fork", cwd="/work")
        assert (fork.title, fork.cwd, fork.source) == ("A fork", "/work", "goose")
        assert fork.fork is not None and fork.fork.session == id
        assert await texts(source, fork.id) == ["question", "answer"]
        whole = await hub.editor.fork(LOCAL, id)
        assert len(await texts(source, whole.id)) == 4


async def test_version_without_a_method_leaves_the_edit_to_the_overlay(
    tool: GooseSessions, source: KitSource, tmp_path: Path
) -> None:
    goose_program.install(tmp_path / "bin", without="session/delete")
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    async with open_hub(source, tmp_path) as hub:
        assert (await hub.editor.trash(LOCAL, id)).state == "trashed"
        assert len(sessions_of(tool)) == 1
        assert list((tool.directory / "segue-trash").iterdir()) == []
        with pytest.raises(ReadOnly, match="cannot delete it permanently"):
            await hub.editor.purge(LOCAL, id)
        assert (await hub.editor.restore(LOCAL, id)).id == id


async def test_failed_delete_loses_nothing(
    tool: GooseSessions, source: KitSource, tmp_path: Path
) -> None:
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    program = tmp_path / "bin" / "goose"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'the database is broken' >&2\nexit 1\n")
    program.chmod(0o755)
    async with open_hub(source, tmp_path) as hub:
        with pytest.raises(AgentFailed, match="the database is broken"):
            await hub.editor.trash(LOCAL, id)
        assert (await hub.sessions.get(LOCAL, id)).state == "active"
    assert not (tool.directory / "segue-trash").exists()


async def test_copy_stays_if_the_program_fails_after_the_delete(
    tool: GooseSessions, source: KitSource, tmp_path: Path
) -> None:
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    goose_program.install(tmp_path / "bin", fails_after="session/delete")
    async with open_hub(source, tmp_path) as hub:
        with pytest.raises(AgentFailed, match="Internal error"):
            await hub.editor.trash(LOCAL, id)
        assert sessions_of(tool) == []
        assert [row.id for row in await source.page(Query(trash=True))] == [id]
        assert await texts(source, id) == ["question", "answer"]
        restored = await hub.editor.restore(LOCAL, id)
        assert await texts(source, restored.id) == ["question", "answer"]


async def test_program_of_another_home_loses_nothing(
    tool: GooseSessions, source: KitSource, tmp_path: Path
) -> None:
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    goose_program.install(tmp_path / "bin", ignores="session/delete")
    async with open_hub(source, tmp_path) as hub:
        with pytest.raises(AgentFailed, match="did not delete"):
            await hub.editor.trash(LOCAL, id)
        assert (await hub.sessions.get(LOCAL, id)).state == "active"
    assert list((tool.directory / "segue-trash").iterdir()) == []


async def test_without_the_program_edits_are_in_the_overlay_or_refused(
    tool: GooseSessions, source: KitSource, tmp_path: Path
) -> None:
    first = await tool.create("question", "answer", cwd=CWD, at=NOON)
    second = await tool.create("question 2", "answer 2", cwd=CWD, at=NOON)
    goose_program.install(tmp_path / "bin")
    async with open_hub(source, tmp_path) as hub:
        await hub.editor.trash(LOCAL, first)
        (tmp_path / "bin" / "goose").unlink()
        with pytest.raises(ReadOnly, match="needs the program `goose`, which is not installed"):
            await hub.editor.restore(LOCAL, first)
        assert (await hub.editor.set_title(LOCAL, second, "In the overlay")).title is not None
        assert (await hub.editor.trash(LOCAL, second)).state == "trashed"
        assert len(sessions_of(tool)) == 1
        with pytest.raises(ReadOnly, match="needs the program `goose`, which is not installed"):
            await hub.editor.purge(LOCAL, second)
        await hub.editor.purge(LOCAL, first)  # it is in segue's trash, which needs no program
        assert [row.id for row in await source.page(Query(trash=True))] == [second]
        assert (await hub.editor.restore(LOCAL, second)).state == "active"


async def test_sessions_of_older_files_are_listed_and_read(
    tool: GooseSessions, source: KitSource, tmp_path: Path
) -> None:
    goose_program.install(tmp_path / "bin")
    path = write_old_session(tool, "20250325_200615", "old question")
    write_old_session(tool, "20250325_200616", "imported")
    imported = tool.add_session(NOON, cwd=CWD)
    tool.connection.execute("UPDATE sessions SET id = '20250325_200616'")
    tool.add_turn_rows("20250325_200616", "imported", "answer", NOON)
    del imported
    damaged = tool.directory / "damaged.jsonl"
    damaged.write_bytes(b'{"role": [}\n\xff\xff\n')
    async with open_hub(source, tmp_path) as hub:
        await source.refresh()
        rows = {row.native_id: row for row in await source.page(Query())}
        assert rows.keys() == {"20250325_200615", "20250325_200616"}
        old = rows["20250325_200615"]
        assert (old.title, old.cwd, old.messages) == ("An old title", "/old", 2)
        assert old.usage.input_tokens == 100 and old.usage.output_tokens == 20
        assert await texts(source, old.id) == ["old question", "old answer"]
        assert [problem.path for problem in (await source.examine()).problems] == [str(damaged)]
        before = path.read_bytes()
        await hub.editor.set_title(LOCAL, old.id, "In the overlay")
        assert (await hub.editor.trash(LOCAL, old.id)).state == "trashed"
        assert (await hub.editor.restore(LOCAL, old.id)).state == "active"
        assert path.read_bytes() == before
        with path.open("a") as file:
            file.write(json.dumps(message("user", "later", 1_742_934_000)) + "\n")
        await source.refresh()
        assert (await texts(source, old.id))[-1] == "later"


def write_old_session(tool: GooseSessions, id: str, prompt: str) -> Path:
    """Write a session as Goose did before it had a database."""
    header = {
        "working_dir": "/old",
        "description": "An old title",
        "message_count": 2,
        "accumulated_input_tokens": 100,
        "accumulated_output_tokens": 20,
    }
    lines = [
        header,
        message("user", prompt, 1_742_933_775),
        message("assistant", "old answer", 1_742_933_780),
    ]
    path = tool.directory / f"{id}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def message(role: str, value: str, created: int) -> dict[str, object]:
    return {"role": role, "created": created, "content": [text(value)]}
