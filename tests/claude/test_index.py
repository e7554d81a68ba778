"""The index of Claude Code's sessions: made once, kept true, and made anew when spoilt."""

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
from segue.sources.claude.format import safe_io
from segue.sources.claude.index import discovery
from segue.sources.index.database import FORMAT, FileKey, Index
from tests.claude.entries import S2, VERSIONS, Home, S, as_line, assistant, title, user
from tests.claude.helpers import S3, append, claude_hub, list_ids


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The transcripts that are opened."""
    seen: list[str] = []
    real = safe_io.open_regular

    def counting(path: str) -> tuple[int, os.stat_result]:
        seen.append(path)
        return real(path)

    monkeypatch.setattr(safe_io, "open_regular", counting)
    yield seen


async def test_nothing_is_opened_when_nothing_changed(home: Home, opens: list[str]) -> None:
    for number in range(50):
        home.write_conversation(ids.new_id(), project=f"-p{number % 3}")
    async with claude_hub(home) as (hub, _):
        await list_ids(hub)
        assert len(opens) == 50
        opens.clear()
        assert len(await list_ids(hub, limit=1000)) == 50
    async with claude_hub(home) as (hub, _):  # and not in the next process either
        assert len(await list_ids(hub, limit=1000)) == 50
    assert opens == []


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The directories of which all rows are read, to be compared with a look at them."""
    seen: list[str] = []
    keys = Index.keys

    def noting(self: Index, directory: str) -> dict[str, FileKey]:
        seen.append(os.path.basename(directory))
        return keys(self, directory)

    monkeypatch.setattr(Index, "keys", noting)
    return seen


async def test_a_directory_that_looks_as_before_is_not_compared(
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


def archived(path: Path) -> None:
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
        (archived, None),
        (lambda path: path.unlink(), None),
        (lambda path: shutil.rmtree(path.parent), None),
        (lambda path: path.parent.rename(path.parent.with_name("-moved")), "hi"),
        (lambda path: (path.unlink(), path.mkdir()), None),
        (lambda path: os.truncate(path, 0), None),
    ],
)
async def test_whatever_happens_to_a_transcript_is_in_the_next_list(
    home: Home, change: Callable[[Path], object], left: str | None
) -> None:
    path = home.write_conversation(S)
    path.with_name("other").write_bytes(as_line(user("u1", None, "other")))
    home.write_conversation(S2, project="-new", prompt="beside")
    async with claude_hub(home) as (hub, _):
        for _ in range(3):
            assert set(await list_ids(hub)) == {S, S2}
        change(path)
        for _ in range(3):
            found = (await hub.sessions.list(LOCAL, Query())).sessions
            assert {one.title for one in found} == {"beside", *([left] if left else [])}


async def test_a_look_is_noted_by_nobody_who_would_have_to_wait(home: Home) -> None:
    home.write_conversation()
    async with claude_hub(home) as (hub, source):
        await list_ids(hub)
        with sqlite3.connect(source.index.path) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await list_ids(hub) == [S]
            assert [*source.index.directory_digests().values()] == [None]
        other.close()
        await list_ids(hub)
        assert None not in source.index.directory_digests().values()


async def test_a_look_is_not_noted_when_something_changed_meanwhile(home: Home) -> None:
    path = home.write_conversation()
    async with claude_hub(home) as (hub, source):
        await list_ids(hub)
        seen = discovery.find_differences(source.index, source.home)
        assert seen.unchanged and not seen.changed
        append(path, title("T"))
        await source.update_index([str(path)])
        source._update(source.index, seen)
        assert [*source.index.directory_digests().values()] == [None]


