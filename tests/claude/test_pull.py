"""Pulling appended lines: the same events as a full import, for the cost of the new bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from segue.model.event import Draft, Event, ModelCalled
from segue.model.principal import LOCAL
from segue.sources.base import NeedsFullImport
from segue.sources.claude.exchange import pull
from segue.sources.claude.exchange.bundle import TranscriptLines, read_bundle
from segue.sources.claude.exchange.event_codec import drafts_from_lines, drop_used_ids
from segue.sources.claude.exchange.pull import (
    CONTEXT_BYTES,
    SessionPosition,
    position_of,
    pull_appended,
    pulled_drafts,
)
from segue.sources.claude.exchange.transcript_line import TranscriptLine, is_subagent_metadata
from tests.claude.entries import (
    VERSIONS,
    Home,
    S,
    as_line,
    assistant,
    boundary,
    call,
    result,
    title,
    user,
)
from tests.claude.helpers import append, claude_hub, list_transcripts, write_session_with_subagent

TIME = 1_700_000_000_000_000


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that gives the bytes read from files since its last call."""
    count = 0
    pread, read = os.pread, os.read

    def counting_pread(descriptor: int, size: int, offset: int) -> bytes:
        nonlocal count
        data = pread(descriptor, size, offset)
        count += len(data)
        return data

    def counting_read(descriptor: int, size: int) -> bytes:
        nonlocal count
        data = read(descriptor, size)
        count += len(data)
        return data

    def take_count() -> int:
        nonlocal count
        current, count = count, 0
        return current

    monkeypatch.setattr(os, "pread", counting_pread)
    monkeypatch.setattr(os, "read", counting_read)
    return take_count


def position(path: Path) -> SessionPosition:
    return position_of(read_bundle(str(path)))


def pulled_uuids(path: Path, since: SessionPosition) -> list[tuple[str | None, bool]]:
    """Return the uuid of each line that a pull gives, and whether it is inactive."""
    lines = pull_appended(str(path), since).own_lines()
    return [(line.entries[0].get("uuid"), line.inactive) for line in lines]


def long_talk(home: Home, turns: int = 200) -> Path:
    """Write a session that is longer than the context of a pull."""
    entries, parent = list[dict[str, Any]](), None
    for turn in range(turns):
        entries += [
            user(f"u{turn}", parent, "x" * 2000),
            assistant(f"a{turn}", f"u{turn}"),
        ]
        parent = f"a{turn}"
    return home.write(entries)


def test_unchanged_session_costs_no_bytes(home: Home, bytes_read: Callable[[], int]) -> None:
    path, _ = write_session_with_subagent(home)
    since = position(path)
    bytes_read()
    pulled = pull_appended(str(path), since)
    assert (pulled.transcripts, pulled.position) == ({}, since)
    assert bytes_read() == 0


def test_pull_reads_the_appended_bytes_and_a_context(
    home: Home, bytes_read: Callable[[], int]
) -> None:
    path = long_talk(home)
    size, since = path.stat().st_size, position(path)
    assert size > 5 * pull.CONTEXT_BYTES
    added = [user("n1", "a199", "more"), assistant("n2", "n1")]
    append(path, *added)
    bytes_read()
    pulled = pull_appended(str(path), since)
    appended_bytes = path.stat().st_size - size
    assert bytes_read() <= appended_bytes + pull.CONTEXT_BYTES + 2 * pull.TAIL_BYTES + 1
    assert [line.entries[0] for line in pulled.own_lines()] == added
    assert not any(line.inactive for line in pulled.own_lines())
    assert pulled.position == position(path)


def test_pulls_continue_from_each_other(home: Home) -> None:
    path = home.write_conversation()
    since = position(path)
    append(path, user("u2", "a1"))
    first = pull_appended(str(path), since)
    append(path, assistant("a2", "u2"))
    second = pull_appended(str(path), first.position)
    lines = [*first.own_lines(), *second.own_lines()]
    assert [line.entries[0]["uuid"] for line in lines] == ["u2", "a2"]
    assert pull_appended(str(path), second.position).transcripts == {}


