"""The index of Claude Code's sessions: built once, kept current, and rebuilt when damaged."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from segue.model import ids, search_text
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.model.session import Session
from segue.sources import safe_io
from segue.sources.claude.index import discovery
from segue.sources.index.database import FORMAT, FileKey, Index
from tests.claude.entries import S2, VERSIONS, Home, S, as_line, assistant, title, user
from tests.claude.helpers import S3, append, claude_hub, list_ids
from tests.store.damage import damage_schema


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return the list to which the paths of opened transcripts are added."""
    seen: list[str] = []
    real = safe_io.open_regular

    def counting(path: str) -> tuple[int, os.stat_result]:
        seen.append(path)
        return real(path)

    monkeypatch.setattr(safe_io, "open_regular", counting)
    yield seen


async def test_list_opens_no_unchanged_transcript(home: Home, opens: list[str]) -> None:
    for number in range(50):
        home.write_conversation(ids.new_id(), project=f"-p{number % 3}")
    async with claude_hub(home) as (hub, _):
        await list_ids(hub)
        assert len(opens) == 50
        opens.clear()
        assert len(await list_ids(hub, limit=1000)) == 50
    async with claude_hub(home) as (hub, _):  # as in the next process
        assert len(await list_ids(hub, limit=1000)) == 50
    assert opens == []


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which the directories that are compared with the index are added."""
    seen: list[str] = []
    keys = Index.keys

    def noting(self: Index, directory: str) -> dict[str, FileKey]:
        seen.append(os.path.basename(directory))
        return keys(self, directory)

    monkeypatch.setattr(Index, "keys", noting)
    return seen


async def test_list_does_not_compare_an_unchanged_directory(
    home: Home, compared: list[str]
) -> None:
    paths = [
        home.write_conversation(ids.new_id(), project=f"-p{number % 3}") for number in range(9)
    ]
    async with claude_hub(home) as (hub, _):
        await list_ids(hub)
        await list_ids(hub)
        compared.clear()
        assert len(await list_ids(hub)) == 9
    async with claude_hub(home) as (hub, _):
        assert len(await list_ids(hub)) == 9
        assert compared == []
        append(paths[4], assistant("a2", "a1"))
        await list_ids(hub)
        await list_ids(hub)
        assert compared == ["-p1", "-p1"]
        await list_ids(hub)
        assert compared == ["-p1", "-p1"]


def archive(path: Path) -> None:
    path.with_suffix("").mkdir()
    body = '{"archived":true,"at":"2030-01-01T00:00:00Z"}'
    (path.with_suffix("") / "archived.json").write_text(body)


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda path: append(path, title("appended")), "appended"),
        (lambda path: path.write_bytes(as_line(user("u1", None, "rewritten"))), "rewritten"),
        (lambda path: os.replace(path.with_name("other"), path), "other"),
        (lambda path: path.rename(path.with_name(f"{S3}.jsonl")), "hi"),
        (lambda path: path.rename(path.parent.parent / "-new" / path.name), "hi"),
        (archive, None),
        (lambda path: path.unlink(), None),
        (lambda path: shutil.rmtree(path.parent), None),
        (lambda path: path.parent.rename(path.parent.with_name("-moved")), "hi"),
        (lambda path: (path.unlink(), path.mkdir()), None),
        (lambda path: os.truncate(path, 0), None),
    ],
)
async def test_next_list_shows_every_change_of_a_transcript(
    home: Home, change: Callable[[Path], object], left: str | None
) -> None:
    path = home.write_conversation(S)
    path.with_name("other").write_bytes(as_line(user("u1", None, "other")))
    home.write_conversation(S2, project="-new", prompt="other session")
    async with claude_hub(home) as (hub, _):
        for _ in range(3):
            assert set(await list_ids(hub)) == {S, S2}
        change(path)
        for _ in range(3):
            sessions = (await hub.sessions.list(LOCAL, Query())).sessions
            assert {session.title for session in sessions} == {
                "other session",
                *([left] if left else []),
            }


async def test_digest_is_not_saved_while_another_process_writes(home: Home) -> None:
    home.write_conversation()
    async with claude_hub(home) as (hub, source):
        await list_ids(hub)
        with sqlite3.connect(source.current_index.index.path) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await list_ids(hub) == [S]
            assert [*source.current_index.index.directory_digests().values()] == [None]
        other.close()
        await list_ids(hub)
        assert None not in source.current_index.index.directory_digests().values()


async def test_digest_is_not_saved_after_a_concurrent_change(home: Home) -> None:
    path = home.write_conversation()
    async with claude_hub(home) as (hub, source):
        await list_ids(hub)
        seen = discovery.find_differences(source.current_index.index, source.home)
        assert seen.unchanged and not seen.changed
        append(path, title("T"))
        await source.current_index.update([str(path)])
        source.current_index.apply(source.current_index.index, seen)
        assert [*source.current_index.index.directory_digests().values()] == [None]


async def test_list_stats_each_transcript_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write_conversation()
    stats: list[str] = []
    real = os.stat

    def counting(name: Any, **options: Any) -> os.stat_result:
        stats.append(str(name))
        return real(name, **options)

    async with claude_hub(home) as (hub, _):
        await list_ids(hub)
        monkeypatch.setattr(os, "stat", counting)
        await list_ids(hub)
        assert [name for name in stats if name.endswith(".jsonl")] == [f"{S}.jsonl"]
        stats.clear()
        await hub.sessions.get(LOCAL, S)
        assert not any(
            name.endswith(".jsonl") for name in stats
        )  # it stats that transcript by its path


async def test_index_reads_only_the_appended_part_of_a_transcript(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.write([user(f"u{n}", None, "x" * 1000) for n in range(500)])
    async with claude_hub(home) as (hub, _):
        await list_ids(hub)
        bytes_read = 0
        real = os.pread

        def counting(descriptor: int, size: int, offset: int) -> bytes:
            nonlocal bytes_read
            data = real(descriptor, size, offset)
            bytes_read += len(data)
            return data

        append(path, user("v1", None, "fresh"))
        monkeypatch.setattr(os, "pread", counting)
        assert await list_ids(hub, text="fresh") == [S]
        assert bytes_read < 200_000 < path.stat().st_size
        assert (await hub.sessions.get(LOCAL, S)).messages == 501


def damage(path: Path, how: str) -> None:
    if how == "gone":
        for name in path.parent.iterdir():
            name.unlink()
    elif how == "garbage":
        path.write_bytes(b"this is not a database" * 1000)
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "format":
        connection = sqlite3.connect(path)
        connection.execute(f"PRAGMA user_version = {FORMAT - 1}")
        connection.close()
    elif how == "pages":
        data = bytearray(path.read_bytes())
        data[4096:] = os.urandom(len(data) - 4096)
        path.write_bytes(data)
    elif how == "search":
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("DELETE FROM search_data WHERE id > 1")
        connection.close()
    elif how == "schema":
        damage_schema(path)


@pytest.mark.parametrize("how", ["gone", "garbage", "empty", "format", "pages", "search", "schema"])
async def test_damaged_index_is_rebuilt(home: Home, how: str) -> None:
    for id in (S, S2, S3):
        home.write_conversation(id, prompt=f"say {id}")
    async with claude_hub(home) as (hub, source):
        await list_ids(hub)
        path = source.current_index.index.path
    damage(path, how)
    async with claude_hub(home) as (hub, source):
        assert len(await list_ids(hub)) == 3
        assert await list_ids(hub, text="22222222") == [S2]
        await hub.editor.set_title(LOCAL, S, "Renamed")
    async with claude_hub(home) as (hub, _):
        assert (await hub.sessions.get(LOCAL, S)).title == "Renamed"


@pytest.mark.parametrize("how", ["gone", "garbage", "pages"])
async def test_index_damaged_while_open_is_rebuilt(home: Home, how: str) -> None:
    home.write_conversation(S)
    async with claude_hub(home) as (hub, source):
        await list_ids(hub)
        source.current_index.index.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        damage(source.current_index.index.path, how)
        home.write_conversation(S2, prompt="other")
        assert sorted(await list_ids(hub)) == [S, S2]
        assert await list_ids(hub, text="other") == [S2]


async def test_several_hubs_share_one_index(home: Home) -> None:
    path = home.write_conversation(S)
    async with claude_hub(home) as (one, _), claude_hub(home) as (two, _):
        assert await list_ids(one) == await list_ids(two) == [S]
        append(path, title("Seen by both"))
        home.write_conversation(S2)
        assert sorted(await list_ids(one)) == sorted(await list_ids(two)) == [S, S2]
        assert (await two.sessions.get(LOCAL, S)).title == "Seen by both"
        await one.editor.set_title(LOCAL, S2, "Other")
        assert (await two.sessions.get(LOCAL, S2)).title == "Other"


async def test_index_deletes_the_texts_of_deleted_sessions(home: Home) -> None:
    path = home.write([user("u1", None, "secretive words"), assistant("a1", "u1")])
    async with claude_hub(home) as (hub, source):
        assert await list_ids(hub, text="secretive") == [S]
        path.unlink()
        assert await list_ids(hub, text="secretive") == []
        count = source.current_index.index.execute("SELECT count(*) FROM texts").fetchone()
        hits = source.current_index.index.execute(
            "SELECT count(*) FROM search('secretive')"
        ).fetchone()
        assert (count, hits) == ((0,), (0,))
        assert os.stat(source.current_index.index.path).st_mode & 0o777 == 0o600


async def test_index_reports_progress_in_bytes(home: Home) -> None:
    sizes = [home.write_conversation(ids.new_id()).stat().st_size for _ in range(4)]
    reports: list[tuple[int, int]] = []
    async with claude_hub(home, progress=lambda done, total: reports.append((done, total))) as (
        hub,
        _,
    ):
        await list_ids(hub)
    assert [total for _, total in reports] == [sum(sizes)] * 4
    assert [done for done, _ in reports][-1] == sum(sizes)


async def test_large_update_does_not_block_the_event_loop(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segue.sources.index.current_index._MAX_INLINE_BYTES", 100)
    home.write_conversation()
    async with claude_hub(home) as (hub, _):
        lists = await asyncio.gather(list_ids(hub), list_ids(hub), hub.sessions.get(LOCAL, S))
        assert lists[:2] == [[S], [S]]
        assert isinstance(lists[2], Session)


async def test_search_finds_non_ascii_and_damaged_text(home: Home) -> None:
    home.write(
        [
            user("u1", None, "caf\u00e9 \ud83d half \u6f22\u5b57"),
            b"\x00\x00" + as_line(title("T")).strip(),
        ]
    )
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub, text="café") == [S]
        assert await list_ids(hub, text="漢字") == [S]
        assert (await hub.sessions.get(LOCAL, S)).title == "T"


@pytest.mark.parametrize(
    "words",
    [
        "Plain_words, of-ASCII.text 42nd",
        "x" * 64 + " " + "y" * 65 + " z",
        "nul\0inside it",
        "caf\u00e9 \u6f22\u5b57 Stra\u00dfe \ud83d",
        "",
        "under_score __dunder__",
    ],
)
async def test_index_has_the_same_tokens_as_every_store(home: Home, words: str) -> None:
    home.write([user("u1", None, f"{words} end")])
    async with claude_hub(home) as (hub, source):
        (session,) = (await hub.sessions.list(LOCAL)).sessions
        index = source.current_index.index
        index.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab (main, search, row)")
        tokens = {term for (term,) in index.execute("SELECT term FROM temp.vocabulary")}
        row = search_text.searchable_row(session)
        assert tokens == {*search_text.tokens(f"{words} end"), *search_text.tokens(row)}


ROWS = "SELECT path, size, id, next, parser_state, texts, base, shown FROM files ORDER BY path"


@pytest.mark.parametrize("held", [0, 1 << 20], ids=["texts as they come", "texts held"])
@pytest.mark.parametrize("own", [0, 100_000])
@pytest.mark.parametrize("program", [sys.executable, "/bin/true", "/nowhere"])
async def test_worker_processes_build_the_same_index(
    homes: Path, home: Home, monkeypatch: pytest.MonkeyPatch, held: int, own: int, program: str
) -> None:
    (home.projects / "-w").mkdir()
    for version in VERSIONS[::4]:
        for path in (homes / version / "projects").glob("*/*.jsonl"):
            shutil.copy2(path, home.projects / "-w" / path.name)
    home.write([user("u1", None, "caf\u00e9 \ud83d nul\0 " + "y" * 70)])
    (home.projects / "-w" / f"{S2}.jsonl").mkdir()

    async def read_rows() -> tuple[list[Any], list[Any]]:
        async with claude_hub(home) as (hub, source):
            assert await list_ids(hub, text="caf\u00e9") == [S]
            texts = "SELECT seq, text FROM texts ORDER BY text, seq"
            rows = (
                source.current_index.index.execute(ROWS).fetchall(),
                source.current_index.index.execute(texts).fetchall(),
            )
            source.current_index.index.reset()
            return rows

    single_process = await read_rows()
    monkeypatch.setattr(sys, "executable", program)
    monkeypatch.setattr("segue.sources.claude.index.index_update._MIN_WORKER_BYTES", 0)
    monkeypatch.setattr("segue.sources.claude.index.index_update._MAX_HELD_BYTES", held)
    monkeypatch.setattr("segue.sources.index.parse_workers.os.cpu_count", lambda: 3)
    monkeypatch.setattr("segue.sources.index.parse_workers._OWN_BYTES", own)
    assert await read_rows() == single_process


async def test_worker_processes_import_nothing_from_the_current_directory(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "segue").mkdir()
    evil = "import pathlib; pathlib.Path(__file__).with_name('ran').touch()"
    (tmp_path / "segue" / "__init__.py").write_text(evil)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("segue.sources.claude.index.index_update._MIN_WORKER_BYTES", 0)
    monkeypatch.setattr("segue.sources.index.parse_workers.os.cpu_count", lambda: 2)
    monkeypatch.setattr("segue.sources.index.parse_workers._OWN_BYTES", 0)
    home.write_conversation(S)
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub) == [S]
    assert not (tmp_path / "segue" / "ran").exists()


async def test_long_update_ends_when_the_source_is_closed(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segue.sources.index.current_index._MAX_INLINE_BYTES", 100)
    for _ in range(50):
        home.write_conversation(ids.new_id())
    async with claude_hub(home) as (hub, source):
        started = asyncio.Event()
        loop = asyncio.get_running_loop()
        source.current_index.progress = lambda done, total: loop.call_soon_threadsafe(started.set)
        listing = asyncio.ensure_future(list_ids(hub))
        await started.wait()
        listing.cancel()
        await asyncio.gather(listing, return_exceptions=True)
    async with claude_hub(home) as (hub, _):
        assert len(await list_ids(hub, limit=1000)) == 50
