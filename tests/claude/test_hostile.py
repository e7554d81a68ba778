"""Odd files in a home: no reader hangs, raises or hides a good session because of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from segue import claude
from segue.sources.claude.conversation import entry_table
from segue.sources.claude.format.facts import SessionFacts
from segue.sources.claude.sdk import messages, quick_info
from tests.claude.entries import S2, Home, S, as_line, assistant, user

GOOD = "99999999-9999-4999-8999-999999999999"


def check(home: Home, id: str = S) -> None:
    """Check that no function raises and that the good session is listed."""
    for listed in (claude.list_sessions(), claude.list_sessions(limit=50)):
        assert GOOD in [session.session_id for session in listed]
    claude.get_session_info(id)
    claude.get_session_messages(id, include_system_messages=True)
    claude.list_subagents(id)
    claude.get_session_tree(id)
    assert len(claude.get_session_messages(GOOD)) == 2


def pipe(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.mkdir()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def forbidden(path: Path) -> None:
    path.write_bytes(as_line(user("u1", None)))
    path.chmod(0)


def newlines(path: Path) -> None:
    path.write_bytes(b"\n" * 50_000)


def many_newlines(path: Path) -> None:
    path.write_bytes(b"\n" * 300_000)


def nuls(path: Path) -> None:
    path.write_bytes(b"\0" * 300_000)


def noise(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 1000)


def braces(path: Path) -> None:
    path.write_bytes(b'{"type":"' * 30_000)


def nested(path: Path) -> None:
    deep: object = "x"
    for _ in range(900):
        deep = [deep]
    path.write_bytes(as_line(user("u1", None, "hi")) + as_line(user("u2", "u1", deep)))


def many_entries_on_one_line(path: Path) -> None:
    path.write_bytes(b'{"type":"user","uuid":"u","parentUuid":null,"sessionId":"s"}' * 5000)


ODD = [pipe, loop, dangling, device, directory, empty, forbidden]
ODD += [newlines, nuls, noise, braces, nested, many_entries_on_one_line]
ODD += [pytest.param(many_newlines, marks=pytest.mark.full)]


@pytest.mark.parametrize("make", ODD)
def test_odd_file_named_like_a_transcript_hides_no_other_session(home: Home, make) -> None:  # type: ignore[no-untyped-def] # one of the above
    home.write_conversation(GOOD)
    make(home.projects / "-w" / f"{S}.jsonl")
    check(home)


@pytest.mark.parametrize("make", ODD)
def test_odd_file_named_like_a_project_or_sidecar_hides_no_session(home: Home, make) -> None:  # type: ignore[no-untyped-def] # one of the above
    path = home.write_conversation(GOOD)
    make(home.projects / "-odd")
    make(path.with_suffix(""))
    check(home, GOOD)


@pytest.mark.parametrize("make", ODD)
@pytest.mark.parametrize("name", ["custom-title.json", "archived.json", "subagents"])
def test_odd_file_in_a_sidecar_directory_hides_no_session(home: Home, make, name: str) -> None:  # type: ignore[no-untyped-def] # one of the above
    path = home.write_conversation(GOOD)
    path.with_suffix("").mkdir()
    make(path.with_suffix("") / name)
    check(home, GOOD)


@pytest.mark.parametrize("make", [nested, many_entries_on_one_line, noise, braces, nuls])
def test_edits_and_exports_handle_odd_transcripts(home: Home, make) -> None:  # type: ignore[no-untyped-def] # one of the above
    home.write_conversation(GOOD)
    make(home.projects / "-w" / f"{S}.jsonl")
    claude.doctor(S)
    claude.export_html(S)
    claude.export_markdown(S)
    if claude.get_session_messages(S):
        claude.fork_session(S)
    claude.doctor(S, repair=True)
    claude.trash_session(S)
    claude.restore_session(S)
    check(home)


def test_file_deleted_before_it_is_read_is_left_out(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_conversation(GOOD)
    home.write_conversation(S)
    home.touch(GOOD, 1)
    read = quick_info.read_facts

    def late(path: str, *, thorough: bool = True) -> SessionFacts | None:
        (home.projects / "-w" / f"{S}.jsonl").unlink(missing_ok=True)
        return read(path, thorough=thorough)

    monkeypatch.setattr(quick_info, "read_facts", late)
    assert [session.session_id for session in claude.list_sessions()] == [GOOD]


def test_file_truncated_while_it_is_read_hides_no_session(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_conversation(GOOD)
    path = home.write([user("u1", None), *(assistant(f"a{n}", "u1") for n in range(5000))])
    stat = os.fstat

    def early(descriptor: int) -> os.stat_result:
        status = stat(descriptor)
        os.truncate(path, 1000)
        return status

    monkeypatch.setattr(os, "fstat", early)
    check(home)


def test_reader_finds_thousands_of_joined_entries(home: Home) -> None:
    lines = [as_line(user(f"u{n}", f"u{n - 1}" if n else None)).strip() for n in range(5000)]
    home.write([b"".join(lines)])
    assert len(claude.get_session_messages(S)) == 5000


@pytest.mark.parametrize(
    "torn",
    [b'{"type":' * 400_000, b'{"type":{"a":1},' * 200_000, b'{"type":[' * 400_000],
    ids=["keys", "objects", "lists"],
)
def test_salvage_of_a_long_broken_line_is_limited(home: Home, torn: bytes) -> None:
    home.write([user("u1", None), torn, assistant("a1", "u1")])
    assert len(claude.get_session_messages(S)) == 2


def test_reader_handles_ids_repeated_a_thousand_times(home: Home) -> None:
    home.write([user("u1", None), *[assistant("a1", "u1")] * 1000, user("u2", "a1")])
    assert [message.uuid for message in claude.get_session_messages(S)] == ["u1", "a1", "u2"]


many_entries = pytest.mark.parametrize(
    "count", [10_000, pytest.param(100_000, marks=pytest.mark.full)]
)


@many_entries
def test_reader_handles_a_cycle_of_many_entries(home: Home, count: int) -> None:
    home.write(user(f"u{n}", f"u{(n + 1) % count}") for n in range(count))
    assert len(claude.get_session_messages(S)) == count


@many_entries
def test_reader_handles_many_branches(home: Home, count: int) -> None:
    home.write([user("r", None), *(assistant(f"a{n}", "r", id="m") for n in range(count))])
    assert len(claude.get_session_messages(S, limit=5)) == 5


@many_entries
def test_reader_handles_many_missing_parents(home: Home, count: int) -> None:
    home.write(user(f"u{n}", f"gone{n}") for n in range(count))
    assert len(claude.get_session_messages(S)) == count


def test_reader_handles_many_compactions(home: Home) -> None:
    def lines() -> Iterator[dict[str, object]]:
        for n in range(2000):
            preserved = {"anchorUuid": f"c{n}", "uuids": [f"a{n - 1}"]}
            metadata = {"preservedMessages": preserved}
            cut = {"type": "system", "subtype": "compact_boundary", "compactMetadata": metadata}
            yield {**cut, "uuid": f"b{n}", "parentUuid": None}
            yield user(f"c{n}", f"b{n}", isCompactSummary=True)
            yield assistant(f"a{n}", f"c{n}")

    home.write(lines())
    uuids = [message.uuid for message in claude.get_session_messages(S)]
    assert uuids == ["c1999", "a1998", "a1999"]


MEASURE = """
import resource, sys
from segue.sources.claude.sdk.messages import read_messages
from segue.sources.claude.sdk.quick_info import read_facts
path, limit = sys.argv[1], int(sys.argv[2])
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
read_facts(path + ".small"), read_messages(path + ".small")
before = peak()
found = read_messages(path, limit=limit, offset=100)
facts = read_facts(path)
print(len(found), facts.first_prompt, (peak() - before) // 1024)
"""


def measured(path: Path, limit: int = 20) -> tuple[int, str, int]:
    """Return the number of messages of a page, the session's prompt, and the megabytes used."""
    path.with_name(path.name + ".small").write_bytes(as_line(user("u1", None)))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path), str(limit)],
        capture_output=True,
        text=True,
        check=True,
    )
    count, prompt, megabytes = done.stdout.split()
    return int(count), prompt, int(megabytes)


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="measures by /proc")


