"""Threads of Codex: their names, forks and subagents, and files in any state."""

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from segue.model.event import (
    InfoChanged,
    ToolCall,
)
from segue.model.query import Query
from segue.model.session import Session
from segue.sources import safe_io
from segue.sources.base import Source
from segue.testing.helpers import message_texts
from tests.sources.codex.rollout_files import (
    CodexSessions,
    call,
    event,
    meta,
    output,
    thread_id,
    token_count,
    turn,
    write_thread,
)
from tests.sources.opened import CWD, NOON, Opened, minute

# Pages, rollbacks, names, the archive.


async def test_fork_that_shares_the_file_of_its_parent_has_the_beginning_of_it(
    tool: CodexSessions, opened: Opened
) -> None:
    parent = write_thread(tool, turn(NOON, "one", "two", CWD))
    size = tool.path(parent).stat().st_size
    tool.append(parent, turn(minute(1), "only in the parent", "yes", CWD))
    base = {"thread_id": parent, "end_ordinal_exclusive": 9, "end_byte_offset": size}
    fork = write_thread(
        tool,
        turn(minute(6), "three", "four", CWD),
        at=minute(5),
        forked_from_id=parent,
        history_base=base,
    )
    assert message_texts(await opened.conversation(fork)) == ["one", "two", "three", "four"]
    before = await opened.conversation(fork)
    tool.append(fork, turn(minute(7), "five", "six", CWD))
    after = await opened.conversation(fork)
    assert [item.id for item in after][: len(before)] == [item.id for item in before]
    assert message_texts(after)[-2:] == ["five", "six"]
    assert (await opened.row(fork)).title == "three"
    tool.path(parent).unlink()
    tool.append(fork, turn(minute(8), "seven", "eight", CWD))
    report = await opened.source.examine()
    assert message_texts(await opened.conversation(fork))[-2:] == ["seven", "eight"]
    assert report.sessions == 1


async def test_reverted_thread_continues_in_its_newest_page(
    tool: CodexSessions, opened: Opened
) -> None:
    id = write_thread(tool, turn(NOON, "keep", "kept", CWD))
    size = tool.path(id).stat().st_size
    tool.append(id, turn(minute(1), "drop", "dropped", CWD))
    assert len(message_texts(await opened.conversation(id))) == 4
    page = thread_id(minute(2))
    base = {"thread_id": id, "end_ordinal_exclusive": 9, "end_byte_offset": size}
    data = meta(id, minute(2), CWD, history_base=base) + turn(minute(3), "instead", "done", CWD)
    tool.write(f"{id}_{page}", data, minute(2))
    assert [row.id for row in await _list(opened.source)] == [id]
    assert message_texts(await opened.conversation(id)) == ["keep", "kept", "instead", "done"]
    row = await opened.row(id)
    assert (row.messages, row.fork, row.created_at) == (4, None, _micros(NOON))


async def test_turns_that_were_rolled_back_are_not_in_the_conversation(
    tool: CodexSessions, opened: Opened
) -> None:
    id = write_thread(
        tool, turn(NOON, "keep", "kept", CWD), turn(minute(1), "drop", "dropped", CWD)
    )
    assert len(message_texts(await opened.conversation(id))) == 4
    tool.append(id, event(minute(2), "thread_rolled_back", num_turns=1))
    tool.append(id, turn(minute(3), "instead", "done", CWD))
    assert message_texts(await opened.conversation(id)) == ["keep", "kept", "instead", "done"]
    assert (await opened.row(id)).messages == 4
    everything = message_texts(await opened.source.events(id))
    assert everything == ["keep", "kept", "drop", "dropped", "instead", "done"]


async def test_last_name_of_a_thread_is_its_title(tool: CodexSessions, opened: Opened) -> None:
    id = write_thread(tool, turn(NOON, "question", "reply", CWD))
    assert (await opened.row(id)).title == "question"
    names = tool.directory / "session_index.jsonl"
    for name in ("First name", "Last name"):
        with names.open("a") as file:
            file.write(json.dumps({"id": id, "thread_name": name}) + "\n")
    row = await opened.row(id)
    assert (row.title, row.title_by) == ("Last name", "person")
    assert [row.id for row in await _list(opened.source, text="last name")] == [id]
    assert await _list(opened.source, text="first name") == []
    (hit,) = await opened.source.ranked(Query(text="last"))
    assert isinstance(hit.event and hit.event.body, InfoChanged)


