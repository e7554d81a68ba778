"""The doctor diagnoses damaged transcripts and repairs a copy."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from segue import claude
from tests.claude.entries import Home, S, as_line, assistant, title, user


def bare(line: dict[str, object]) -> bytes:
    return as_line(line).strip()


START = (user("u1", None), assistant("a1", "u1"))
HALF = b'{"type":"user","uuid":"u2","parentUuid":"a1","message":{"content":"x \\ud83d y"}}'
INTACT_LINE = (
    b'{"type":"user","uuid":"u2","parentUuid":"a1","message":{"content":"x \\ud83d\\ude00"}}'
)
CASES = {
    "torn": [bare(user("u2", "a1"))[:70]],
    "nul": [b"\0" * 400 + bare(user("u2", "a1"))],
    "nul alone": [b"\0" * 400],
    "glued": [bare(user("u2", "a1")) + bare(assistant("a2", "u2"))],
    "torn glued": [bare(user("x", "a1"))[:70] + bare(user("u2", "a1"))],
    "surrogate": [HALF],
    "utf8": [HALF.replace(b"\\ud83d", b"\xff")],
    "control": [bare(user("u2", "a1", "c")).replace(b'"c"', b'"\x01"')],
    "json": [b"what is this"],
}


@pytest.mark.parametrize("case", CASES)
def test_doctor_finds_and_repairs_every_kind_of_damage(home: Home, case: str) -> None:
    path = home.write([*START, *CASES[case], user("u9", "a1")])
    before = [message.uuid for message in claude.get_session_messages(S)]
    diagnosis = claude.doctor(S)
    assert not diagnosis.healthy
    assert {finding.kind for finding in diagnosis.findings} >= {*case.split()} - {"alone"}
    assert {finding.line for finding in diagnosis.findings} == {3}
    assert diagnosis.backup is None
    damaged = path.read_bytes()
    healed = claude.doctor(S, repair=True)
    assert healed.findings == diagnosis.findings
    assert claude.doctor(S).healthy
    for line in path.read_bytes().split(b"\n")[:-1]:
        json.loads(line)
    assert [message.uuid for message in claude.get_session_messages(S)] == before
    assert healed.backup is not None
    assert Path(healed.backup).read_bytes() == damaged


def test_doctor_does_not_change_a_healthy_transcript(home: Home) -> None:
    path = home.write([*START, INTACT_LINE, b"", title("T")])
    before, original = path.stat(), path.read_bytes()
    diagnosis = claude.doctor(S, repair=True)
    assert (diagnosis.findings, diagnosis.entries, diagnosis.backup) == ([], 4, None)
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns, path.read_bytes()) == (
        before.st_ino,
        before.st_mtime_ns,
        original,
    )
    assert [*path.parent.iterdir()] == [path]


def test_repair_terminates_the_last_line(home: Home) -> None:
    path = home.write(START)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    (finding,) = claude.doctor(S).findings
    assert (finding.kind, finding.line) == ("unterminated", 2)
    claude.doctor(S, repair=True)
    assert path.read_bytes().endswith(b"}\n")


def test_repair_keeps_undamaged_lines_unchanged(home: Home) -> None:
    odd = b' {"type": "custom",  "n": 1.50, "s": "\\u00e9"} '
    path = home.write([*START, odd, b"\0", b"broken"])
    claude.doctor(S, repair=True)
    assert path.read_bytes() == b"".join(map(as_line, START)) + odd + b"\n"


def test_repair_keeps_the_time_and_mode_of_the_file(home: Home) -> None:
    path = home.write([*START, b"broken"])
    path.chmod(0o640)
    home.touch(S, 1_700_000_000)
    claude.doctor(S, repair=True)
    assert (path.stat().st_mtime, path.stat().st_mode & 0o777) == (1_700_000_000, 0o640)


def test_every_repair_creates_its_own_backup(home: Home) -> None:
    path = home.write([*START, b"one"])
    first = claude.doctor(S, repair=True).backup
    with path.open("ab") as file:
        file.write(b"two\n")
    second = claude.doctor(S, repair=True).backup
    assert first != second
    assert len([*path.parent.iterdir()]) == 3
    assert [info.session_id for info in claude.list_sessions()] == [S]


def test_doctor_refuses_to_repair_an_open_session(home: Home) -> None:
    path = home.write([*START, b"broken"])
    (home.root / "sessions").mkdir()
    fields = {"pid": os.getpid(), "sessionId": S}
    (home.root / "sessions" / "1.json").write_text(json.dumps(fields))
    assert not claude.doctor(S).healthy
    with pytest.raises(claude.SessionIsLive):
        claude.doctor(S, repair=True)
    assert [*path.parent.iterdir()] == [path]


def test_repair_stops_if_another_process_writes_at_the_same_time(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.write([*START, b"broken"])
    sync = os.fsync

    def late(descriptor: int) -> None:
        sync(descriptor)
        with path.open("ab") as file:
            file.write(as_line(title("T")))

    monkeypatch.setattr(os, "fsync", late)
    with pytest.raises(claude.SessionIsLive):
        claude.doctor(S, repair=True)
    assert b"broken" in path.read_bytes()
    assert [*path.parent.iterdir()] == [path]


def test_finding_is_printed_as_a_sentence(home: Home) -> None:
    home.write([*START, b"broken"])
    assert str(claude.doctor(S).findings[0]) == "line 3: the line does not contain an entry"
