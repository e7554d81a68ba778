"""Forks: the same conversation, under fresh ids, in a file that appears whole."""

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
    made: dict[str, Any] = json.loads(text)
    return made


def fork(home: Home, *lines: Any, **options: Any) -> list[dict[str, Any]]:
    """The lines of the fork of a session of these lines."""
    source = home.write(map(named, lines))
    held = source.read_bytes()
    made = claude.fork_session(S, **options).session_id
    assert source.read_bytes() == held
    path = source.parent / f"{made}.jsonl"
    found = [json.loads(line) for line in path.read_text().split("\n") if line]
    assert all(line["sessionId"] == made for line in found)
    return found


def origins(lines: list[dict[str, Any]]) -> list[str]:
    """The old ids of a fork's entries, in order."""
    return [line["forkedFrom"]["messageUuid"] for line in lines if "forkedFrom" in line]


START = (user("u1", None, "hi"), assistant("a1", "u1"))
MORE = (user("u2", "a1"), assistant("a2", "u2"))


def test_entries_get_fresh_ids_and_keep_their_links(home: Home) -> None:
    first, second, _ = fork(home, *START)
    assert first["uuid"] != id("u1") and second["uuid"] != id("a1")
    assert (first["parentUuid"], second["parentUuid"]) == (None, first["uuid"])
    assert first["forkedFrom"] == {"sessionId": S, "messageUuid": id("u1")}
    assert first["message"] == {"role": "user", "content": "hi"}
    assert first["timestamp"] == "2026-01-01T00:00:00.000Z"
    assert second["timestamp"] > "2026-01-01T00:00:00.000Z"  # so that it is the newest


def test_a_fork_reads_like_its_source(home: Home) -> None:
    home.write([*START, *MORE])
    made = claude.fork_session(S).session_id
    ours, theirs = claude.get_session_messages(made), claude.get_session_messages(S)
    assert [message.message for message in ours] == [message.message for message in theirs]


def test_a_fork_is_private_and_leaves_no_other_file(home: Home) -> None:
    path = home.write(START)
    made = claude.fork_session(S).session_id
    assert {file.name for file in path.parent.iterdir()} == {path.name, f"{made}.jsonl"}
    assert stat.S_IMODE((path.parent / f"{made}.jsonl").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("lines", "given", "wanted"),
    [
        ([title("T")], None, "T (fork)"),
        ([{"type": "ai-title", "aiTitle": "AI"}], None, "AI (fork)"),
        ([], None, "hi (fork)"),
        ([title("T")], "  Mine ", "Mine"),
        ([], "a\x1b[1mb\nc", "ab c"),
        ([title("T")], "  ", "T (fork)"),
    ],
)
def test_the_title_of_a_fork(home: Home, lines: Any, given: str | None, wanted: str) -> None:
    line = fork(home, *START, *lines, title=given)[-1]
    assert (line["type"], line["customTitle"]) == ("custom-title", wanted)
    assert line["uuid"] and line["timestamp"]


def test_a_fork_of_a_session_without_words_has_a_title_too(home: Home) -> None:
    nameless = user("u1", None, "<x>machine</x>")
    assert fork(home, nameless)[-1]["customTitle"] == "Forked session (fork)"


def test_what_belongs_to_another_process_is_left_out(home: Home) -> None:
    gone = ("teamName", "agentName", "slug", "sessionKind", "sourceToolAssistantUUID")
    gone += ("summarizedTurnPromptUuids", "droppedPromptUuids", "turnAttributionKey")
    marked = assistant("a1", "u1", **dict.fromkeys(gone, "x"), promptId="kept")
    made = fork(home, user("u1", None), marked)[1]
    assert not made.keys() & set(gone)
    assert (made["promptId"], made["isSidechain"]) == ("kept", False)


def test_progress_and_agents_are_left_out_and_links_go_past_them(home: Home) -> None:
    lines = [entry("progress", "p1", "a1"), user("s1", "p1", isSidechain=True)]
    made = fork(home, *START, *lines, user("u2", "p1"), user("u3", "s1"))
    assert origins(made) == [id(name) for name in ("u1", "a1", "u2", "u3")]
    assert made[2]["parentUuid"] == made[3]["parentUuid"] == made[1]["uuid"]