def test_replaced_file_needs_a_full_import(home: Home) -> None:
    path = home.write_conversation()
    since = position(path)
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes() + as_line(user("u2", "a1")))
    copy.replace(path)
    with pytest.raises(NeedsFullImport, match="another file"):
        pull_appended(str(path), since)


def test_truncated_file_needs_a_full_import(home: Home) -> None:
    path = home.write_conversation()
    since = position(path)
    os.truncate(path, path.stat().st_size - 5)
    with pytest.raises(NeedsFullImport, match="shorter"):
        pull_appended(str(path), since)


def test_file_that_is_truncated_while_it_is_read_needs_a_full_import(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.write_conversation()
    since = position(path)
    append(path, user("u2", "a1", "more"))
    check = pull._check_continues

    def check_and_truncate(*arguments: Any) -> None:
        check(*arguments)
        os.truncate(path, since.main.offset - 1)

    monkeypatch.setattr(pull, "_check_continues", check_and_truncate)
    with pytest.raises(NeedsFullImport):
        pull_appended(str(path), since)


def test_rewritten_file_needs_a_full_import(home: Home) -> None:
    path = home.write_conversation(prompt="first")
    since = position(path)
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.write(data.replace(b"first", b"other") + as_line(user("u2", "a1")))
    with pytest.raises(NeedsFullImport, match="rewritten"):
        pull_appended(str(path), since)


def test_rewritten_subagent_needs_a_full_import(home: Home) -> None:
    path, file = write_session_with_subagent(home)
    since = position(path)
    data = file.read_bytes().replace(b"Count", b"Weigh")
    with file.open("r+b") as out:
        out.write(data + b"\n")
    with pytest.raises(NeedsFullImport, match="rewritten"):
        pull_appended(str(path), since)


def test_large_append_needs_a_full_import(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "MAX_APPENDED_BYTES", 10)
    path = home.write_conversation()
    since = position(path)
    append(path, user("u2", "a1"))
    with pytest.raises(NeedsFullImport, match="more than 10 bytes"):
        pull_appended(str(path), since)


def test_half_written_line_waits_for_its_end(home: Home) -> None:
    path = home.write_conversation()
    since = position(path)
    line = as_line(user("u2", "a1"))
    with path.open("ab") as file:
        file.write(line[:40])
    pulled = pull_appended(str(path), since)
    assert pulled.own_lines() == []
    with path.open("ab") as file:
        file.write(line[40:])
    assert pulled_uuids(path, pulled.position) == [("u2", False)]


def test_last_line_without_newline_is_pulled_once(home: Home) -> None:
    path = home.write_conversation()
    since = position(path)
    with path.open("ab") as file:
        file.write(as_line(user("u2", "a1")).rstrip(b"\n"))
    pulled = pull_appended(str(path), since)
    assert [line.entries[0]["uuid"] for line in pulled.own_lines()] == ["u2"]
    with path.open("ab") as file:
        file.write(b"\n" + as_line(assistant("a2", "u2")))
    assert pulled_uuids(path, pulled.position) == [("a2", False)]


def test_line_that_was_imported_in_half_needs_a_full_import(home: Home) -> None:
    path = home.write_conversation()
    line = as_line(user("u2", "a1"))
    with path.open("ab") as file:
        file.write(line[:40])
    since = position(path)
    with path.open("ab") as file:
        file.write(line[40:])
    with pytest.raises(NeedsFullImport, match="continued"):
        pull_appended(str(path), since)


def test_new_and_grown_subagents_are_pulled(home: Home) -> None:
    path, file = write_session_with_subagent(home)
    since = position(path)
    append(file, assistant("s3", "s2", isSidechain=True, agentId="a1b2c3"))
    other = file.with_name("agent-d4.jsonl")
    other.write_bytes(as_line(user("t1", None, "Go", isSidechain=True, agentId="d4")))
    other.with_suffix(".meta.json").write_text('{"agentType": "Plan"}')
    pulled = pull_appended(str(path), since)
    grown, new = (pulled.transcripts[f"subagents/agent-{id}"].lines for id in ("a1b2c3", "d4"))
    assert [line.entries[0]["uuid"] for line in grown] == ["s3"]
    assert new[0].entries[0]["uuid"] == "t1" and is_subagent_metadata(new[1])
    assert pulled.position == position(path)
    assert pull_appended(str(path), pulled.position).transcripts == {}


def test_adjacent_subagent_of_an_old_version_is_pulled(home: Home) -> None:
    path = home.write([user("u1", None), assistant("a1", "u1", call("t1"))])
    since = position(path)
    path.with_name("agent-e5.jsonl").write_bytes(as_line(user("s1", None, isSidechain=True)))
    append(path, user("u2", "a1", result("t1"), toolUseResult={"agentId": "e5"}))
    pulled = pull_appended(str(path), since)
    assert list(pulled.transcripts) == ["", "subagents/agent-e5"]
    append(path.with_name("agent-e5.jsonl"), assistant("s2", "s1", isSidechain=True))
    again = pull_appended(str(path), pulled.position)
    assert [line.entries[0]["uuid"] for line in again.transcripts["subagents/agent-e5"].lines] == [
        "s2"
    ]


def test_abandoned_answer_is_marked_inactive(home: Home) -> None:
    path = home.write_conversation()
    since = position(path)
    append(path, user("u2", "a1"), assistant("a2", "u2"), user("u3", "a1"), assistant("a3", "u3"))
    assert pulled_uuids(path, since) == [("u2", True), ("a2", True), ("u3", False), ("a3", False)]


def test_parallel_results_stay_active(home: Home) -> None:
    path = home.write_conversation()
    since = position(path)
    append(
        path,
        assistant("p1", "a1", call("t1"), "m1"),
        assistant("p2", "p1", call("t2"), "m1"),
        user("r1", "p1", result("t1"), sourceToolAssistantUUID="p1"),
        user("r2", "p2", result("t2"), sourceToolAssistantUUID="p2"),
        assistant("a4", "r2"),
    )
    assert [inactive for _, inactive in pulled_uuids(path, since)] == [False] * 5


@pytest.mark.parametrize("parent", ["a3", None])
def test_rewind_before_the_context_scans_the_file_once(
    home: Home, bytes_read: Callable[[], int], parent: str | None
) -> None:
    path = long_talk(home)
    since = position(path)
    append(path, user("n1", "a199"), user("n2", parent), assistant("n3", "n2"))
    bytes_read()
    assert pulled_uuids(path, since) == [("n1", True), ("n2", False), ("n3", False)]
    assert bytes_read() < 2 * path.stat().st_size


def test_compaction_keeps_what_was_said_just_before_it_active(home: Home) -> None:
    path = long_talk(home)
    since = position(path)
    summary = user("n3", "n2", "Before: x", isCompactSummary=True)
    append(path, user("n1", "a199"), boundary("n2", logicalParentUuid="n1"), summary)
    lines = list(TranscriptLines(str(path), mark_inactive=True))[-3:]
    assert pull_appended(str(path), since).own_lines() == lines
    assert not any(line.inactive for line in lines)


def test_context_has_the_last_line_however_long(home: Home, bytes_read: Callable[[], int]) -> None:
    path = home.write([user("u0", None), *[assistant("a0", "u0")], user("u1", "a0", "x" * 300_000)])
    since = position(path)
    append(path, assistant("a1", "u1"))
    pulled = pull_appended(str(path), since)
    assert [line.entries[0]["uuid"] for line in pulled.transcripts[""].context][-1] == "u1"
    assert [line.inactive for line in pulled.own_lines()] == [False]


def test_cost_of_a_response_is_counted_once_across_pulls(home: Home) -> None:
    def answer(uuid: str, parent: str) -> dict[str, Any]:
        entry = assistant(uuid, parent, id="m1")
        entry["message"] |= {"model": "big", "usage": {"input_tokens": 3, "output_tokens": 5}}
        return entry

    path = home.write([user("u1", None), answer("a1", "u1")])
    since = position(path)
    append(path, answer("a2", "a1"))
    drafts = list(pulled_drafts(S, pull_appended(str(path), since), TIME))
    assert drafts and not any(isinstance(draft.body, ModelCalled) for draft in drafts)


def test_lines_that_segue_stored_itself_are_left_out(home: Home) -> None:
    native = "aaaaaaaa-1111-4111-8111-111111111111"
    path = home.write_conversation()
    since = position(path)
    append(path, user(native.upper(), "a1"), title("Mine"), assistant("a2", native.upper()))
    pulled = pull.drop_native_lines(pull_appended(str(path), since), {native})
    assert [line.entries[0].get("uuid") for line in pulled.own_lines()] == [None, "a2"]


def split_points(data: bytes) -> list[int]:
    """Return some ends of lines of a transcript."""
    ends = [number + 1 for number, byte in enumerate(data[:-1]) if byte == 10]
    return ends[:: max(1, len(ends) // 6)]


def full_drafts(lines: list[TranscriptLine], count: int) -> Iterator[tuple[bool, Draft]]:
    """Return the drafts of a full import, and whether each is of one of the last lines."""
    read = 0

    def counted() -> Iterator[TranscriptLine]:
        nonlocal read
        for line in lines:
            read += 1
            yield line

    for draft in drafts_from_lines(S, "", counted(), TIME, set()):
        yield read > len(lines) - count, draft


@pytest.mark.parametrize("version", VERSIONS)
def test_pull_gives_the_events_of_a_full_import(homes: Path, version: str, tmp_path: Path) -> None:
    for number, original in enumerate(list_transcripts(homes / version)):
        data = original.read_bytes()
        for end in split_points(data):
            path = tmp_path / "projects" / f"{number}-{end}" / f"{S}.jsonl"
            path.parent.mkdir(parents=True)
            path.write_bytes(data[:end])
            try:
                since = position(path)
            except ValueError:
                continue  # its first lines are not entries
            known = [
                draft.id for draft in drafts_from_lines(S, "", read_bundle(str(path)).lines, TIME)
            ]
            with path.open("ab") as file:
                file.write(data[end:])
            pulled = pull_appended(str(path), since)
            lines = list(TranscriptLines(str(path), mark_inactive=True))
            count = len(pulled.own_lines())
            assert pulled.own_lines() == lines[len(lines) - count :]
            used = {id for id in known if id is not None}
            drafts = drop_used_ids(pulled_drafts(S, pulled, TIME), used)
            assert list(drafts) == [d for is_new, d in full_drafts(lines, count) if is_new]


@pytest.mark.parametrize(
    ("count", "words"), [(5_000, 300), pytest.param(30_000, 20, marks=pytest.mark.full)]
)
async def test_pull_into_a_long_imported_session_reads_only_what_was_added(
    home: Home,
    bytes_read: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    words: int,
) -> None:
    path = home.write(
        [
            user(f"u{number}", f"u{number - 1}" if number else None, "word " * words)
            for number in range(count)
        ]
    )
    async with claude_hub(home) as (hub, _):
        await hub.sync.import_session(LOCAL, S, "claude")
        await hub.sessions.list(LOCAL)  # indexes the transcript
        events, rows = hub.store.events, 0

        async def counted(*name: str, **options: Any) -> list[Event]:
            nonlocal rows
            batch = await events(*name, **options)
            rows += len(batch)
            return batch

        monkeypatch.setattr(hub.store, "events", counted)
        added = [user("new", f"u{count - 1}", "added"), assistant("answer", "new")]
        append(path, *added)
        bytes_read()
        await hub.sync.ensure_current(LOCAL, S)
        session = await hub.sessions.get(LOCAL, S)
        assert session.messages == count + 2
        # The index and the pull each read the appended lines and a window before them.
        assert bytes_read() < 8 * CONTEXT_BYTES < os.path.getsize(path) / 10
        assert rows == 0
        await hub.sync.ensure_current(LOCAL, S)
        assert bytes_read() == 0
