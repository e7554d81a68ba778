"""Where data is, and whose sessions a hub shows by default."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from segue.factory import open_hub
from segue.interfaces.cli.output import progress
from segue.model.errors import InvalidInput
from segue.model.principal import LOCAL
from segue.server.sockets import is_loopback, listen
from segue.sources.index import database as sources_index
from segue.testing.source import MemorySource
from tests.claude.entries import Home, S


@pytest.fixture
def used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which Claude Code was used."""
    home = tmp_path / "claude"
    (home / "projects").mkdir(parents=True)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home))
    monkeypatch.delenv("SEGUE_DATABASE_URL", raising=False)
    return home


async def source_names(directory: Path, **options: object) -> list[str]:
    async with await open_hub(directory, **options) as hub:  # type: ignore[arg-type]
        return [source.name for source in hub.sources]


async def test_claude_code_s_sessions_are_shown_with_the_embedded_store(
    tmp_path: Path, used: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await source_names(tmp_path) == ["claude"]
    assert await source_names(tmp_path, sources="none") == []
    assert await source_names(tmp_path, sources=[MemorySource()]) == ["memory"]
    monkeypatch.setenv("SEGUE_SOURCES", "none")
    assert await source_names(tmp_path) == []
    assert await source_names(tmp_path, sources="claude") == ["claude"]
    with pytest.raises(InvalidInput):
        await source_names(tmp_path, sources="claude,nine")


async def test_with_a_database_of_many_they_are_shown_when_that_is_asked_for(
    tmp_path: Path, used: Path, fresh_database_url: str
) -> None:
    assert await source_names(tmp_path, database_url=fresh_database_url) == []
    assert await source_names(tmp_path, database_url=fresh_database_url, sources="claude") == [
        "claude"
    ]


async def test_each_home_has_an_index_of_its_own(
    tmp_path: Path, used: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("claude", "other"):
        (tmp_path / name / "projects").mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / name))
        async with await open_hub(tmp_path / "data") as hub:
            (source,) = hub.sources
            await source.refresh()
    assert len(list((tmp_path / "data").glob("claude-*.index"))) == 2


async def test_an_index_of_another_format_goes_once_and_is_left_to_those_who_use_it(
    tmp_path: Path, used: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def indices() -> list[str]:
        async with await open_hub(tmp_path / "data") as hub:
            (source,) = hub.sources
            await source.refresh()
        return sorted(entry.name for entry in (tmp_path / "data").glob("claude-*"))

    with monkeypatch.context() as before:
        before.setattr(sources_index, "FORMAT", 1)
        (old,) = await indices()
    (new,) = await indices()
    (tmp_path / "data" / old).touch()  # by a program that still runs
    assert await indices() == [old, new]


def test_loopback_is_what_only_this_machine_reaches() -> None:
    for host, expected in (("127.0.0.1", True), ("localhost", True), ("0.0.0.0", False)):
        with listen(host, 0) as sock:
            assert is_loopback(sock) is expected


def test_a_bar_is_for_terminals_and_for_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert progress.index_progress() is None
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    bar = progress.index_progress()
    assert bar is not None
    bar(1, 1000)
    assert terminal.getvalue() == ""
    bar(50_000_000, 100_000_000)
    assert "50 of 100 MB" in terminal.getvalue()
    bar(100_000_000, 100_000_000)
    assert terminal.getvalue().endswith("\r\x1b[K")


async def test_a_hub_that_lasts_shows_what_a_tool_begins_that_was_never_used_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home.root))
    monkeypatch.delenv("SEGUE_DATABASE_URL", raising=False)
    assert await source_names(tmp_path) == []
    async with await open_hub(tmp_path, lasting=True) as hub:
        assert (await hub.sessions.list(LOCAL)).sessions == []
        home.write_conversation()
        assert [session.id for session in (await hub.sessions.list(LOCAL)).sessions] == [S]


PROGRAM = """
import asyncio, gc, segue
from segue.model.query import Query

async def main():
    async with await segue.open_hub() as hub:
        session = await hub.editor.create(segue.LOCAL, cwd="/")
        await hub.turns.run(segue.LOCAL, session.id, "hello")
        await hub.sync.write(segue.LOCAL, session.id, "claude")
        found = await hub.sessions.search(segue.LOCAL, Query(text="hello"))
        print(len([*hub.sources]), len(found.matches))
        for other in (await hub.sessions.list(segue.LOCAL)).sessions:
            if other.owner != "segue":
                await hub.sync.import_from_source(segue.LOCAL, other)
            await hub.sync.ensure_current(segue.LOCAL, other.id)
            fork = await hub.editor.fork(segue.LOCAL, other.id)
            print(len([event async for event in hub.history.read(segue.LOCAL, fork.id)]))
        for source in hub.sources:
            await source.examine()

asyncio.run(main())
gc.collect()
"""


def test_closed_hub_leaves_no_file_or_database_open(used: Path, tmp_path: Path) -> None:
    Home(used).write_conversation(prompt="hello there")
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", PROGRAM],
        env={**os.environ, "SEGUE_DATA_DIR": str(tmp_path / "data")},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    sources, matches, *events = map(int, done.stdout.split())
    assert sources >= 1 and matches == 2 and len(events) == 2 and min(events) > 1