async def test_archived_thread_is_in_the_archive(tool: CodexSessions, opened: Opened) -> None:
    id = write_thread(tool, turn(NOON, "question", "reply", CWD))
    assert [row.id for row in await _list(opened.source)] == [id]
    archive = tool.directory / "archived_sessions"
    archive.mkdir()
    path = tool.path(id)
    path.rename(archive / path.name)
    assert await _list(opened.source) == []
    assert [row.id for row in await _list(opened.source, archived="only")] == [id]
    assert message_texts(await opened.conversation(id)) == ["question", "reply"]


# Subagents.


async def test_subagent_is_a_thread_and_its_text_is_found_in_the_parent(
    tool: CodexSessions, opened: Opened
) -> None:
    child = thread_id(minute(1))
    parent = write_thread(
        tool,
        turn(NOON, "ask a helper", "asked", CWD),
        call("spawn_agent", "c1", {"message": "count"}),
        output("c1", json.dumps({"agent_id": child})),
    )
    spawn = {"parent_thread_id": parent, "depth": 1, "agent_nickname": "Ada", "agent_role": "x"}
    write_thread(
        tool,
        turn(minute(1), "count the zebras", "nine", CWD),
        token_count(minute(1), 100, 0, 5),
        at=minute(1),
        id=child,
        source={"subagent": {"thread_spawn": spawn}},
    )
    assert [row.id for row in await _list(opened.source)] == [parent]
    (thread,) = await opened.source.threads(parent)
    assert (thread.id, thread.title, thread.kind) == (child, "Ada", "x")
    assert thread.usage.output_tokens == 5
    (started,) = [e for e in await opened.conversation(parent) if isinstance(e.body, ToolCall)]
    assert thread.seq == started.seq
    events = [item async for item in opened.source.thread(parent, child)]
    assert message_texts(events) == ["count the zebras", "nine"]
    assert [row.id for row in await _list(opened.source, text="zebras")] == [parent]
    (hit,) = await opened.source.ranked(Query(text="zebras"))
    assert hit.event is not None and message_texts([hit.event]) == ["count the zebras"]
    assert hit.event.seq == started.seq


# Running.


async def test_thread_with_an_open_turn_runs_while_its_lock_is_held(
    tool: CodexSessions, opened: Opened
) -> None:
    fcntl = pytest.importorskip("fcntl")
    if not Path("/proc/locks").exists():
        pytest.skip("the system does not list its locks")
    now = datetime.now(UTC)
    id = write_thread(tool, turn(now, "question", "reply", CWD, ends=False), at=now)
    locks = tool.directory / "thread-writer-locks"
    locks.mkdir()
    with (locks / f"{id}.lock").open("w") as lock:
        assert (await opened.row(id)).status == "idle", "a lock file that no process holds"
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert (await opened.row(id)).status == "running"
        assert [row.id for row in await _list(opened.source, statuses=("running",))] == [id]
    assert (await opened.row(id)).status == "idle"


async def test_thread_of_an_older_version_runs_while_it_is_written(
    tool: CodexSessions, opened: Opened
) -> None:
    now = datetime.now(UTC)
    id = write_thread(tool, turn(now, "question", "reply", CWD, ends=False), at=now)
    ended = write_thread(tool, turn(now, "other", "reply", CWD), at=now)
    assert (await opened.row(id)).status == "running"
    assert (await opened.row(ended)).status == "idle"


async def test_thread_of_an_older_version_runs_while_a_process_has_it_open(
    tool: CodexSessions, opened: Opened
) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("the system does not list open files")
    id = write_thread(tool, turn(NOON, "question", "reply", CWD, ends=False))
    path = tool.path(id)
    an_hour_ago = time.time() - 3600
    os.utime(path, (an_hour_ago, an_hour_ago))
    assert (await opened.row(id)).status == "idle", "its process was killed"
    code = "import sys; file = open(sys.argv[1]); print(); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    assert (await opened.row(id)).status == "running"
    process.communicate()
    assert (await opened.row(id)).status == "idle"


# Damage.


