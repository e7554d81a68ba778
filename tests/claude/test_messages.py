"""Messages of the active branch: branches, compactions and queued prompts."""

from __future__ import annotations

from typing import Any

import pytest

from segue import claude
from tests.claude.entries import (
    Home,
    S,
    as_line,
    assistant,
    attachment,
    boundary,
    call,
    entry,
    result,
    system,
    user,
)


def uuids(home: Home, *lines: Any, **options: Any) -> str:
    home.write(lines)
    return " ".join(message.uuid for message in claude.get_session_messages(S, **options))


START = (user("u1", None), assistant("a1", "u1"))


def progress(uuid: str, parent: str) -> dict[str, Any]:
    return entry("progress", uuid, parent)


def queued(uuid: str, parent: str, **fields: Any) -> dict[str, Any]:
    return attachment(uuid, parent, **{"type": "queued_command", "prompt": "wait", **fields})


def test_message_has_the_fields_of_its_entry(home: Home) -> None:
    home.write([user("u1", None, "hi"), assistant("a1", "u1", [{"type": "text", "text": "yo"}])])
    first, second = claude.get_session_messages(S)
    assert first == claude.SessionMessage("user", "u1", S, {"role": "user", "content": "hi"})
    assert second.message == {"role": "assistant", "content": [{"type": "text", "text": "yo"}]}
    assert (second.parent_tool_use_id, second.parent_agent_id) == (None, None)


def test_entry_without_session_id_or_message_is_returned(home: Home) -> None:
    home.write([{"type": "user", "uuid": "u1", "parentUuid": None}])
    assert claude.get_session_messages(S) == [claude.SessionMessage("user", "u1", "", None)]


def test_conversation_is_the_newest_branch(home: Home) -> None:
    assert uuids(home, *START, assistant("x", "u1")) == "u1 x"
    assert uuids(home, assistant("x", "u1"), *START) == "u1 a1"
    assert uuids(home, *START, user("r", None), assistant("b", "r")) == "r b"


def test_leaf_decides_which_branch_is_newest(home: Home) -> None:
    old, new = assistant("old", "u1"), user("new", "a1")
    assert uuids(home, *START, old, new, system("s", "old")) == "u1 old"
    assert uuids(home, *START, old, new, attachment("t", "old", type="x")) == "u1 old"
    assert uuids(home, *START, old, new, progress("p", "old")) == "u1 a1 new"


def test_conversation_excludes_subagents_and_teams(home: Home) -> None:
    for mark in ({"isSidechain": True}, {"teamName": "t"}):
        assert uuids(home, *START, user("s", "a1", **mark), assistant("s2", "s", **mark)) == "u1 a1"
        assert uuids(home, *START, assistant("x", "u1"), user("s", "a1", **mark)) == "u1 x"
        assert uuids(home, *START, user("s", "a1", **mark), assistant("m", "s")) == "u1 a1 m"


def test_meta_messages_are_traversed_but_not_returned(home: Home) -> None:
    assert uuids(home, *START, user("m", "a1", isMeta=True), assistant("a2", "m")) == "u1 a1 a2"
    assert uuids(home, user("u1", None), progress("p", "u1"), assistant("a1", "p")) == "u1 a1"


def test_system_messages_are_returned_on_request(home: Home) -> None:
    lines = [*START, system("s", "a1"), system("m", "s", isMeta=True), user("u2", "m")]
    assert uuids(home, *lines) == "u1 a1 u2"
    assert uuids(home, *lines, include_system_messages=True) == "u1 a1 s u2"
    shown = claude.get_session_messages(S, include_system_messages=True)[2]
    assert (shown.type, shown.message) == ("system", None)


TWO_TURNS = (*START, user("u2", "a1"), assistant("a2", "u2"))
SUMMARY = user("C", "B", isCompactSummary=True)


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ([boundary("B"), SUMMARY, user("u3", "C")], "C u3"),
        ([boundary("B", "C", ["u2", "a2"]), SUMMARY, user("u3", "C")], "C u2 a2 u3"),
        ([boundary("B", "C", ["u2", "a2"]), SUMMARY], "C u2 a2"),
        ([boundary("B", "B", ["u2", "a2"]), SUMMARY, user("u3", "C")], "u2 a2 C u3"),
        ([boundary("B", "C", ["u1", "a2"]), SUMMARY, user("u3", "C")], "C u1 a2 u3"),
        ([boundary("B"), SUMMARY, user("u3", "C"), user("r", "a1")], "u1 a1 r"),
        ([boundary("B", "C", ["u2"]), SUMMARY, user("r", "u2")], "C u2 r"),
        ([boundary("B")], "u1 a1 u2 a2"),
    ],
)
def test_compaction_leaves_its_summary_and_preserved_messages(
    home: Home, lines: list[Any], wanted: str
) -> None:
    assert uuids(home, *TWO_TURNS, *lines) == wanted


