"""List the sessions of another ACP agent: segue itself, over another store."""

import shlex
import sys
from pathlib import Path

import pytest

from segue.agents.acp import AcpAgent
from segue.hub import Hub
from segue.hub.sync import acp_source
from segue.model import ids
from segue.model.event import Created
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.store.sqlite import SQLiteStore
from segue.testing.source import MemorySource


async def test_session_that_the_agent_deleted_is_no_longer_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acp_source, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(acp_source, "MAX_DIRECTORY_LISTS", 2)
    agent_directory = tmp_path / "theirs"
    agent_directory.mkdir()
    command = [sys.executable, "-m", "segue", "acp", "--data-dir", str(agent_directory)]
    async with (
        Hub(SQLiteStore.open(agent_directory / "segue.db"), agent_directory) as other,
        Hub(SQLiteStore.open(tmp_path / "segue.db"), tmp_path) as hub,
    ):
        paths = [str(tmp_path / name) for name in "abcd"]
        sessions = [await other.editor.create(LOCAL, cwd=path, title="x") for path in paths]
        await hub.agents.register_agent(
            LOCAL, "theirs", {"kind": "acp", "command": shlex.join(command)}
        )
        (source,) = hub.sources
        assert isinstance(source, acp_source.AcpSource)

        async def list_ids(cwd: str | None = None) -> set[str]:
            return {row.id for row in (await hub.sessions.list(LOCAL, Query(cwd=cwd))).sessions}

        for path, session in zip(paths, sessions, strict=True):
            assert await list_ids(path) == {session.id}
        assert source._lists.keys() == {
            None,
            *paths[1:],
        }  # the list of all, and the newest directories
        await other.editor.trash(LOCAL, sessions[1].id)
        assert await list_ids() == {sessions[0].id, sessions[2].id, sessions[3].id}


async def test_session_that_another_source_has_is_listed_once(tmp_path: Path) -> None:
    agent_directory = tmp_path / "theirs"
    agent_directory.mkdir()
    command = [sys.executable, "-m", "segue", "acp", "--data-dir", str(agent_directory)]
    files = MemorySource()
    async with (
        Hub(SQLiteStore.open(agent_directory / "segue.db"), agent_directory) as other,
        Hub(SQLiteStore.open(tmp_path / "segue.db"), tmp_path, sources=[files]) as hub,
    ):
        created_ids = [(await other.editor.create(LOCAL, cwd="/p", title="x")).id for _ in range(2)]
        await files.create(created_ids[0], [Created(cwd="/p", source="memory")])
        spec = {"kind": "acp", "command": shlex.join(command)}
        await hub.agents.register_agent(LOCAL, "theirs", spec)
        rows = (await hub.sessions.list(LOCAL)).sessions
        assert {(row.id, row.source) for row in rows} == {
            (created_ids[0], "memory"),
            (created_ids[1], "theirs"),
        }


async def test_session_with_an_id_of_the_tool_is_listed_once(tmp_path: Path) -> None:
    program = Path(__file__).parent.parent / "acp" / "simple_agent.py"
    files = MemorySource()
    async with Hub(SQLiteStore.open(tmp_path / "segue.db"), tmp_path, sources=[files]) as hub:
        spec = {"kind": "acp", "command": shlex.join([sys.executable, str(program)])}
        agent = await hub.agents.register_agent(LOCAL, "theirs", spec)
        assert isinstance(agent, AcpAgent)
        # The agent has no UUIDs, so the source and segue derive different ids.
        native = [(await agent.start_session(str(tmp_path), (), None)).native_id for _ in range(2)]
        id = ids.derived_id("memory", native[0])
        created = Created(cwd=str(tmp_path), source="memory", native_id=native[0])
        await files.create(id, [created])
        rows = (await hub.sessions.list(LOCAL)).sessions
        assert {(row.native_id, row.source) for row in rows} == {
            (native[0], "memory"),
            (native[1], "theirs"),
        }
        other = Created(cwd="/elsewhere", source="memory", native_id=native[1])
        await files.create(ids.new_id(), [other])  # another tool's session
        assert len((await hub.sessions.list(LOCAL)).sessions) == 3


async def test_imported_session_has_the_edits_of_the_user(tmp_path: Path) -> None:
    agent_directory = tmp_path / "theirs"
    agent_directory.mkdir()
    command = [sys.executable, "-m", "segue", "acp", "--data-dir", str(agent_directory)]
    async with (
        Hub(SQLiteStore.open(agent_directory / "segue.db"), agent_directory) as other,
        Hub(SQLiteStore.open(tmp_path / "segue.db"), tmp_path) as hub,
    ):
        id = (await other.editor.create(LOCAL, cwd=str(tmp_path), title="x")).id
        spec = {"kind": "acp", "command": shlex.join(command)}
        await hub.agents.register_agent(LOCAL, "theirs", spec)
        await hub.sessions.list(LOCAL)
        await hub.editor.set_title(LOCAL, id, "A new title")
        await hub.editor.set_tag(LOCAL, id, "urgent")
        await hub.editor.archive(LOCAL, id)
        await hub.sync.import_if_listed_only(LOCAL, id)
        copy = await hub.store.get("local", id)
        assert copy is not None
        assert (copy.title, copy.title_by, copy.tag) == ("A new title", "person", "urgent")
        assert copy.state == "archived"