@needs_proc
@pytest.mark.parametrize(
    "size", [4700, pytest.param(100, marks=pytest.mark.full)], ids=["long lines", "short lines"]
)
def test_page_of_a_100_megabyte_transcript_uses_less_than_64_megabytes(
    tmp_path: Path, size: int
) -> None:
    path, parent = tmp_path / f"{S}.jsonl", None
    with path.open("wb") as file:
        for n in range(100_000_000 // (size + 320)):
            uuid = f"{n:08d}-0000-4000-8000-000000000000"
            content = [{"type": "text", "text": 'word "x" ' * (size // 10)}] if n else "first"
            file.write(as_line((user, assistant)[n % 2](uuid, parent, content)))
            parent = uuid
    assert path.stat().st_size > 90_000_000
    count, prompt, megabytes = measured(path)
    assert (count, prompt) == (20, "first")
    assert megabytes < 64


@needs_proc
def test_line_of_100_megabytes_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / f"{S}.jsonl"
    with path.open("wb") as file:
        file.write(as_line(user("u1", None, "first")))
        # As the command line tool writes them: the parent first, the id behind the message.
        file.write(b'{"parentUuid":"u1","isSidechain":false,"type":"assistant","message":{"x":"')
        for _ in range(100):
            file.write(b"x" * 1_000_000)
        file.write(b'"},"uuid":"long","sessionId":"s"}\n')
        previous = "long"
        for n in range(200):
            file.write(as_line(user(f"v{n}", previous)))
            previous = f"v{n}"
    count, prompt, megabytes = measured(path, limit=50)
    assert (count, prompt) == (50, "first")
    assert megabytes < 64
    with path.open("rb") as file:
        t = entry_table.table_from_file(file.fileno())
    assert len(t) == 202
    assert [message.uuid for message in messages.read_messages(str(path), limit=3)][:1] == ["u1"]


@pytest.mark.parametrize("order", ["message uuid result", "uuid message result"])
def test_reader_finds_an_id_in_the_middle_of_a_long_line(home: Home, order: str) -> None:
    long = b"x" * 6_000_000
    parts = {
        "message": b'"message":{"role":"user","content":"%s"}' % long,
        "uuid": b'"uuid":"u2","type":"user"',
        "result": b'"toolUseResult":{"stdout":"%s"}' % long,
    }
    line = b'{"parentUuid":"a1",' + b",".join(parts[name] for name in order.split()) + b"}"
    home.write([user("u1", None), assistant("a1", "u1"), line, assistant("a2", "u2")])
    messages = claude.get_session_messages(S)
    assert [message.uuid for message in messages] == ["u1", "a1", "u2", "a2"]


@needs_proc
def test_prompt_of_100_megabytes_names_its_session(home: Home, tmp_path: Path) -> None:
    path = home.projects / "-w" / f"{S}.jsonl"
    path.parent.mkdir()
    with path.open("wb") as file:
        file.write(b'{"parentUuid":null,"type":"user","message":{"role":"user","content":"')
        for _ in range(100):
            file.write(b"word " * 200_000)
        file.write(b'"},"uuid":"u1","sessionId":"s"}\n')
    home.write_conversation(S2)
    home.touch(S2, 1)
    assert [session.summary[:9] for session in claude.list_sessions()] == ["word word", "hi"]