def test_last_compaction_counts(home: Home) -> None:
    first = [boundary("B", "C", ["u2", "a2"]), SUMMARY, user("u3", "C"), assistant("a3", "u3")]
    second = [user("D", "E", isCompactSummary=True), user("u4", "D")]
    second_boundary = boundary("E", "D", ["a2", "a3"])
    assert uuids(home, *TWO_TURNS, *first, second_boundary, *second) == "D a2 a3 u4"
    assert uuids(home, *TWO_TURNS, *first, boundary("E"), *second) == "D u4"


def test_preserved_segment_is_found_by_its_two_ends(home: Home) -> None:
    mark = boundary("B", "C", ["u2", "a2"])
    del mark["compactMetadata"]["preservedMessages"]
    assert uuids(home, *TWO_TURNS, mark, SUMMARY, user("u3", "C")) == "C u2 a2 u3"
    mark["compactMetadata"]["preservedSegment"]["headUuid"] = "elsewhere"
    assert uuids(home, *TWO_TURNS, mark, SUMMARY, user("u3", "C")) == "C u3"


@pytest.mark.parametrize("lost", ["B", "C", "u2", "a2"])
def test_lost_line_of_a_compaction_hides_no_other_message(home: Home, lost: str) -> None:
    lines = [*TWO_TURNS, boundary("B", "C", ["u2", "a2"]), SUMMARY, user("u3", "C")]
    remaining = uuids(home, *(line for line in lines if line["uuid"] != lost)).split()
    assert {"C", "u2", "a2", "u3"} - {lost} <= set(remaining)


def test_wrong_anchor_does_not_cause_an_endless_loop(home: Home) -> None:
    lines = [*TWO_TURNS, boundary("B", "a2", ["u2"]), boundary("E", "u2", ["a2"]), user("u3", "a2")]
    assert "u3" in uuids(home, *lines)


CALLS = (
    user("u1", None),
    assistant("c0", "u1", call("t0"), "m"),
    assistant("c1", "c0", call("t1"), "m"),
    assistant("c2", "c1", call("t2"), "m"),
)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
@pytest.mark.parametrize("continued", [0, 1, 2])
def test_all_parallel_calls_and_results_are_returned(
    home: Home, order: Any, continued: int
) -> None:
    results = [
        user(f"r{n}", f"c{n}", result(f"t{n}"), timestamp=f"2026-01-01T00:00:0{position}.000Z")
        for position, n in enumerate(order)
    ]
    lines = [*CALLS, *results, assistant("a1", f"r{continued}", id="n")]
    message_uuids = uuids(home, *lines).split()
    assert message_uuids[:4] == ["u1", "c0", "c1", "c2"]
    assert sorted(message_uuids[4:7]) == ["r0", "r1", "r2"]
    assert message_uuids[7:] == ["a1"]


def test_abandoned_branch_is_not_returned(home: Home) -> None:
    old = [assistant("o", "u1", call("t9"), "old"), user("or", "o", result("t9"))]
    assert uuids(home, CALLS[0], *old, *CALLS[1:], user("r2", "c2", result("t2"))) == (
        "u1 c0 c1 c2 r2"
    )


def test_result_is_matched_by_its_call_id(home: Home) -> None:
    lines = [*CALLS, user("r0", "elsewhere", result("t0")), user("r2", "c2", result("t2"))]
    assert "r0" in uuids(home, *lines)


def test_second_result_of_a_call_is_ignored(home: Home) -> None:
    lines = [*CALLS[:2], user("r0", "c0", result("t0")), user("copy", "c0", result("t0"))]
    assert uuids(home, *lines, assistant("a1", "r0", id="n")) == "u1 c0 r0 a1"


def test_queued_prompt_is_a_user_message(home: Home) -> None:
    assert uuids(home, *START, queued("q", "a1"), assistant("a2", "q")) == "u1 a1 q a2"
    message = claude.get_session_messages(S)[2]
    assert (message.type, message.message) == ("user", {"role": "user", "content": "wait"})
    assert uuids(home, *START, queued("q", "a1")) == "u1 a1 q"
    assert uuids(home, *START, queued("q", "a1"), queued("p", "a1")) == "u1 a1 q p"


