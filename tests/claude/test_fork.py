"""A fork is the same conversation with new ids, in a file that appears complete."""

from __future__ import annotations

import json
import os
import stat
from typing import Any

import pytest

from segue import claude
from tests.claude.entries import (
    Home,
    S,
    assistant,
    boundary,
    call,
    entry,
    result,
    system,
    title,
    user,
)

SOME_ID = "99999999-0000-4000-8000-000000000000"


def id(name: str) -> str:
    return f"{name.replace('u', 'e'):0>8}-0000-4000-8000-000000000000"


def named(line: dict[str, Any]) -> dict[str, Any]:
    """The line with ids that a fork can be asked for."""
    text = json.dumps(line)
    for name in ("a1", "a2", "a3", "u1", "u2", "u3", "b1", "c1", "d1", "d2"):
        text = text.replace(f'"{name}"', f'"{id(name)}"')
    entry: dict[str, Any] = json.loads(text)
    return entry


def fork(home: Home, *lines: Any, **options: Any) -> list[dict[str, Any]]:
    """The lines of the fork of a session of these lines."""
    source = home.write(map(named, lines))
    original = source.read_bytes()
    fork_id = claude.fork_session(S, **options).session_id
    assert source.read_bytes() == original
    path = source.parent / f"{fork_id}.jsonl"
    entries = [json.loads(line) for line in path.read_text().split("\n") if line]
    assert all(line["sessionId"] == fork_id for line in entries)
    return entries


def origins(lines: list[dict[str, Any]]) -> list[str]:
    """The old ids of a fork's entries, in order."""
    return [line["forkedFrom"]["messageUuid"] for line in lines if "forkedFrom" in line]


START = (user("u1", None, "hi"), assistant("a1", "u1"))
SECOND_TURN = (user("u2", "a1"), assistant("a2", "u2"))


def test_forked_entries_have_new_ids_and_the_same_links(home: Home) -> None:
    first, second, _ = fork(home, *START)
    assert first["uuid"] != id("u1") and second["uuid"] != id("a1")
    assert (first["parentUuid"], second["parentUuid"]) == (None, first["uuid"])
    assert first["forkedFrom"] == {"sessionId": S, "messageUuid": id("u1")}
    assert first["message"] == {"role": "user", "content": "hi"}
    assert first["timestamp"] == "2026-01-01T00:00:00.000Z"
    assert second["timestamp"] > "2026-01-01T00:00:00.000Z"  # so that it is the newest


def test_fork_has_the_messages_of_its_source(home: Home) -> None:
    home.write([*START, *SECOND_TURN])
    fork_id = claude.fork_session(S).session_id
    fork_messages, original_messages = (
        claude.get_session_messages(fork_id),
        claude.get_session_messages(S),
    )
    assert [message.message for message in fork_messages] == [
        message.message for message in original_messages
    ]


def test_fork_is_private_and_leaves_no_temporary_file(home: Home) -> None:
    path = home.write(START)
    fork_id = claude.fork_session(S).session_id
    assert {file.name for file in path.parent.iterdir()} == {path.name, f"{fork_id}.jsonl"}
    assert stat.S_IMODE((path.parent / f"{fork_id}.jsonl").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("lines", "new_title", "expected"),
    [
        ([title("T")], None, "T (fork)"),
        ([{"type": "ai-title", "aiTitle": "AI"}], None, "AI (fork)"),
        ([], None, "hi (fork)"),
        ([title("T")], "  Mine ", "Mine"),
        ([], "a\x1b[1mb\nc", "ab c"),
        ([title("T")], "  ", "T (fork)"),
    ],
)
def test_fork_title_is_derived_from_the_source(
    home: Home, lines: Any, new_title: str | None, expected: str
) -> None:
    line = fork(home, *START, *lines, title=new_title)[-1]
    assert (line["type"], line["customTitle"]) == ("custom-title", expected)
    assert line["uuid"] and line["timestamp"]


def test_fork_of_a_session_without_text_has_a_title(home: Home) -> None:
    nameless = user("u1", None, "<x>machine</x>")
    assert fork(home, nameless)[-1]["customTitle"] == "Forked session (fork)"


def test_fork_drops_fields_of_the_process_that_wrote_the_source(home: Home) -> None:
    removed_fields = ("teamName", "agentName", "slug", "sessionKind", "sourceToolAssistantUUID")
    removed_fields += ("summarizedTurnPromptUuids", "droppedPromptUuids", "turnAttributionKey")
    marked = assistant("a1", "u1", **dict.fromkeys(removed_fields, "x"), promptId="kept")
    forked = fork(home, user("u1", None), marked)[1]
    assert not forked.keys() & set(removed_fields)
    assert (forked["promptId"], forked["isSidechain"]) == ("kept", False)


def test_fork_skips_progress_and_subagents_and_relinks_their_children(home: Home) -> None:
    lines = [entry("progress", "p1", "a1"), user("s1", "p1", isSidechain=True)]
    forked = fork(home, *START, *lines, user("u2", "p1"), user("u3", "s1"))
    assert origins(forked) == [id(name) for name in ("u1", "a1", "u2", "u3")]
    assert forked[2]["parentUuid"] == forked[3]["parentUuid"] == forked[1]["uuid"]


