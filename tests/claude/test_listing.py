"""Lists: how sessions are named, which are left out, and their order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from segue import claude
from segue.claude import SDKSessionInfo
from segue.sources.claude.sdk import quick_info as reading
from tests.claude.entries import (
    S2,
    Home,
    S,
    as_line,
    assistant,
    attachment,
    boundary,
    result,
    system,
    title,
    user,
)

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
DOCUMENT = {"type": "document", "source": {}}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def only(**options: Any) -> SDKSessionInfo:
    """The one session, which every way of asking describes alike."""
    info = claude.get_session_info(S)
    assert info is not None
    assert claude.list_sessions(**options) == claude.list_sessions(limit=1, **options) == [info]
    return info


@pytest.mark.parametrize(
    ("contents", "prompt"),
    [
        (["  hello\n\nworld  "], "hello  world"),
        (["x" * 200], "x" * 200),
        (["x" * 201], "x" * 200 + "…"),
        (["x" * 198 + "   y"], "x" * 198 + "…"),
        (["🎉" * 150], "🎉" * 100 + "…"),
        (["a" + "🎉" * 150], "a" + "🎉" * 99 + "…"),
        ([[text("a"), text("b")]], "a"),
        ([[text("  "), text("b")]], "b"),
        ([[IMAGE, text("see")]], "see"),
        ([result("t"), "next"], "next"),
        ([[text("x"), *result("t")], "next"], "next"),
        (["<command-name>/help</command-name>stuff"], "/help"),
        (["<command-name>/help</command-name>", "real"], "real"),
        (["<command-name>/a</command-name>", "<command-name>/b</command-name>"], "/a"),
        (["<bash-input>ls -la</bash-input>", "real"], "! ls -la"),
        (["<local-command-stdout>x</local-command-stdout>", "real"], "real"),
        (["<any-tag>x</any-tag>", "real"], "real"),
        (["  \n<x>y", "real"], "real"),
        (["<Div>x</Div>"], "<Div>x</Div>"),
        (["[Request interrupted by user for tool use]", "real"], "real"),
        ([[text("<ide_opened_file>x</ide_opened_file>"), text("real")]], "real"),
        (["", "   ", "real"], "real"),
        ([7, {"a": 1}, ["text"], "real"], "real"),
        ([[None, {"type": "text", "text": 5}, text("real")]], "real"),
    ],
)
def test_first_prompt_is_the_first_text_that_a_person_typed(
    home: Home, contents: list[Any], prompt: str
) -> None:
    home.write(user(f"u{number}", None, content) for number, content in enumerate(contents))
    assert only().first_prompt == only().summary == prompt


@pytest.mark.parametrize(
    ("content", "name"),
    [([IMAGE], "Image"), ([DOCUMENT], "Document"), ([DOCUMENT, IMAGE], "Image")],
)
def test_pasted_content_names_a_session_without_text(home: Home, content: Any, name: str) -> None:
    home.write([user("u1", None, content)])
    assert (only().summary, only().first_prompt) == (name, None)


@pytest.mark.parametrize("mark", ["isMeta", "isCompactSummary"])
def test_text_that_programs_insert_is_not_a_prompt(home: Home, mark: str) -> None:
    home.write(
        [{"type": "mode"}, user("u1", None, "first", **{mark: True}), user("u2", "u1", "2nd")]
    )
    assert only().first_prompt == "2nd"


AI = {"type": "ai-title", "aiTitle": "AI", "sessionId": S}
LAST = {"type": "last-prompt", "lastPrompt": "LAST", "sessionId": S}
RECAP = {"type": "summary", "summary": "RECAP", "leafUuid": "a1"}


@pytest.mark.parametrize(
    ("lines", "summary", "custom"),
    [
        ([title("T"), AI, LAST, RECAP], "T", "T"),
        ([AI, LAST, RECAP], "AI", "AI"),
        ([RECAP, LAST], "LAST", None),
        ([RECAP], "RECAP", None),
        ([], "hi", None),
        ([title("old"), title("new")], "new", "new"),
        ([title("T"), title(""), AI], "AI", "AI"),
        ([title("T"), {"type": "custom-title", "customTitle": 7}], "T", "T"),
        (['{"type": "custom-title", "customTitle": "spaced"}'], "spaced", "spaced"),
        (['[{"type":"custom-title","customTitle":"no entry"}]'], "hi", None),
        (['{"type":"custom-title","customTitle":"no","type":"mode"}'], "hi", None),
    ],
)
def test_summary_is_chosen_in_order_of_preference(
    home: Home, lines: list[Any], summary: str, custom: str | None
) -> None:
    home.write([user("u1", None, "hi"), assistant("a1", "u1"), *lines])
    assert (only().summary, only().custom_title) == (summary, custom)


def test_title_joined_to_a_torn_line_is_found(home: Home) -> None:
    torn = as_line(assistant("a1", "u1"))[:60] + as_line(title("T")).strip()
    home.write([user("u1", None, "hi"), torn])
    info = claude.get_session_info(S)
    assert info is not None
    assert claude.list_sessions(limit=1) == [info]
    assert info.custom_title == "T"


@pytest.mark.parametrize("first", [LAST, {"type": "mode", "mode": "plan"}])
def test_joined_title_and_tag_lines_all_count(home: Home, first: dict[str, Any]) -> None:
    glued = as_line(first).strip() + as_line(title("T")).strip()
    home.write([user("u1", None, "hi"), glued, assistant("a1", "u1"), LAST])
    assert (only().custom_title, only().summary) == ("T", "T")


def test_full_list_parses_only_the_last_line_of_each_type(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[Any] = [user("u1", None, "hi", cwd="/w")]
    for number in range(50):
        lines += [{**LAST, "lastPrompt": f"{number}"}, assistant(f"a{number}", "u1")]
    home.write([*lines, title("T"), *[{"type": "mode", "mode": "plan"}] * 50])
    parsed, decode = list[bytes](), reading._decode_line
    monkeypatch.setattr(reading, "_decode_line", lambda line: parsed.append(line) or decode(line))
    (row,) = claude.list_sessions()
    assert (row.summary, row.first_prompt) == ("T", "hi")
    assert len(parsed) == 3  # the title, the last prompt and the first


def test_last_tag_counts_and_an_empty_tag_clears_it(home: Home) -> None:
    tags = [{"type": "tag", "tag": tag, "sessionId": S} for tag in ("a", "b")]
    home.write([user("u1", None), *tags])
    assert only().tag == "b"
    home.write([user("u1", None), *tags, {"type": "tag", "tag": "", "sessionId": S}])
    assert only().tag is None


def test_sidecar_title_is_used_if_the_transcript_has_none(home: Home) -> None:
    path = home.write([user("u1", None), AI])
    path.with_suffix("").mkdir()
    copy = path.with_suffix("") / "custom-title.json"
    for body, custom in (('{"customTitle":"COPY"}', "COPY"), ("junk", "AI"), ("{}", "AI")):
        copy.write_text(body)
        assert only().custom_title == custom
    copy.write_text('{"customTitle":"COPY"}')
    home.write([user("u1", None), AI, title("T")])
    assert only().custom_title == "T"


def test_list_shows_the_last_branch_and_the_first_directory(home: Home) -> None:
    lines = [user("u1", None, cwd="/first", gitBranch="a"), assistant("a1", "u1", gitBranch="b")]
    home.write([*lines, user("u2", "a1", cwd="/second", gitBranch="")])
    assert (only().git_branch, only().cwd) == ("b", "/first")


@pytest.mark.parametrize("size", [10, 70_000, 200_000])
def test_branch_is_found_at_the_end_of_a_long_line(home: Home, size: int) -> None:
    long = assistant("a1", "u1", [text("x" * size)], gitBranch="here")
    home.write([user("u1", None, gitBranch="there"), long])
    assert only().git_branch == "here"


def test_relocated_session_has_its_new_directory(home: Home) -> None:
    moved = {"type": "relocated", "sessionId": S, "relocatedCwd": "/new"}
    home.write([user("u1", None, cwd="/old"), moved, assistant("a1", "u1", cwd="/old")])
    assert only().cwd == "/new"


@pytest.mark.parametrize(
    ("lines", "created"),
    [
        ([user("u1", None, timestamp="2026-01-15T10:30:00.000Z")], 1768473000000),
        (
            [{"type": "mode"}, user("u1", None, timestamp="2026-01-15T10:30:00+00:00")],
            1768473000000,
        ),
        ([user("u1", None, timestamp="no time")], None),
        ([user("u1", None, timestamp=5)], None),
    ],
)
def test_created_at_is_the_time_of_the_first_entry(home: Home, lines: Any, created: Any) -> None:
    home.write(lines)
    assert only().created_at == created


def test_list_leaves_out_subagents_and_nameless_sessions(home: Home) -> None:
    home.write([user("u1", None, isSidechain=True)])
    home.write([{"type": "mode"}, user("u1", None, isMeta=True)], S2)
    assert claude.list_sessions() == claude.list_sessions(limit=3) == []
    assert claude.get_session_info(S) is None


def test_list_ignores_files_with_other_names(home: Home) -> None:
    path = home.write_conversation()
    for name in (
        "notes.jsonl",
        f"agent-{S[:7]}.jsonl",
        f"{S2}.json",
        f"{S2}.jsonl.bak",
        f"{S2}.JSONL",
    ):
        (path.parent / name).write_bytes(path.read_bytes())
    (home.projects / f"{S2}.jsonl").write_bytes(path.read_bytes())
    assert [info.session_id for info in claude.list_sessions()] == [S]


@pytest.mark.parametrize(
    ("fields", "program"),
    [
        ({"entrypoint": "sdk-cli"}, True),
        ({"entrypoint": "sdk-ts"}, True),
        ({"entrypoint": "sdk-py"}, True),
        ({"sessionKind": "daemon-worker"}, True),
        ({"entrypoint": "cli"}, False),
        ({"entrypoint": ["sdk-py"]}, False),
        ({}, False),
    ],
)
def test_list_can_leave_out_programmatic_sessions(home: Home, fields: Any, program: bool) -> None:
    home.write_conversation(**fields)
    assert len(claude.list_sessions()) == 1
    assert len(claude.list_sessions(include_programmatic=False)) == (0 if program else 1)


def test_list_shows_only_the_successor_of_a_continued_session(home: Home) -> None:
    def continued_in(session_id: str) -> dict[str, str]:
        return {"type": "continued-in", "sessionId": S, "continuedInSessionId": session_id}

    def ids(**options: Any) -> set[str]:
        return {info.session_id for info in claude.list_sessions(**options)}

    start = [user("u1", None), assistant("a1", "u1")]
    home.write([*start, continued_in(S2)])
    assert ids() == {S}  # there is no such session
    home.write_conversation(S2)
    assert ids() == ids(limit=5) == {S2}
    assert claude.get_session_info(S) is not None
    home.write([*start, continued_in(S2), title("T")])
    assert ids() == ids(limit=5) == {S2}
    home.write([*start, continued_in(S2), user("u2", "a1")])
    assert ids() == ids(limit=5) == {S, S2}  # a message followed, so it is listed too
    home.write([*start, continued_in(S)])
    home.write([*start, {**continued_in(S), "sessionId": S2}], S2)
    assert S in ids()  # a session that continues in itself is listed


def test_list_is_sorted_by_time_and_then_by_id(home: Home) -> None:
    ids = [f"{number}0000000-0000-4000-8000-000000000000" for number in range(4)]
    for id, modified in zip(ids, (2, 1, 2, 3), strict=True):
        home.write_conversation(id)
        home.touch(id, modified)
    expected = [ids[3], ids[2], ids[0], ids[1]]
    assert [info.session_id for info in claude.list_sessions()] == expected
    pages = [claude.list_sessions(limit=1, offset=offset)[0].session_id for offset in range(4)]
    assert pages == expected


def test_path_decides_between_copies_of_equal_age(home: Home) -> None:
    for project in ("-b", "-a"):
        home.write_conversation(project=project, prompt=project, cwd=f"/{project}")
        home.touch(S, 5, project)
    home.write_conversation(S2)
    home.touch(S2, 4)
    for options in ({}, {"limit": 9}):
        assert [row.summary for row in claude.list_sessions(**options)] == ["-b", "hi"]


@pytest.mark.parametrize("options", [{"limit": 0}, {"limit": -1}, {"limit": None}, {"offset": -3}])
def test_limit_or_offset_beyond_the_list_is_accepted(home: Home, options: Any) -> None:
    home.write_conversation(S)
    home.write_conversation(S2)
    assert len(claude.list_sessions(**options)) == 2
    assert claude.list_sessions(offset=9) == []


def test_modification_time_is_rounded_to_milliseconds(home: Home) -> None:
    home.write_conversation()
    home.touch(S, 1000.0006)
    assert only().last_modified == 1_000_001


def archived(path: Path, at: str, mark: bool = True) -> bool | None:
    path.with_suffix("").mkdir(exist_ok=True)
    body = json.dumps({"archived": mark, "at": at, "by": "sdk"})
    (path.with_suffix("") / "archived.json").write_text(body)
    return only().archived


LATER = "2026-02-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("line", "still"),
    [
        (assistant("a2", "a1", timestamp=LATER), True),
        (user("u2", "a1", "prompt", timestamp=LATER), False),
        (user("u2", "a1", [IMAGE], timestamp=LATER), False),
        (user("u2", "a1", "prompt", timestamp=LATER, origin={"kind": "human"}), False),
        (user("u2", "a1", "prompt", timestamp=LATER, origin={"kind": "task-notification"}), True),
        (user("u2", "a1", "prompt", timestamp=LATER, isMeta=True), True),
        (user("u2", "a1", "prompt", timestamp=LATER, isSidechain=True), True),
        (user("u2", "a1", result("t"), timestamp=LATER), True),
        (user("u2", "a1", "<command-name>/x</command-name>", timestamp=LATER), True),
        ({**attachment("q", "a1", type="queued_command", prompt="p"), "timestamp": LATER}, False),
        (system("s", "a1", timestamp=LATER), True),
    ],
)
def test_only_a_later_human_prompt_unarchives_a_session(home: Home, line: Any, still: bool) -> None:
    path = home.write([user("u1", None), assistant("a1", "u1"), line])
    assert archived(path, "2026-01-02T00:00:00.000Z") is still
    assert archived(path, "2026-01-02T00:00:00.000Z", mark=False) is False


def test_archived_is_none_for_a_session_that_was_never_archived(home: Home) -> None:
    path = home.write_conversation()
    assert only().archived is None
    assert archived(path, "junk") is None


def test_page_finds_titles_in_the_middle_of_a_file(home: Home) -> None:
    pad = [assistant(f"p{n}", "u1", [text("x" * 60_000)]) for n in range(4)]
    home.write([user("u1", None, "hi"), *pad, title("first"), title("T"), boundary("B"), *pad])
    assert [info.summary for info in claude.list_sessions(limit=1)] == ["T"]
    assert claude.get_session_info(S) == claude.list_sessions(limit=1)[0]
