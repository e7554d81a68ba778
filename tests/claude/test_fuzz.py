"""Damage real transcripts at random: no reader crashes, and no undamaged message is lost."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from segue.claude import export
from segue.model import codec, projection
from segue.model.event import decode_body
from segue.sources.claude.conversation import tree
from segue.sources.claude.edit import doctor, fork
from segue.sources.claude.exchange import event_codec, transcript_line, transcript_writer
from segue.sources.claude.format import subagents
from segue.sources.claude.format.paths import ClaudeHome, ProjectDirectory, TranscriptFile
from segue.sources.claude.sdk import messages, quick_info
from segue.store.base import number_drafts
from tests.claude.entries import S

QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
# Lines of real transcripts are long; most of what can go wrong does not need the longest ones.
LARGEST = 300_000
KEPT_MARKS = "compact_boundary", "isCompactSummary"


@cache
def transcripts(homes: Path) -> list[Path]:
    paths = sorted(homes.glob("*/projects/**/*.jsonl"))
    return [path for path in paths if 0 < path.stat().st_size < LARGEST]


@cache
def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1]


@cache
def message_uuids(path: Path) -> set[str]:
    return {message.uuid for message in messages.read_messages(str(path))}


def damaged(draw: st.DrawFn, line: bytes) -> bytes:
    """A line after something happened to it."""
    at = draw(st.integers(0, len(line)))
    end = draw(st.integers(at, min(len(line), at + 700)))
    noise = draw(st.sampled_from([b"", b"\0" * 300, b"\xff", b"}{", b'"', b"\\", b"\\ud83d", b"x"]))
    return line[:at] + noise + line[end:]


@st.composite
def mutations(draw: st.DrawFn, path: Path) -> tuple[bytes, set[int]]:
    """The bytes of a damaged transcript, and the numbers of the lines that are not whole."""
    lines = lines_of(path)
    touched: set[int] = set()
    ends = dict.fromkeys(range(len(lines)), b"\n")
    before: dict[int, bytes] = {}
    entries = dict(enumerate(lines))
    for _ in range(draw(st.integers(1, 4))):
        number = draw(st.integers(0, len(lines) - 1))
        match draw(
            st.sampled_from(["damage", "glue", "pad", "repeat", "garbage", "remove", "tear"])
        ):
            case "damage":
                entries[number] = damaged(draw, lines[number])
                touched.add(number)
            case "tear":  # a crash, and then the next line right behind
                entries[number] = lines[number][: draw(st.integers(1, len(lines[number])))]
                ends[number] = b""
                touched.add(number)
            case "glue":
                ends[number] = b""
            case "pad":
                before[number] = b"\0" * draw(st.integers(1, 700))
            case "repeat":
                ends[number] = b"\n" + lines[number] + b"\n"
            case "garbage":
                before[number] = draw(st.binary(max_size=200)).replace(b"{", b"[") + b"\n"
            case "remove":
                entries[number], ends[number] = b"", b""
                touched.add(number)
    data = b"".join(
        before.get(number, b"") + line + ends[number] for number, line in entries.items()
    )
    return data, touched


def still_whole(path: Path, touched: set[int]) -> set[str]:
    """The messages that must still be there."""
    lines = lines_of(path)
    # What a compaction kept is known from its own lines alone; without them, what came before
    # is another conversation's history.
    lost = [
        number for number in touched if any(name.encode() in lines[number] for name in KEPT_MARKS)
    ]
    first = max(lost, default=-1)
    # Old programs wrote a response again with every turn. Copies hang on nothing but its id.
    hurt = {response(lines[number]) for number in touched}
    return {
        uuid
        for number, line in enumerate(lines)
        if number > first and number not in touched
        if (uuid := json.loads(line).get("uuid")) in message_uuids(path)
        if response(line) is None or response(line) not in hurt
    }


def response(line: bytes) -> str | None:
    message = json.loads(line).get("message")
    id: str | None = message.get("id") if isinstance(message, dict) else None
    return id


def check(path: Path, data: bytes, touched: set[int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        broken = Path(directory) / f"{S}.jsonl"
        broken.write_bytes(data)
        uuids = {
            message.uuid for message in messages.read_messages(str(broken), include_system=True)
        }
        assert still_whole(path, touched) <= uuids
        transcript = TranscriptFile(S, str(broken), ProjectDirectory(directory))
        for thorough in (True, False):
            quick_info.read_facts(str(broken), thorough=thorough)
        read = messages.read_messages(str(broken))
        export.export_html(transcript).encode()
        export.export_markdown(transcript).encode()
        tree.read_session_tree(str(broken), S).path()
        subagents.list_agent_ids(str(broken))
        comes_back(data)
        if read:
            fork.fork(transcript)
        entry_count = doctor.repair_transcript(ClaudeHome(directory), transcript).entries
        assert doctor.diagnose_transcript(transcript).healthy or not entry_count
        healed = {
            message.uuid for message in messages.read_messages(str(broken), include_system=True)
        }
        assert still_whole(path, touched) <= healed


def comes_back(data: bytes) -> None:
    """Whatever the lines are, a history that they were put into has them all, unchanged."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    kept_lines = [transcript_line.parse_line(line) for line in lines]
    drafts = event_codec.creation_drafts("-w", S, kept_lines, "/")
    drafts += event_codec.drafts_from_lines(S, "", kept_lines, 1, set())
    stored = [
        replace(event, body=decode_body(codec.encode(event.body)))
        for event in number_drafts(drafts, 0, 1)
    ]
    session = projection.project("local", S, stored)
    assert [line.data() for line in transcript_writer.transcript_lines(session, stored)] == lines


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=QUIET)
def test_damaged_transcript_loses_no_undamaged_message(homes: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(transcripts(homes)), label="path")
    mutated, touched = data.draw(mutations(path), label="mutation")
    check(path, mutated, touched)


@pytest.mark.full
@given(data=st.data())
@settings(max_examples=4000, deadline=None, suppress_health_check=QUIET)
def test_damaged_transcripts_lose_no_undamaged_message_in_many_tries(
    homes: Path, data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(transcripts(homes)), label="path")
    mutated, touched = data.draw(mutations(path), label="mutation")
    check(path, mutated, touched)


@given(st.binary(max_size=4000))
@settings(max_examples=100, deadline=None)
def test_random_bytes_do_not_crash_a_reader(data: bytes) -> None:
    check_random_bytes(data)


@pytest.mark.full
@given(st.binary(max_size=4000))
@settings(max_examples=200, deadline=None)
def test_random_bytes_do_not_crash_a_reader_in_many_tries(data: bytes) -> None:
    check_random_bytes(data)


def check_random_bytes(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"{S}.jsonl"
        path.write_bytes(data)
        messages.read_messages(str(path), include_system=True)
        doctor.diagnose_transcript(TranscriptFile(S, str(path), ProjectDirectory(directory)))
        quick_info.read_facts(str(path))
        quick_info.read_facts(str(path), thorough=False)
        comes_back(data)