def test_fork_copies_settings_that_are_outside_the_conversation(home: Home) -> None:
    def replaced(id: str) -> dict[str, Any]:
        replacement = {"kind": "tool-result", "toolUseId": id, "replacement": "R"}
        return {"type": "content-replacement", "sessionId": S, "replacements": [replacement]}

    settings = [
        {"type": "mode", "mode": "normal", "sessionId": S},
        {"type": "tag", "tag": "t", "sessionId": S},
        {"type": "last-prompt", "lastPrompt": "x", "sessionId": S},
        {"type": "tools-used", "tools": ["Read"], "sessionId": S},
        {"type": "tools-used", "tools": ["Read", "Bash"], "sessionId": S},
        {"type": "relocated", "relocatedCwd": "/new", "sessionId": S},
        replaced("t1"),
        replaced("t2"),
    ]
    forked = fork(home, *START, *settings)
    kinds = [line["type"] for line in forked[2:]]
    assert kinds == ["content-replacement", "tools-used", "relocated", "custom-title"]
    assert [one["toolUseId"] for one in forked[2]["replacements"]] == ["t1", "t2"]
    assert forked[3]["tools"] == ["Read", "Bash"]


COMPACTED = (
    *START,
    *SECOND_TURN,
    boundary("b1", "c1", ["u2", "a2"], logicalParentUuid="a2"),
    user("c1", "b1", isCompactSummary=True),
    user("u3", "c1"),
)


def test_fork_keeps_the_messages_that_a_compaction_preserved(home: Home) -> None:
    forked = fork(home, *COMPACTED)
    new = {
        line["forkedFrom"]["messageUuid"]: line["uuid"] for line in forked if "forkedFrom" in line
    }
    mark = forked[4]
    assert mark["logicalParentUuid"] == new[id("a2")]
    preserved = mark["compactMetadata"]["preservedMessages"]
    assert preserved["anchorUuid"] == new[id("c1")]
    assert preserved["uuids"] == preserved["allUuids"] == [new[id("u2")], new[id("a2")]]
    read = claude.get_session_messages(mark["sessionId"])
    assert [message.uuid for message in read] == [new[id(at)] for at in ("c1", "u2", "a2", "u3")]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("a1", "u1 a1"),
        ("u2", "u1 a1 u2"),
        ("b1", "u1 a1 u2 a2"),
        ("c1", "u1 a1 u2 a2 b1 c1"),
        ("u3", "u1 a1 u2 a2 b1 c1 u3"),
    ],
)
def test_fork_ends_at_the_requested_message(home: Home, at: str, expected: str) -> None:
    forked = fork(home, *COMPACTED, up_to_message_id=id(at))
    assert origins(forked) == [id(name) for name in expected.split()]


def test_fork_up_to_a_summary_leaves_out_preserved_messages(home: Home) -> None:
    forked = fork(home, *COMPACTED, up_to_message_id=id("c1"))
    assert forked[4]["compactMetadata"] == {"trigger": "manual"}
    assert len(claude.get_session_messages(forked[0]["sessionId"])) == 1


def test_fork_copies_all_parallel_calls(home: Home) -> None:
    lines = [user("u1", None), assistant("a1", "u1", call("t1"), "m")]
    lines += [assistant("a2", "a1", call("t2"), "m"), user("d1", "a1", result("t1"))]
    forked = fork(home, *lines, user("d2", "a2", result("t2")))
    assert len(claude.get_session_messages(forked[0]["sessionId"])) == 5


def test_fork_repairs_a_missing_parent(home: Home) -> None:
    forked = fork(home, *START, user("u2", "gone"))
    assert forked[2]["parentUuid"] == forked[1]["uuid"]


def test_lone_surrogates_do_not_stop_a_fork(home: Home) -> None:
    half = '{"type":"user","uuid":"u1","parentUuid":null,"message":{"content":"a \\ud83d"}}'
    home.write([half])
    fork_id = claude.fork_session(S).session_id
    assert claude.get_session_messages(fork_id)[0].message == {"content": "a \ud83d"}


@pytest.mark.parametrize(
    "lines", [[{"type": "mode"}], [system("s", None)], [user("u", None, isSidechain=True)]]
)
def test_session_without_messages_cannot_be_forked(home: Home, lines: Any) -> None:
    path = home.write(lines)
    with pytest.raises(ValueError, match=f"^Session {S} has no messages to fork$"):
        claude.fork_session(S)
    assert [*path.parent.iterdir()] == [path]


def test_fork_rejects_an_unknown_or_sidechain_message(home: Home) -> None:
    home.write(START)
    with pytest.raises(ValueError, match=r"^Invalid up_to_message_id: x$"):
        claude.fork_session(S, up_to_message_id="x")
    with pytest.raises(ValueError, match=f"^Message {SOME_ID} not found in session {S}$"):
        claude.fork_session(S, up_to_message_id=SOME_ID)


def test_failed_fork_leaves_no_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home.write(START)

    def fail_without_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail_without_space)
    with pytest.raises(OSError, match="No space left"):
        claude.fork_session(S)
    assert [*path.parent.iterdir()] == [path]
