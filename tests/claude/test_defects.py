"""The confirmed defects of the SDKs, by their numbers. segue has none of them."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from segue import claude
from tests.claude.entries import (
    S2,
    Home,
    S,
    assistant,
    boundary,
    call,
    result,
    title,
    user,
)


def uuids(id: str = S) -> list[str]:
    return [message.uuid for message in claude.get_session_messages(id)]


def project(path: Path) -> str:
    return claude.project_key_for_directory(path)


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\u0085", "\x0b", "\x1c"])
def test_defect_01_a_fork_keeps_lines_with_unicode_line_breaks(home: Home, odd: str) -> None:
    entries = [user("u1", None, f"a{odd}b"), assistant("a1", "u1"), user("u2", "a1", f"{odd}c")]
    home.write(entries)
    fork = claude.fork_session(S).session_id
    texts = [message.message["content"] for message in claude.get_session_messages(fork)]
    assert texts == [f"a{odd}b", [{"type": "text", "text": "a1"}], f"{odd}c"]


def test_defect_02_invalid_utf8_loses_at_most_one_character(home: Home) -> None:
    broken = b'{"type":"assistant","uuid":"a1","parentUuid":"u1","message":{"content":"caf\xe9"}}'
    home.write([user("u1", None), broken, user("u2", "a1")])
    assert uuids() == ["u1", "a1", "u2"]
    assert claude.get_session_messages(S)[1].message == {"content": "caf\ufffd"}


SPOOF = {"customTitle": "X", "tag": "X", "lastPrompt": "X", "summary": "X", "cwd": "/x"}


def test_defect_03_fields_inside_a_message_do_not_name_the_session(home: Home) -> None:
    spoof = [{"type": "tool_use", "id": "t", "name": "n", "input": SPOOF | {"gitBranch": "x"}}]
    lines = [
        assistant("a0", None, spoof),
        user("u1", "a0", "real", cwd="/w", gitBranch="main"),
        assistant("a1", "u1", spoof),
    ]
    home.write(lines)
    for info in [
        claude.get_session_info(S),
        *claude.list_sessions(),
        *claude.list_sessions(limit=1),
    ]:
        assert info is not None
        assert (info.summary, info.custom_title, info.tag) == ("real", None, None)
        assert (info.cwd, info.git_branch) == ("/w", "main")


def test_defect_04_session_with_a_long_first_line_is_listed(home: Home) -> None:
    image = {"type": "base64", "media_type": "image/png", "data": "A" * 100_000}
    home.write([user("u1", None, [{"type": "image", "source": image}])])
    home.write([user("u1", None, "word " * 50_000), assistant("a1", "u1")], S2)
    home.touch(S, 2)
    home.touch(S2, 1)
    for listed in (claude.list_sessions(), claude.list_sessions(limit=5)):
        assert [info.session_id for info in listed] == [S, S2]
        assert listed[0].summary == "Image"
        assert listed[1].summary == "word " * 39 + "word…"


def test_defect_04_session_with_a_late_first_prompt_is_listed(home: Home) -> None:
    listing = {"type": "attachment", "uuid": "t", "parentUuid": None, "attachment": "x" * 200_000}
    home.write([listing, user("u1", "t", "the prompt")])
    assert [info.summary for info in claude.list_sessions()] == ["the prompt"]


@pytest.mark.parametrize("around", [70_000, 2_000_000])
def test_defect_05_title_and_tag_are_found_in_the_middle_of_a_long_file(
    home: Home, around: int
) -> None:
    replies = [
        assistant(f"p{n}", "u1", [{"type": "text", "text": "x" * 999}])
        for n in range(around // 999)
    ]
    home.write([user("u1", None), *replies])
    claude.rename_session(S, "The title")
    claude.tag_session(S, "the-tag")
    path = home.projects / "-w" / f"{S}.jsonl"
    with path.open("ab") as file:
        for line in replies:
            file.write(json.dumps(line).encode() + b"\n")
    info = claude.get_session_info(S)
    assert info is not None
    assert (info.summary, info.tag) == ("The title", "the-tag")
    assert claude.list_sessions(limit=1) == [info]


@pytest.mark.parametrize("name", ["emoji🎉dir", "cafe\u0301", "日本語", "a b.c"])
def test_defect_06_sessions_of_non_ascii_directories_are_listed(
    home: Home, tmp_path: Path, name: str
) -> None:
    directory = tmp_path / name
    directory.mkdir()
    # As Claude Code writes it on Linux: a dash for each UTF-16 unit, nothing normalised.
    units = str(directory.resolve()).encode("utf-16-le")
    pairs = (units[at : at + 2].decode("utf-16-le", "replace") for at in range(0, len(units), 2))
    written = "".join(char if char.isascii() and char.isalnum() else "-" for char in pairs)
    home.write_conversation(project=written)
    assert [info.session_id for info in claude.list_sessions(str(directory))] == [S]
    assert len(claude.get_session_messages(S, str(directory))) == 2


def opened_files(code: str, home: Path) -> list[str]:
    """The transcripts that some code opens, in a process of its own."""
    watched = (
        "import sys\nseen = []\n"
        "sys.addaudithook(lambda name, args: name == 'open' and seen.append(str(args[0])))\n"
        f"from {claude.__name__} import *\n{code}\n"
        "print('\\n'.join(path for path in seen if path.endswith('.jsonl')))"
    )
    environ = dict(os.environ, CLAUDE_CONFIG_DIR=str(home))
    done = subprocess.run(
        [sys.executable, "-c", watched], env=environ, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_defect_07_page_opens_only_its_own_transcripts(home: Home) -> None:
    for number in range(50):
        id = f"{number:08d}-0000-4000-8000-000000000000"
        home.write_conversation(id)
        home.touch(id, number)
    assert len(opened_files("list_sessions(limit=5)", home.root)) == 5
    assert len(opened_files("list_sessions(limit=5, offset=10)", home.root)) == 15
    assert len(opened_files("list_sessions()", home.root)) == 50


@contextmanager
def limit_open_files(limit: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_defect_08_list_is_complete_with_few_file_descriptors(home: Home) -> None:
    for number in range(300):
        home.write_conversation(f"{number:08d}-0000-4000-8000-000000000000", f"-p{number % 7}")
    free = os.dup(0)
    os.close(free)
    with limit_open_files(free + 3):
        assert len(claude.list_sessions()) == 300
        assert len(claude.list_sessions(limit=200)) == 200


def test_defect_08_list_fails_without_a_free_file_descriptor(home: Home) -> None:
    home.write_conversation()
    free = os.dup(0)
    os.close(free)
    with limit_open_files(free), pytest.raises(OSError):
        claude.list_sessions()


def test_defect_09_preserved_messages_follow_the_summary(home: Home) -> None:
    before = [user("u1", None), assistant("a1", "u1"), user("u2", "a1"), assistant("a2", "u2")]
    after = [user("C", "B", isCompactSummary=True), user("u3", "C"), assistant("a3", "u3")]
    home.write([*before, boundary("B", "C", ["u2", "a2"]), *after])
    assert uuids() == ["C", "u2", "a2", "u3", "a3"]


def test_defect_10_a_line_padded_with_nuls_is_read(home: Home) -> None:
    padded = b"\0" * 512 + json.dumps(assistant("a1", "u1")).encode()
    home.write([user("u1", None), padded, user("u2", "a1"), b"\0" * 300])
    assert uuids() == ["u1", "a1", "u2"]


def test_defect_10_title_on_a_line_padded_with_nuls_is_found(home: Home) -> None:
    home.write([user("u1", None), b"\0" * 512 + json.dumps(title("T")).encode()])
    for listed in (claude.list_sessions(), claude.list_sessions(limit=1)):
        assert [info.custom_title for info in listed] == ["T"]


def test_defect_11_link_to_a_transcript_is_not_followed(home: Home, tmp_path: Path) -> None:
    outside = tmp_path / "outside.jsonl"
    outside.write_text(json.dumps(user("u1", None)) + "\n")
    (home.projects / "-w").mkdir()
    (home.projects / "-w" / f"{S}.jsonl").symlink_to(outside)
    original = outside.read_bytes()
    for change in (
        lambda: claude.rename_session(S, "x"),
        lambda: claude.tag_session(S, "x"),
        lambda: claude.delete_session(S),
        lambda: claude.fork_session(S),
        lambda: claude.archive_session(S),
    ):
        with pytest.raises(FileNotFoundError):
            change()
    assert outside.read_bytes() == original
    assert claude.list_sessions() == []
    assert claude.get_session_messages(S) == []


def test_defect_11_reader_does_not_block_on_a_pipe(home: Home) -> None:
    home.write_conversation(S2)
    os.mkfifo(home.projects / "-w" / f"{S}.jsonl")
    assert [info.session_id for info in claude.list_sessions()] == [S2]
    assert claude.get_session_info(S) is None
    assert claude.get_session_messages(S) == []
    with pytest.raises(FileNotFoundError):
        claude.rename_session(S, "x")


@pytest.mark.parametrize(
    "odd",
    [
        '{"type":["user"],"uuid":"x","parentUuid":null}',
        '{"type":"user","uuid":"x","parentUuid":{"a":1},"message":7}',
        '{"type":"user","uuid":{"a":[]},"parentUuid":[]}',
        '{"type":"assistant","uuid":"x","parentUuid":"u1","message":{"id":7,"content":[1,null]}}',
        '{"type":"system","uuid":"x","subtype":"compact_boundary","compactMetadata":[]}',
        "[" * 200_000,
        '{"a":' * 100_000,
        "null",
        '"text"',
        "[1, 2]",
        "NaN",
        "1" * 10_000,
    ],
    ids=range(12),
)
def test_defect_12_unexpected_json_does_not_hide_other_messages(home: Home, odd: str) -> None:
    home.write([user("u1", None), odd, assistant("a1", "u1"), user("u2", "a1")])
    assert {"u1", "a1", "u2"} <= set(uuids())
    assert len(claude.list_sessions()) == len(claude.list_sessions(limit=1)) == 1
    claude.fork_session(S)


@pytest.mark.parametrize("change", [claude.rename_session, claude.tag_session])
def test_defect_13_edit_is_not_joined_to_a_torn_line(home: Home, change) -> None:  # type: ignore[no-untyped-def] # either function
    path = home.write([user("u1", None)])
    with path.open("ab") as file:
        file.write(b'{"type":"assistant","uuid":"a1","mess')
    change(S, "new")
    torn, appended = path.read_bytes().split(b"\n")[1:3]
    assert torn == b'{"type":"assistant","uuid":"a1","mess'
    assert json.loads(appended)["sessionId"] == S
    info = claude.get_session_info(S)
    assert info is not None
    assert "new" in (info.custom_title, info.tag)


def test_defect_14_messages_in_a_parent_circle_are_returned(home: Home) -> None:
    home.write([user("x", "y"), assistant("y", "x")])
    assert uuids() == ["x", "y"]
    home.write([user("u1", None), assistant("a1", "u1"), user("x", "y"), assistant("y", "x")])
    assert uuids() == ["u1", "a1", "x", "y"]
    home.write([user("s", "s"), assistant("t", "s")])
    assert uuids() == ["s", "t"]


def test_defect_15_id_that_ends_with_a_newline_is_invalid(home: Home) -> None:
    home.write_conversation()
    os.rename(home.projects / "-w" / f"{S}.jsonl", home.projects / "-w" / f"{S}\n.jsonl")
    assert claude.get_session_info(f"{S}\n") is None
    assert claude.list_sessions() == []
    with pytest.raises(ValueError, match="Invalid session_id"):
        claude.rename_session(f"{S}\n", "x")


def test_defect_15_an_offset_below_zero_is_zero(home: Home) -> None:
    home.write([user("u1", None), assistant("a1", "u1"), user("u2", "a1")])
    page = claude.get_session_messages(S, limit=2, offset=-1)
    assert [message.uuid for message in page] == ["u1", "a1"]
    assert len(claude.list_sessions(limit=1, offset=-5)) == 1


def test_defect_15_title_is_reduced_to_one_printable_line(home: Home) -> None:
    home.write_conversation()
    claude.rename_session(S, "  \x1b[31mred\x1b[0m\nand \ud83d half\x07 \x1b]0;evil\x07 ")
    info = claude.get_session_info(S)
    assert info is not None
    assert info.custom_title == "red and  half"
    with pytest.raises(ValueError, match="title must be non-empty"):
        claude.rename_session(S, "\x1b[31m\n\ud83d")


def test_defect_15_title_with_a_lone_surrogate_can_be_printed(home: Home) -> None:
    home.write([user("u1", None), '{"type":"custom-title","customTitle":"a \\ud83d b"}'])
    info = claude.get_session_info(S)
    assert info is not None
    info.summary.encode()
    assert info.summary == "a \ufffd b"


def test_defect_16_all_functions_use_the_copy_that_lists_show(home: Home) -> None:
    for number in range(8):  # the order of a directory is undefined
        home.write_conversation(S, f"-old{number}", "OLD")
        home.touch(S, 1000 + number, f"-old{number}")
    home.write_conversation(S, "-new", "NEW")
    new = home.projects / "-new" / f"{S}.jsonl"
    assert [info.summary for info in claude.list_sessions()] == ["NEW"]
    info = claude.get_session_info(S)
    assert info is not None
    assert info.summary == "NEW"
    assert claude.get_session_messages(S)[0].message["content"] == "NEW"
    claude.rename_session(S, "Renamed")
    assert "Renamed" in new.read_text()
    assert (new.parent / f"{claude.fork_session(S).session_id}.jsonl").exists()
    claude.delete_session(S)
    assert not new.exists()
    assert len(list(home.projects.glob(f"-old*/{S}.jsonl"))) == 8


def test_defect_16_newer_copy_without_messages_does_not_hide_the_older_one(
    home: Home,
) -> None:
    home.write_conversation(S, "-good", "GOOD")
    home.touch(S, 1000, "-good")
    home.write([{"type": "mode", "mode": "normal", "sessionId": S}], S, "-headless")
    assert [info.summary for info in claude.list_sessions()] == ["GOOD"]
    assert len(claude.get_session_messages(S)) == 2


def register_process(home: Home, id: str, process: int) -> None:
    (home.root / "sessions").mkdir(exist_ok=True)
    fields = {"pid": process, "sessionId": id, "status": "busy"}
    (home.root / "sessions" / f"{process}.json").write_text(json.dumps(fields))


def test_defect_17_delete_refuses_an_open_session(home: Home) -> None:
    path = home.write_conversation()
    register_process(home, S, os.getpid())
    with pytest.raises(claude.SessionIsLive, match=str(os.getpid())):
        claude.delete_session(S)
    assert path.exists()


def test_defect_17_failed_delete_raises_an_error(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.write_conversation()
    (path.with_suffix("") / "subagents").mkdir(parents=True)

    def refuse(*_: object) -> None:
        raise PermissionError("no")

    monkeypatch.setattr("shutil.rmtree", refuse)
    with pytest.raises(PermissionError):
        claude.delete_session(S)
    assert path.exists()  # so that it can be tried again


def test_reader_returns_all_parallel_calls_and_results(home: Home) -> None:
    calls = [assistant("c0", "u1", call("t0"), "m"), assistant("c1", "c0", call("t1"), "m")]
    results = [user("r1", "c1", result("t1")), user("r0", "c0", result("t0"))]
    home.write([user("u1", None), *calls, *results, assistant("a1", "r0", id="n")])
    assert uuids() == ["u1", "c0", "c1", "r1", "r0", "a1"]