def test_queued_prompt_that_was_sent_again_is_returned_once(home: Home) -> None:
    assert uuids(home, *START, queued("q", "a1"), user("u2", "q")) == "u1 a1 u2"
    interrupt = user("i", "q", "[Request interrupted by user]")
    assert uuids(home, *START, queued("q", "a1"), interrupt) == "u1 a1 q i"
    answered = user("r", "q", result("t"))
    assert uuids(home, *START, queued("q", "a1"), answered) == "u1 a1 q r"


@pytest.mark.parametrize("odd", [{"isMeta": True}, {"prompt": 5}, {"prompt": None}, {"type": "x"}])
def test_queued_attachment_without_a_prompt_is_not_a_message(home: Home, odd: Any) -> None:
    assert uuids(home, *START, queued("q", "a1", **odd), assistant("a2", "q")) == "u1 a1 a2"


def test_last_entry_of_a_repeated_id_counts(home: Home) -> None:
    assert uuids(home, *START, user("u2", "a1"), assistant("a2", "u2"), user("u2", "u1")) == (
        "u1 u2 a2"
    )
    assert uuids(home, *START, *START) == "u1 a1"


def test_parent_can_follow_its_child_in_the_file(home: Home) -> None:
    assert uuids(home, user("u2", "a1"), assistant("a1", "u1"), user("u1", None)) == "u1 a1 u2"


def test_entry_with_a_missing_parent_follows_the_entry_before_it(home: Home) -> None:
    assert uuids(home, *START, user("u2", "gone"), assistant("a2", "u2")) == "u1 a1 u2 a2"
    assert uuids(home, user("u2", "gone"), assistant("a2", "u2")) == "u2 a2"


def test_result_is_kept_if_the_line_of_its_call_is_damaged(home: Home) -> None:
    torn = assistant("c1", "a1")
    del torn["message"]
    after = assistant("c2", "c1", call("t2"), "m")
    answers = [user("r1", "c1", result("t1")), user("r2", "c2", result("t2"))]
    message_uuids = uuids(home, *START, torn, after, *answers, assistant("a2", "r2"))
    assert sorted(message_uuids.split()) == ["a1", "a2", "c1", "c2", "r1", "r2", "u1"]


def test_joined_lines_are_all_read(home: Home) -> None:
    glued = as_line(user("u2", "a1")).strip() + as_line(assistant("a2", "u2")).strip()
    assert uuids(home, *START, glued, user("u3", "a2")) == "u1 a1 u2 a2 u3"
    torn = as_line(system("s", "a1"))[:40] + as_line(user("u2", "a1")).strip()
    assert uuids(home, *START, torn) == "u1 a1 u2"


def test_message_inside_another_message_is_not_an_entry(home: Home) -> None:
    inner = {"type": "user", "uuid": "inner", "message": {"role": "user", "content": "x"}}
    torn = as_line(entry("progress", "p", "a1", data={"message": inner}))
    end = torn.index(b'"inner"')
    torn = torn[: torn.index(b"}}", end) + 2]
    assert uuids(home, *START, torn) == "u1 a1"


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"limit": 2}, "u1 a1"),
        ({"limit": 2, "offset": 1}, "a1 u2"),
        ({"offset": 2}, "u2 a2"),
        ({"limit": 0}, "u1 a1 u2 a2"),
        ({"limit": -1}, "u1 a1 u2 a2"),
        ({"offset": 9}, ""),
    ],
)
def test_limit_and_offset_select_a_page(home: Home, options: dict[str, int], wanted: str) -> None:
    assert uuids(home, *TWO_TURNS, **options) == wanted


@pytest.mark.parametrize("id", ["", "no-id", "x" * 36, S])
def test_unknown_session_has_no_messages(home: Home, id: str) -> None:
    assert claude.get_session_messages(id) == []
    assert claude.get_session_info(id) is None
    assert claude.list_subagents(id) == claude.get_subagent_messages(id, "a") == []


def test_non_ascii_text_is_returned_unchanged(home: Home) -> None:
    odd = 'Ünïcödé 🎉 日本語 \u2028 \u0085 \x00 \\ " tab\t'
    home.write(
        [
            user("u1", None, odd),
            '{"type":"user","uuid":"u2","parentUuid":"u1","message":{"content":"half \\ud83d"}}',
        ]
    )
    contents = [message.message["content"] for message in claude.get_session_messages(S)]
    assert contents == [odd, "half \ud83d"]
