"""Odd files in a home: the source still lists, finds and reads the good sessions."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from segue.hub import Hub
from segue.model import search_text
from segue.model.errors import SegueError
from segue.model.event import Body
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.index.index_update import IndexUpdate
from segue.sources.claude.source import ClaudeSource
from segue.store.memory import MemoryStore
from tests.claude.entries import S2, Home, S, as_line, assistant, user
from tests.claude.test_hostile import GOOD, ODD, needs_proc


@asynccontextmanager
async def opened(home: Home) -> AsyncIterator[Hub]:
    source = ClaudeSource(home.root.parent / "index", ClaudeHome(str(home.root)))
    async with Hub(MemoryStore(), home.root.parent, sources=[source]) as hub:
        yield hub


async def check(home: Home) -> None:
    """Check that nothing raises, with a new or a complete index, and a good session is listed."""
    for _ in range(2):
        async with opened(home) as hub:
            sessions = (await hub.sessions.list(LOCAL, Query(limit=50))).sessions
            assert GOOD in [session.id for session in sessions]
            for session in sessions:
                events = [event async for event in hub.history.read(LOCAL, session.id)]
                assert events[-1].seq == session.last_seq
                conversation = [
                    event async for event in hub.history.conversation(LOCAL, session.id)
                ]
                assert {event.id for event in conversation} <= {event.id for event in events}
                await hub.history.events(LOCAL, session.id, backward=True, limit=3)
            results = await hub.sessions.search(LOCAL, Query(text="hi"))
            assert GOOD in [one.session.id for one in results.matches]


@pytest.mark.parametrize("make", ODD)
async def test_odd_file_named_like_a_transcript_hides_no_other_session(home: Home, make) -> None:  # type: ignore[no-untyped-def] # one of ODD
    home.write_conversation(GOOD)
    make(home.projects / "-w" / f"{S}.jsonl")
    await check(home)


@pytest.mark.parametrize("make", ODD)
async def test_edits_and_imports_of_an_odd_file_work_or_raise_an_error(home: Home, make) -> None:  # type: ignore[no-untyped-def] # one of ODD
    """Import and edit it by its id and by its path, inside and outside of the home."""
    home.write_conversation(GOOD)
    path, elsewhere = home.projects / "-w" / f"{S}.jsonl", home.root.parent / f"{S2}.jsonl"
    make(path)
    make(elsewhere)
    there = sorted(home.root.rglob("*"))
    async with opened(home) as hub:
        listed = [one.id for one in (await hub.sessions.list(LOCAL, Query(limit=50))).sessions]
        for work in (
            hub.sync.import_session(LOCAL, str(elsewhere), "claude"),
            hub.sync.import_session(LOCAL, str(path), "claude"),
            hub.editor.fork(LOCAL, S, in_store=True),
        ):
            with suppress(SegueError):
                await work
        if S not in listed:
            for work in (
                hub.editor.fork(LOCAL, S),
                hub.editor.set_title(LOCAL, S, "T"),
                hub.editor.trash(LOCAL, S),
            ):
                with suppress(SegueError):
                    await work
            assert sorted(home.root.rglob("*")) == there
        assert GOOD in [
            one.id for one in (await hub.sessions.list(LOCAL, Query(limit=50))).sessions
        ]


@pytest.mark.parametrize("make", ODD)
async def test_odd_file_anywhere_else_hides_no_session(home: Home, make) -> None:  # type: ignore[no-untyped-def] # one of ODD
    path = home.write_conversation(GOOD)
    make(home.projects / "-odd")
    make(path.with_suffix(""))
    (home.root / "segue-trash" / f"1-{S}").mkdir(parents=True)
    make(home.root / "segue-trash" / f"1-{S}" / "0")
    make(home.root / "segue-trash" / f"2-{S2}")
    await check(home)


@pytest.mark.parametrize("make", ODD)
async def test_transcript_that_is_odd_for_a_while_is_listed_again(home: Home, make) -> None:  # type: ignore[no-untyped-def] # one of ODD
    home.write_conversation(GOOD)
    path = home.write_conversation(S)
    async with opened(home) as hub:
        assert len((await hub.sessions.list(LOCAL, Query())).sessions) == 2
        path.unlink()
        make(path)
        assert GOOD in [one.id for one in (await hub.sessions.list(LOCAL, Query())).sessions]
        path.rmdir() if path.is_dir() else path.unlink()
        home.write_conversation(S)
        assert {one.id for one in (await hub.sessions.list(LOCAL, Query())).sessions} == {GOOD, S}


async def test_file_deleted_before_it_is_read_is_left_out(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_conversation(GOOD)
    deleted_path = home.write_conversation(S)
    read = IndexUpdate._update_file

    def late(self: IndexUpdate, *arguments: object) -> object:
        deleted_path.unlink(missing_ok=True)
        return read(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(IndexUpdate, "_update_file", late)
    async with opened(home) as hub:
        assert [one.id for one in (await hub.sessions.list(LOCAL, Query())).sessions] == [GOOD]


async def test_file_that_cannot_be_parsed_hides_only_itself_until_it_changes(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home.write_conversation(GOOD)
    path = home.write_conversation(S, prompt="unforeseen")
    searchable = search_text.searchable_text

    def failing_on_one_text(body: Body) -> str:
        if "unforeseen" in (text := searchable(body)):
            raise TypeError("unforeseen")
        return text

    monkeypatch.setattr(search_text, "searchable_text", failing_on_one_text)
    async with opened(home) as hub:
        for _ in range(2):
            assert [one.id for one in (await hub.sessions.list(LOCAL, Query())).sessions] == [GOOD]
        (record,) = caplog.records
        assert str(path) in record.getMessage() and record.exc_info
        monkeypatch.undo()
        path.write_bytes(path.read_bytes() + as_line(user("u2", "a1")))
        assert len((await hub.sessions.list(LOCAL, Query())).sessions) == 2
        assert len((await hub.sessions.search(LOCAL, Query(text="unforeseen"))).matches) == 1


async def test_list_needs_few_file_descriptors(home: Home) -> None:
    for number in range(200):
        home.write_conversation(f"{number:08d}-0000-4000-8000-000000000000")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    here = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 64
    resource.setrlimit(resource.RLIMIT_NOFILE, (here + 16, hard))
    try:
        async with opened(home) as hub:
            assert len((await hub.sessions.list(LOCAL, Query(limit=1000))).sessions) == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("calls", [3_000, pytest.param(30_000, marks=pytest.mark.full)])
async def test_reader_handles_many_calls_without_results(home: Home, calls: int) -> None:
    def uses(n: int) -> list[dict[str, object]]:
        return [{"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": {}}]

    home.write([user("u1", None), *(assistant(f"a{n}", "u1", uses(n)) for n in range(calls))])
    async with opened(home) as hub:
        (session,) = (await hub.sessions.list(LOCAL, Query())).sessions
        assert len(await hub.history.events(LOCAL, session.id, backward=True, limit=5)) == 5


MEASURE = """
import sys
from pathlib import Path
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from segue.sources.claude.index.index_update import IndexUpdate
from segue.model.query import Query
def now(coroutine):
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
small, large = (ClaudeSource(Path(at) / "index", ClaudeHome(at)) for at in sys.argv[1:])
now(small.refresh())
before = peak()
now(large.refresh())
(session,) = now(large.page(Query()))
found = now(large.events(session.id, after=session.last_seq - 120_000, limit=20))
last = now(large.events(session.id, backward=True, limit=20))
print(len(found), len(last), (peak() - before) // 1024)
"""


@needs_proc
@pytest.mark.parametrize(
    ("long", "size", "most"),
    [(False, 25, 40), pytest.param(False, 100, 64, marks=pytest.mark.full), (True, 100, 64)],
    ids=["short lines", "many short lines", "a long line"],
)
def test_index_of_100_megabytes_uses_less_than_64_megabytes(
    tmp_path: Path, long: bool, size: int, most: int
) -> None:
    for name in ("small", "large"):
        (tmp_path / name / "projects" / "-w").mkdir(parents=True)
    lines = [as_line(user(f"u{n}", f"u{n - 1}" if n else None, "hi")) for n in range(300)]
    data = b"".join(lines)
    (tmp_path / "small/projects/-w" / f"{S}.jsonl").write_bytes(data)
    with (tmp_path / "large/projects/-w" / f"{S}.jsonl").open("wb") as file:
        file.write(data)
        if long:
            file.write(b'{"parentUuid":"u1","type":"assistant","message":{"x":"')
            for _ in range(size):
                file.write(b"x" * 1_000_000)
            file.write(b'"},"uuid":"long","sessionId":"s"}\n')
            file.write(data)
        else:
            for n in range(200 * size):
                content = [{"type": "text", "text": f"{n} the words " * 350}]
                file.write(as_line(assistant(f"a{n}", "u1", content)))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / "small"), str(tmp_path / "large")],
        capture_output=True,
        text=True,
        check=True,
    )
    session_count, last, megabytes = map(int, done.stdout.split())
    assert (session_count, last) == (20, 20)
    assert megabytes < most