def test_lines_beside_the_conversation_come_along_where_they_still_hold(home: Home) -> None:
    def replaced(id: str) -> dict[str, Any]:
        what = {"kind": "tool-result", "toolUseId": id, "replacement": "R"}
        return {"type": "content-replacement", "sessionId": S, "replacements": [what]}

    beside = [
        {"type": "mode", "mode": "normal", "sessionId": S},
        {"type": "tag", "tag": "t", "sessionId": S},
        {"type": "last-prompt", "lastPrompt": "x", "sessionId": S},
        {"type": "tools-used", "tools": ["Read"], "sessionId": S},
        {"type": "tools-used", "tools": ["Read", "Bash"], "sessionId": S},
        {"type": "relocated", "relocatedCwd": "/new", "sessionId": S},
        replaced("t1"),
        replaced("t2"),
    ]
    made = fork(home, *START, *beside)
    kinds = [line["type"] for line in made[2:]]
    assert kinds == ["content-replacement", "tools-used", "relocated", "custom-title"]
    assert [one["toolUseId"] for one in made[2]["replacements"]] == ["t1", "t2"]
    assert made[3]["tools"] == ["Read", "Bash"]


COMPACTED = (
    *START,
    *MORE,
    boundary("b1", "c1", ["u2", "a2"], logicalParentUuid="a2"),
    user("c1", "b1", isCompactSummary=True),
    user("u3", "c1"),
)


def test_what_a_compaction_kept_is_kept_in_the_fork(home: Home) -> None:
    made = fork(home, *COMPACTED)
    new = {line["forkedFrom"]["messageUuid"]: line["uuid"] for line in made if "forkedFrom" in line}
    mark = made[4]
    assert mark["logicalParentUuid"] == new[id("a2")]
    kept = mark["compactMetadata"]["preservedMessages"]
    assert kept["anchorUuid"] == new[id("c1")]
    assert kept["uuids"] == kept["allUuids"] == [new[id("u2")], new[id("a2")]]
    read = claude.get_session_messages(mark["sessionId"])
    assert [message.uuid for message in read] == [new[id(at)] for at in ("c1", "u2", "a2", "u3")]


@pytest.mark.parametrize(
    ("at", "wanted"),
    [
        ("a1", "u1 a1"),
        ("u2", "u1 a1 u2"),
        ("b1", "u1 a1 u2 a2"),
        ("c1", "u1 a1 u2 a2 b1 c1"),
        ("u3", "u1 a1 u2 a2 b1 c1 u3"),
    ],
)
def test_a_fork_up_to_a_message(home: Home, at: str, wanted: str) -> None:
    made = fork(home, *COMPACTED, up_to_message_id=id(at))
    assert origins(made) == [id(name) for name in wanted.split()]


def test_a_fork_up_to_a_summary_leaves_out_what_was_kept_behind_it(home: Home) -> None:
    made = fork(home, *COMPACTED, up_to_message_id=id("c1"))
    assert made[4]["compactMetadata"] == {"trigger": "manual"}
    assert len(claude.get_session_messages(made[0]["sessionId"])) == 1


def test_a_fork_of_parallel_calls_has_them_all(home: Home) -> None:
    lines = [user("u1", None), assistant("a1", "u1", call("t1"), "m")]
    lines += [assistant("a2", "a1", call("t2"), "m"), user("d1", "a1", result("t1"))]
    made = fork(home, *lines, user("d2", "a2", result("t2")))
    assert len(claude.get_session_messages(made[0]["sessionId"])) == 5


def test_a_broken_link_is_mended_in_the_fork(home: Home) -> None:
    made = fork(home, *START, user("u2", "gone"))
    assert made[2]["parentUuid"] == made[1]["uuid"]


def test_half_characters_do_not_stop_a_fork(home: Home) -> None:
    half = '{"type":"user","uuid":"u1","parentUuid":null,"message":{"content":"a \\ud83d"}}'
    home.write([half])
    made = claude.fork_session(S).session_id
    assert claude.get_session_messages(made)[0].message == {"content": "a \ud83d"}


@pytest.mark.parametrize(
    "lines", [[{"type": "mode"}], [system("s", None)], [user("u", None, isSidechain=True)]]
)
def test_a_session_without_messages_cannot_be_forked(home: Home, lines: Any) -> None:
    path = home.write(lines)
    with pytest.raises(ValueError, match=f"^Session {S} has no messages to fork$"):
        claude.fork_session(S)
    assert [*path.parent.iterdir()] == [path]


def test_errors_of_the_place_to_fork_at(home: Home) -> None:
    home.write(START)
    with pytest.raises(ValueError, match=r"^Invalid up_to_message_id: x$"):
        claude.fork_session(S, up_to_message_id="x")
    with pytest.raises(ValueError, match=f"^Message {SOME_ID} not found in session {S}$"):
        claude.fork_session(S, up_to_message_id=SOME_ID)


def test_a_fork_that_fails_leaves_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home.write(START)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        claude.fork_session(S)
    assert [*path.parent.iterdir()] == [path]
