"""`segue validate` names the first fault of an export file."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from segue.hub.sync.export_file import InvalidLine, is_export
from segue.hub.sync.validation import ValidFile, validate
from segue.model.errors import InvalidInput

from .conftest import OLD_EXPORT, OLD_EXPORTS

Change = Callable[[dict[str, Any]], Any]


def changed(lines: list[bytes], number: int, change: Change) -> list[bytes]:
    """Return the lines with a change to one of them; lines count from 1."""
    line = json.loads(lines[number - 1])
    change(line)
    return [*lines[: number - 1], json.dumps(line).encode(), *lines[number:]]


def line_of(lines: list[bytes], type: str) -> int:
    """Return the number of the first line with an event of a type."""
    types = [json.loads(line).get("body", {}).get("type") for line in lines]
    return types.index(type) + 1


def test_files_of_all_versions_are_valid(exported: list[bytes]) -> None:
    id = json.loads(exported[0])["session"]["id"]
    assert validate(exported) == ValidFile(version=3, session=id, events=27, dangling=0)
    for version in (1, 2):
        old = (OLD_EXPORTS / f"version_{version}.jsonl").read_bytes().splitlines()
        assert validate(old) == ValidFile(version=version, session=id, events=23, dangling=0)


def test_fault_in_the_session_row_of_version_2_is_named() -> None:
    lines = (OLD_EXPORTS / "version_2.jsonl").read_bytes().splitlines()
    damaged = changed(lines, 1, lambda line: line["session"].update(created_at=5))
    with pytest.raises(InvalidLine, match=r"line 1: session\.created_at: expected a time such as"):
        validate(damaged)


@pytest.mark.parametrize(
    ("type", "change", "path", "problem", "value"),
    [
        (
            "user_message",
            lambda line: line["body"]["content"][0].update(text=5),
            "body.content[0].text",
            "expected str, got int",
            5,
        ),
        (
            "status_changed",
            lambda line: line["body"].update(status="asleep"),
            "body.status",
            "invalid enum value 'asleep'",
            "asleep",
        ),
        ("user_message", lambda line: line.update(at=5), "at", "expected str, got int", 5),
        (
            "user_message",
            lambda line: line.update(at="2026-02-30T00:00:00Z"),
            "at",
            "expected a time such as 2026-01-31T12:00:00.000000Z",
            "2026-02-30T00:00:00Z",
        ),
        ("user_message", lambda line: line.pop("id"), "id", "field is required", None),
        (
            "tool_result",
            lambda line: line["body"].pop("status"),
            "body.status",
            "field is required",
            None,
        ),
        (
            "model_called",
            lambda line: line["body"]["usage"].pop("cache_write_tokens"),
            "body.usage.cache_write_tokens",
            "field is required",
            None,
        ),
        (
            "user_message",
            lambda line: line.update(version=0),
            "version",
            "expected int >= 1",
            0,
        ),
        (
            "user_message",
            lambda line: line.update(seq=9),
            "seq",
            "expected event 4 here, because events have no gaps",
            9,
        ),
        (
            "tool_result",
            lambda line: line["body"].update(call_id="c9"),
            "body.call_id",
            "no earlier tool_call has this id",
            "c9",
        ),
        (
            "permission_answered",
            lambda line: line["body"].update(ask_id="p9"),
            "body.ask_id",
            "no earlier permission_asked has this id",
            "p9",
        ),
        (
            "model_called",
            lambda line: line["body"].update(asked="m9"),
            "body.asked",
            "no earlier request has this id",
            "m9",
        ),
        (
            "outcome_evaluated",
            lambda line: line["body"].update(outcome_id="o9"),
            "body.outcome_id",
            "no earlier outcome_defined has this id",
            "o9",
        ),
        (
            "status_changed",
            lambda line: line["body"].update(turn="t9"),
            "body.turn",
            "no event of the session has this id",
            "t9",
        ),
        (
            "user_message",
            lambda line: line["body"].update(type="created", cwd="/"),
            "body.type",
            "a session has only one creation event",
            "created",
        ),
    ],
)
def test_fault_is_named_with_its_line_field_and_value(
    exported: list[bytes], type: str, change: Change, path: str, problem: str, value: Any
) -> None:
    number = line_of(exported, type)
    with pytest.raises(InvalidLine) as caught:
        validate(changed(exported, number, change))
    fault = caught.value
    assert (fault.line, fault.path, fault.problem) == (number, path, problem)
    assert (fault.value or None) == (value or None)
    assert fault.message.startswith(f"line {number}: {path}: {problem}")


@pytest.mark.parametrize(
    ("change", "path", "problem"),
    [
        (lambda line: line.update(format="other"), "format", "invalid enum value 'other'"),
        (lambda line: line.pop("interface"), "interface", "field is required"),
        (lambda line: line["session"].update(turns="1"), "session.turns", "expected int, got str"),
        (
            lambda line: line["session"]["usage"].update(input_tokens=6),
            "session.usage",
            'the events give {"input_tokens":5,"output_tokens":23,"cache_read_tokens":0,'
            '"cache_write_tokens"…',
        ),
        (
            lambda line: line["agents"][1].update(updated_at="now"),
            "agents[1].updated_at",
            "expected a time such as 2026-01-31T12:00:00.000000Z",
        ),
        (lambda line: line["session"].update(messages=99), "session.messages", "the events give 5"),
    ],
)
def test_fault_in_the_header_is_named(
    exported: list[bytes], change: Change, path: str, problem: str
) -> None:
    with pytest.raises(InvalidLine) as caught:
        validate(changed(exported, 1, change))
    assert (caught.value.line, caught.value.path, caught.value.problem) == (1, path, problem)


def test_id_of_an_earlier_event_is_a_fault(exported: list[bytes]) -> None:
    first = json.loads(exported[1])["id"]
    number = line_of(exported, "user_message")
    with pytest.raises(InvalidLine, match=rf"line {number}: id: an earlier event has this id"):
        validate(changed(exported, number, lambda line: line.update(id=first)))


def test_header_must_have_all_versions_of_its_agents(exported: list[bytes]) -> None:
    without_first = changed(exported, 1, lambda line: line["agents"].pop(0))
    with pytest.raises(InvalidLine, match="line 1: agents: the file does not have all versions"):
        validate(without_first)
    without_last = changed(exported, 1, lambda line: line["agents"].pop())
    with pytest.raises(InvalidLine, match=r"body\.agent\.version: the header does not have this"):
        validate(without_last)
    without_any = changed(exported, 1, lambda line: line.pop("agents"))
    assert validate(without_any).dangling > 0


def test_file_with_a_byte_order_mark_is_an_export(exported: list[bytes]) -> None:
    assert is_export(b"\xef\xbb\xbf" + exported[0])
    assert validate([b"\xef\xbb\xbf" + exported[0], *exported[1:]]).events == 27


def test_header_must_count_the_events(exported: list[bytes]) -> None:
    with pytest.raises(
        InvalidLine, match=r"line 28: the file ends after event 26 of 27: it was cut"
    ):
        validate(exported[:-1])
    fewer = changed(exported, 1, lambda line: line["session"].update(last_seq=20))
    with pytest.raises(InvalidLine, match=r"line 22: seq: the header says .* has 20 events"):
        validate(fewer)


def test_newer_version_and_other_files_are_refused(exported: list[bytes]) -> None:
    newer = changed(exported, 1, lambda line: line.update(version=4))
    with pytest.raises(InvalidInput, match=r"newer segue wrote this file \(version 4\)"):
        validate(newer)
    with pytest.raises(InvalidInput, match="line 1: this is not from a segue export"):
        validate([b"# notes\n"])
    with pytest.raises(InvalidInput, match=r"line 1: .*got array"):
        validate([b"[]\n"])


def test_body_of_a_newer_version_is_accepted(exported: list[bytes]) -> None:
    """A reader keeps it as an event that it does not know."""

    def make_newer(line: dict[str, Any]) -> None:
        line.update(version=99, body={"type": "hologram", "rays": 7})

    number = line_of(exported, "foreign")
    assert validate(changed(exported, number, make_newer)).events == 27


def test_references_of_another_tool_may_lead_nowhere(exported: list[bytes]) -> None:
    number = line_of(exported, "tool_result")
    lines = changed(exported, number, lambda line: line["body"].update(call_id="c9"))
    lines = changed(lines, 1, lambda line: line.update(interface="another tool"))
    assert validate(lines).dangling == 1


def test_file_is_read_line_by_line(exported: list[bytes]) -> None:
    """Each event is checked before the next line is read."""
    read, checked = 0, []

    def lines() -> Iterator[bytes]:
        nonlocal read
        for line in exported:
            read += 1
            yield line

    validate(lines(), lambda count: checked.append((count, read)))
    assert checked == [(count, count + 1) for count in range(1, 28)]


def test_old_file_names_the_field_of_the_session(tmp_path: Path) -> None:
    old = OLD_EXPORT.read_bytes().splitlines()
    broken = changed(old, 1, lambda line: line["session"].update(messages="five"))
    with pytest.raises(InvalidLine, match=r"line 1: session.messages: expected int, got str"):
        validate(broken)