async def test_damaged_and_compressed_files_are_named_and_hide_no_other_thread(
    tool: CodexSessions, opened: Opened
) -> None:
    good = write_thread(tool, turn(NOON, "question", "reply", CWD))
    bad = write_thread(tool, turn(minute(1), "bad", "bad", CWD), at=minute(1))
    await tool.damage(bad)
    torn = write_thread(
        tool, b'{"timestamp": "x", "ty\n', turn(minute(2), "torn", "line", CWD), at=minute(2)
    )
    packed = tool.write(thread_id(minute(3)), b"zstd", minute(3))
    packed = packed.rename(packed.with_name(packed.name + ".zst"))
    assert {row.id for row in await _list(opened.source)} == {good, torn}
    report = await opened.source.examine()
    assert report.sessions == 2
    problems = {path: reason for path, reason in report.problems}
    assert problems.keys() == {str(tool.path(bad)), str(tool.path(torn)), str(packed)}
    assert "damaged" in problems[str(packed)]
    assert "damaged" in problems[str(tool.path(torn))]


async def test_file_without_permission_is_named_and_read_once_it_has_it(
    tool: CodexSessions, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = write_thread(tool, turn(NOON, "question", "reply", CWD))
    hidden = write_thread(tool, turn(minute(1), "hidden", "reply", CWD), at=minute(1))
    path = str(tool.path(hidden))
    open_regular = safe_io.open_regular

    def refuse(other_path: str) -> Any:
        if other_path == path:
            raise safe_io.UnreadableFile(path)
        return open_regular(other_path)

    monkeypatch.setattr(safe_io, "open_regular", refuse)
    assert [row.id for row in await _list(opened.source)] == [good]
    assert (path, "it cannot be opened") in (await opened.source.examine()).problems
    monkeypatch.undo()
    assert {row.id for row in await _list(opened.source)} == {good, hidden}
    assert (await opened.source.examine()).problems == []


async def test_reader_that_fails_loses_no_session(
    tool: CodexSessions, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = write_thread(tool, turn(NOON, "question", "reply", CWD))
    assert [row.id for row in await _list(opened.source)] == [id]

    def fail(self: Any, *arguments: Any) -> Any:
        raise KeyError("an unexpected value")

    for name in ("discover", "ref"):
        monkeypatch.setattr(type(opened.source.reader), name, fail)
    assert [row.id for row in await _list(opened.source)] == [id]
    assert (await opened.row(id)).title == "question"
    assert "an unexpected value" in (await opened.source.examine()).problems[0].reason


async def test_rewritten_file_is_read_again(tool: CodexSessions, opened: Opened) -> None:
    id = write_thread(tool, turn(NOON, "before", "reply", CWD))
    assert message_texts(await opened.conversation(id)) == ["before", "reply"]
    tool.path(id).write_bytes(meta(id, NOON, CWD) + turn(NOON, "after, and longer", "ok", CWD))
    assert message_texts(await opened.conversation(id)) == ["after, and longer", "ok"]
    assert (await opened.row(id)).title == "after, and longer"
    assert await _list(opened.source, text="before") == []


async def test_damaged_database_only_hides_names(tool: CodexSessions, opened: Opened) -> None:
    id = write_thread(tool, turn(NOON, "question", "reply", CWD))
    (tool.directory / "state_5.sqlite").write_bytes(b"not a database" * 100)
    assert [row.id for row in await _list(opened.source)] == [id]
    ((path, reason),) = (await opened.source.examine()).problems
    assert path.endswith("state_5.sqlite") and "not a database" in reason


async def test_growing_thread_is_read_from_where_it_ended(
    tool: CodexSessions, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = write_thread(
        tool, *(turn(minute(number), f"prompt {number}", "x" * 1000, CWD) for number in range(50))
    )
    await opened.conversation(id)
    offsets = opened.record_reads(monkeypatch)
    size = tool.path(id).stat().st_size
    tool.append(id, turn(minute(60), "new", "reply", CWD))
    assert message_texts(await opened.conversation(id))[-2:] == ["new", "reply"]
    assert offsets == [size, size], "once for the index and once for the history"


async def _list(source: Source, **query: Any) -> list[Session]:
    await source.refresh()
    return await source.page(Query(**query))


def _micros(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)