async def test_one_look_serves_a_page(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write_conversation()
    looks: list[str] = []
    real = os.stat

    def counting(name: Any, **options: Any) -> os.stat_result:
        looks.append(str(name))
        return real(name, **options)

    async with claude_hub(home) as (hub, _):
        await list_ids(hub)
        monkeypatch.setattr(os, "stat", counting)
        await list_ids(hub)
        assert [name for name in looks if name.endswith(".jsonl")] == [f"{S}.jsonl"]
        looks.clear()
        await hub.sessions.get(LOCAL, S)
        assert not any(name.endswith(".jsonl") for name in looks)  # it looks at that one by path


async def test_a_transcript_that_grew_is_read_from_where_it_ended(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.write([user(f"u{n}", None, "x" * 1000) for n in range(500)])
    async with claude_hub(home) as (hub, _):
        await list_ids(hub)
        taken = 0
        real = os.pread

        def counting(descriptor: int, size: int, offset: int) -> bytes:
            nonlocal taken
            data = real(descriptor, size, offset)
            taken += len(data)
            return data

        append(path, user("v1", None, "fresh"))
        monkeypatch.setattr(os, "pread", counting)
        assert await list_ids(hub, text="fresh") == [S]
        assert taken < 200_000 < path.stat().st_size
        assert (await hub.sessions.get(LOCAL, S)).messages == 501


def spoil(path: Path, how: str) -> None:
    if how == "gone":
        for name in path.parent.iterdir():
            name.unlink()
    elif how == "garbage":
        path.write_bytes(b"this is no database at all" * 1000)
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


@pytest.mark.parametrize("how", ["gone", "garbage", "empty", "format", "pages", "search"])
async def test_an_index_that_is_spoilt_is_made_anew(home: Home, how: str) -> None:
    for id in (S, S2, S3):
        home.write_conversation(id, prompt=f"say {id}")
    async with claude_hub(home) as (hub, source):
        await list_ids(hub)
        path = source.index.path
    spoil(path, how)
    async with claude_hub(home) as (hub, source):
        assert len(await list_ids(hub)) == 3
        assert await list_ids(hub, text="22222222") == [S2]
        await hub.editor.set_title(LOCAL, S, "Goes on")
    async with claude_hub(home) as (hub, _):
        assert (await hub.sessions.get(LOCAL, S)).title == "Goes on"


@pytest.mark.parametrize("how", ["gone", "garbage", "pages"])
async def test_an_index_that_is_spoilt_in_use_is_made_anew(home: Home, how: str) -> None:
    home.write_conversation(S)
    async with claude_hub(home) as (hub, source):
        await list_ids(hub)
        source.index.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        spoil(source.index.path, how)
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


async def test_texts_of_sessions_that_are_gone_are_not_kept(home: Home) -> None:
    path = home.write([user("u1", None, "secretive words"), assistant("a1", "u1")])
    async with claude_hub(home) as (hub, source):
        assert await list_ids(hub, text="secretive") == [S]
        path.unlink()
        assert await list_ids(hub, text="secretive") == []
        count = source.index.execute("SELECT count(*) FROM texts").fetchone()
        hits = source.index.execute("SELECT count(*) FROM search('secretive')").fetchone()
        assert (count, hits) == ((0,), (0,))
        assert os.stat(source.index.path).st_mode & 0o777 == 0o600


async def test_progress_is_told_in_bytes(home: Home) -> None:
    sizes = [home.write_conversation(ids.new_id()).stat().st_size for _ in range(4)]
    told: list[tuple[int, int]] = []
    async with claude_hub(home, progress=lambda done, total: told.append((done, total))) as (
        hub,
        _,
    ):
        await list_ids(hub)
    assert [total for _, total in told] == [sum(sizes)] * 4
    assert [done for done, _ in told][-1] == sum(sizes)


async def test_reading_much_leaves_the_loop_to_others(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segue.sources.claude.source._MAX_INLINE_BYTES", 100)
    home.write_conversation()
    async with claude_hub(home) as (hub, _):
        lists = await asyncio.gather(list_ids(hub), list_ids(hub), hub.sessions.get(LOCAL, S))
        assert lists[:2] == [[S], [S]]
        assert isinstance(lists[2], Session)


async def test_odd_text_is_kept_and_found(home: Home) -> None:
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
async def test_the_index_finds_the_tokens_that_every_store_finds(home: Home, words: str) -> None:
    home.write([user("u1", None, f"{words} end")])
    async with claude_hub(home) as (hub, source):
        await list_ids(hub)
        source.index.execute("CREATE VIRTUAL TABLE temp.found USING fts5vocab (main, search, row)")
        found = {term for (term,) in source.index.execute("SELECT term FROM temp.found")}
        assert found == set(search_text.tokens(f"{words} end"))


ROWS = "SELECT path, size, id, next, parser_state, texts, base, shown FROM files ORDER BY path"


@pytest.mark.parametrize("held", [0, 1 << 20], ids=["texts as they come", "texts held"])
@pytest.mark.parametrize("own", [0, 100_000])
@pytest.mark.parametrize("program", [sys.executable, "/bin/true", "/nowhere"])
async def test_helpers_read_what_one_process_would(
    homes: Path, home: Home, monkeypatch: pytest.MonkeyPatch, held: int, own: int, program: str
) -> None:
    (home.projects / "-w").mkdir()
    for version in VERSIONS[::4]:
        for path in (homes / version / "projects").glob("*/*.jsonl"):
            shutil.copy2(path, home.projects / "-w" / path.name)
    home.write([user("u1", None, "caf\u00e9 \ud83d nul\0 " + "y" * 70)])
    (home.projects / "-w" / f"{S2}.jsonl").mkdir()

    async def rows() -> tuple[list[Any], list[Any]]:
        async with claude_hub(home) as (hub, source):
            assert await list_ids(hub, text="caf\u00e9") == [S]
            texts = "SELECT seq, text FROM texts ORDER BY text, seq"
            found = source.index.execute(ROWS).fetchall(), source.index.execute(texts).fetchall()
            source.index.reset()
            return found

    alone = await rows()
    monkeypatch.setattr(sys, "executable", program)
    monkeypatch.setattr("segue.sources.claude.index.index_update._MIN_WORKER_BYTES", 0)
    monkeypatch.setattr("segue.sources.claude.index.index_update._MAX_HELD_BYTES", held)
    monkeypatch.setattr("segue.sources.claude.index.parse_workers.os.cpu_count", lambda: 3)
    monkeypatch.setattr("segue.sources.claude.index.parse_workers._OWN_BYTES", own)
    assert await rows() == alone


async def test_helpers_run_nothing_of_the_current_directory(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "segue").mkdir()
    evil = "import pathlib; pathlib.Path(__file__).with_name('ran').touch()"
    (tmp_path / "segue" / "__init__.py").write_text(evil)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("segue.sources.claude.index.index_update._MIN_WORKER_BYTES", 0)
    monkeypatch.setattr("segue.sources.claude.index.parse_workers.os.cpu_count", lambda: 2)
    monkeypatch.setattr("segue.sources.claude.index.parse_workers._OWN_BYTES", 0)
    home.write_conversation(S)
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub) == [S]
    assert not (tmp_path / "segue" / "ran").exists()


async def test_a_long_reading_ends_when_nobody_wants_it_any_more(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segue.sources.claude.source._MAX_INLINE_BYTES", 100)
    for _ in range(50):
        home.write_conversation(ids.new_id())
    async with claude_hub(home) as (hub, source):
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()
        source._progress = lambda done, total: loop.call_soon_threadsafe(begun.set)
        asking = asyncio.ensure_future(list_ids(hub))
        await begun.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    async with claude_hub(home) as (hub, _):
        assert len(await list_ids(hub, limit=1000)) == 50
