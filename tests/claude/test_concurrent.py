"""Other processes that use the same files at the same time: Claude Code, and further segues."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from segue.model.principal import LOCAL
from segue.sources import safe_io
from segue.sources.claude.exchange import bundle
from tests.claude.entries import Home, S, as_line, user
from tests.claude.helpers import claude_hub, list_ids

# Like Claude Code, open the file for every line, and write the line at once.
WRITER = """
import json, os, sys
path, form = sys.argv[1], sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for n in range(int(sys.argv[3])):
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, form.replace("%", str(n)).encode() + b"\\n")
    os.close(descriptor)
"""


@contextmanager
def writing(path: Path, count: int) -> Iterator[subprocess.Popen[str]]:
    """Start a process that appends `count` messages to a transcript."""
    form = as_line(user("w%", None, "written % " + "words " * 200)).decode().strip()
    command = [sys.executable, "-c", WRITER, str(path), form, str(count)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        process.stdin.write("\n")
        process.stdin.flush()
        yield process
        process.wait()
        assert process.returncode == 0


def uuids(path: Path) -> list[str]:
    """Return the uuids in a transcript. Fails if a line is not complete."""
    lines = [json.loads(line) for line in path.read_bytes().splitlines() if line]
    return [line["uuid"] for line in lines if "uuid" in line]


async def test_edits_succeed_while_claude_code_writes(home: Home) -> None:
    path = home.write_conversation()
    count, rounds = 1500, 0
    async with claude_hub(home) as (hub, _):
        with writing(path, count) as writer:
            while writer.poll() is None or rounds < 3:
                rounds += 1
                await hub.editor.set_title(LOCAL, S, f"title {rounds}")
                await hub.editor.set_tag(LOCAL, S, f"tag-{rounds}")
                await hub.editor.archive(LOCAL, S)
                await hub.editor.unarchive(LOCAL, S)
                fork = await hub.editor.fork(LOCAL, S)
                forked = home.projects / "-w" / f"{fork.id}.jsonl"
                assert len(uuids(forked)) >= 2
                copy = await hub.editor.fork(LOCAL, S, in_store=True)
                events = [event async for event in hub.history.read(LOCAL, copy.id)]
                assert events[-1].seq == copy.last_seq == len(events)
                await hub.editor.purge(LOCAL, copy.id)
                assert S in await list_ids(hub, text="written", archived="include")
                session = await hub.sessions.get(LOCAL, S)
                assert (session.title, session.tag) == (f"title {rounds}", f"tag-{rounds}")
        assert [uuid for uuid in uuids(path) if uuid[0] == "w"] == [f"w{n}" for n in range(count)]
        assert (await hub.sessions.get(LOCAL, S)).messages == 2 + count
        # An import copies exactly the lines of the file.
        session, _ = await hub.sync.import_session(LOCAL, S, "claude")
        assert session.messages == 2 + count
        copied = b"".join([line async for line in hub.sync.transcript(LOCAL, S, "claude")])
        assert copied == path.read_bytes()


async def test_imports_while_claude_code_writes_copy_each_line_once(home: Home) -> None:
    path = home.write_conversation()
    count, imported = 1500, 0
    async with claude_hub(home) as (hub, _):
        with writing(path, count) as writer:
            while writer.poll() is None:
                session, new = await hub.sync.import_session(LOCAL, S, "claude")
                imported += new
                events = [event async for event in hub.history.read(LOCAL, S)]
                assert events[-1].seq == session.last_seq == len(events)
        imported += (await hub.sync.import_session(LOCAL, S, "claude"))[1]
        assert imported == len(path.read_bytes().splitlines())
        copied = b"".join([line async for line in hub.sync.transcript(LOCAL, S, "claude")])
        assert copied == path.read_bytes()


async def test_restore_does_not_overwrite_a_recreated_transcript(
    home: Home,
) -> None:
    path = home.write_conversation()
    before = path.read_bytes()
    async with claude_hub(home) as (hub, _):
        await hub.editor.trash(LOCAL, S)
        with writing(path, 3):
            pass
        assert await list_ids(hub) == [S]  # the transcript that was written meanwhile
        await hub.editor.restore(LOCAL, S)
        assert uuids(path) == ["w0", "w1", "w2"]
        (trashed,) = home.root.glob("segue-trash/*/0")
        assert trashed.read_bytes() == before


def test_transcript_lines_are_equal_at_each_iteration_or_raise(home: Home) -> None:
    path = home.write_conversation()
    lines = bundle.TranscriptLines(str(path))
    before = list(lines)
    with path.open("ab") as file:
        file.write(as_line(user("u2", "a1")))
    assert list(lines) == before
    os.truncate(path, 100)
    with pytest.raises(safe_io.UnreadableFile):
        list(lines)
    lines = bundle.TranscriptLines(str(path))
    other = path.with_name("other")
    other.write_bytes(path.read_bytes() * 3)
    other.rename(path)
    with pytest.raises(safe_io.UnreadableFile):
        list(lines)


LIST = """
import asyncio, os, sys
from pathlib import Path
from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from segue.store.memory import MemoryStore
async def main():
    root, rounds = sys.argv[1], int(sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(rounds):
        source = ClaudeSource(Path(root).parent / "data" / "index.db", ClaudeHome(root))
        async with Hub(MemoryStore(), Path(root).parent, sources=[source]) as hub:
            for _ in range(3):
                sessions = (await hub.sessions.list(LOCAL, Query(limit=1000))).sessions
                hits = (await hub.sessions.search(LOCAL, Query(text="needle", limit=1000))).matches
                print(len(sessions), len(hits), flush=True)
asyncio.run(main())
"""


def readers(home: Home, count: int, rounds: int) -> list[subprocess.Popen[str]]:
    """Start processes that list and search repeatedly, all at the same time."""
    command = [sys.executable, "-W", "error", "-c", LIST, str(home.root), str(rounds)]
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        for _ in range(count)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return processes


def output_lines(process: subprocess.Popen[str]) -> set[str]:
    out, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    return set(out.splitlines())


async def test_concurrent_processes_build_one_index(home: Home) -> None:
    for number in range(150):
        home.write_conversation(
            f"{number:08x}-0000-4000-8000-000000000000", prompt=f"needle {number}"
        )
    for process in readers(home, 4, 2):
        assert output_lines(process) == {"150 150"}
    async with claude_hub(home) as (_, source):
        await source.refresh()
        execute = source.current_index.index.execute
        (count,) = execute("SELECT count(*) FROM texts").fetchone()
        assert source.current_index.index.texts() == 300
        assert count == 450  # two messages and the row of each session
        assert execute("SELECT sum(texts), count(*) FROM files").fetchone() == (300, 150)
        # Also the rows match: a session without a title shows its first prompt.
        assert execute("SELECT count(*) FROM search('needle')").fetchone() == (300,)


def test_readers_survive_repeated_deletion_of_the_index(home: Home) -> None:
    for number in range(40):
        home.write_conversation(
            f"{number:08x}-0000-4000-8000-000000000000", prompt=f"needle {number}"
        )
    index = home.root.parent / "data" / "index.db"
    ended = threading.Event()

    def delete_index() -> None:
        while not ended.wait(0.3):
            for suffix in ("-wal", "-shm", ""):
                Path(f"{index}{suffix}").unlink(missing_ok=True)

    deleter = threading.Thread(target=delete_index)
    processes = readers(home, 2, 25)
    deleter.start()
    try:
        for process in processes:
            assert output_lines(process) == {"40 40"}
    finally:
        ended.set()
        deleter.join()
