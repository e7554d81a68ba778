"""Tool calls for people: rows, bodies, colours, and the combined changes of files."""

from typing import Any

import pytest

from segue.model.content import Diff, as_content
from segue.model.event import Event, ToolCall, ToolResult
from segue.model.tools.patches import file_change
from segue.render.text.colors import colored
from segue.render.text.diffs import compare_texts, file_diff, with_words
from segue.render.tools.bodies import end_of, split_output, tool_body
from segue.render.tools.changes import changed_files
from segue.render.tools.rows import tool_row


def call(name: str, kind: Any, **input: Any) -> ToolCall:
    return ToolCall(call_id="c", name=name, kind=kind, input=input)


def result(text: str, **fields: Any) -> ToolResult:
    return ToolResult(call_id="c", content=as_content(text), **fields)


ROWS = [
    (call("Bash", "execute", command="make test"), result("", exit_code=2, status="failed"),
     ("shell", "", "make test", ("exit 2",))),
    (call("shell", "execute", command=["bash", "-lc", "ls | wc"]), None,
     ("shell", "", "ls | wc", ())),
    (call("Read", "read", file_path="a.py", offset=10, limit=24), None,
     ("read", "Read", "a.py:10–33", ())),
    (call("Grep", "search", pattern="retry", path="/src"), result("a.py:1:retry\nb.py:2:retry"),
     ("search", "Grep", "retry", ("2 matches",))),
    (call("Grep", "search", pattern="x"), result("No files found"),
     ("search", "Grep", "x", ("0 matches",))),
    (call("Glob", "search", pattern="*.py"), result("Found 1 file\na.py"),
     ("search", "Glob", "*.py", ("1 match",))),
    (call("TodoWrite", "think", todos=[{"content": "Test it", "status": "in_progress"}]), None,
     ("plan", "Plan", "→ Test it", ())),
    (call("Task", "other", description="Count birds", subagent_type="explorer"), None,
     ("agent", "Task", "Count birds", ("explorer",))),
    (ToolCall(call_id="c", name="mcp__linear__get", server="linear", input={"id": "P-1"}), None,
     ("other", "linear › get", "P-1", ())),
]  # fmt: skip


@pytest.mark.parametrize(("tool_call", "outcome", "expected"), ROWS)
def test_row_says_what_a_call_is_about_and_how_it_ended(
    tool_call: ToolCall, outcome: ToolResult | None, expected: tuple[Any, ...]
) -> None:
    row = tool_row(tool_call, outcome)
    assert (row.meaning, row.name, row.subject, row.facts) == expected


def test_edit_shows_only_its_diff_and_counts_its_lines() -> None:
    edit = call("Edit", "edit", file_path="a.py", old_string="x = 1\n", new_string="x = 2\ny = 3\n")
    outcome = result("The file a.py has been updated.")
    row = tool_row(edit, outcome)
    assert (row.subject, row.added, row.removed) == ("a.py", 2, 1)
    assert [part.kind for part in tool_body(edit, outcome)] == ["diff"]
    failed = result("The text was not found.", status="failed")
    assert [part.kind for part in tool_body(edit, failed)] == ["diff", "output"]


def test_read_shows_the_file_without_the_numbers_that_the_tool_wrote() -> None:
    outcome = result("    10→def f():\n    11→    pass\n\n<system-reminder>x</system-reminder>")
    [part] = tool_body(call("Read", "read", file_path="a.py"), outcome)
    assert (part.text, part.language, part.first_line) == ("def f():\n    pass", "python", 10)


def test_json_output_is_shown_on_several_lines_and_raw() -> None:
    outcome = result('{"a": [1, 2]}')
    parts = tool_body(call("get", "other"), outcome)
    assert [(part.kind, "\n" in part.text) for part in parts] == [("json", True), ("raw", False)]


def test_long_output_is_divided_before_its_last_lines() -> None:
    lines = [str(number) for number in range(40)]
    earlier, last = split_output("\n".join(lines) + "\n")
    assert last.split("\n") == lines[-12:] and earlier.split("\n") == lines[:-12]
    assert split_output("one\ntwo") == ("", "one\ntwo")


def test_colours_of_a_terminal_become_classes_and_other_codes_vanish() -> None:
    text = "\x1b[1;31mbad\x1b[0m \x1b[38;5;46mok\x1b[39m \x1b[2K\x1b]0;title\x07<b>"
    assert colored(text) == (
        '<span class="a-bold a-red">bad</span> <span class="a-green">ok</span> &lt;b&gt;'
    )
    assert colored("\x1b[38;2;1m\x1b[;;;;m\x1b[999mx") in ("x", '<span class="a-black">x</span>')


def test_changed_words_of_similar_lines_are_marked() -> None:
    lines = with_words(compare_texts("total = net * 1.19\nb\n", "total = net * rate\nb\n").lines)
    assert ("rate", True) in lines[1].words and ("total", True) not in lines[1].words
    assert not with_words(compare_texts("alpha beta\n", "x(1)[2]\n").lines)[0].words


def test_patch_has_the_numbers_of_its_lines() -> None:
    before = "".join(f"{number}\n" for number in range(1, 31))
    lines = file_diff(
        file_change("/a", before.encode(), before.replace("20\n", "x\n").encode())
    ).lines
    changed = [(line.sign, line.old, line.new) for line in lines if line.sign in "+-"]
    assert changed == [("-", 20, None), ("+", None, 20)]


def events(*pairs: tuple[ToolCall, str]) -> list[Event]:
    listed = []
    for number, (tool_call, status) in enumerate(pairs):
        id = f"c{number}"
        opened = ToolCall(call_id=id, name=tool_call.name, kind="edit", input=tool_call.input)
        closed = ToolResult(call_id=id, status=status)  # type: ignore[arg-type]
        for offset, body in enumerate((opened, closed)):
            listed.append(Event(seq=2 * number + offset + 1, id=f"{id}{offset}", at=0, body=body))
    return listed


def test_changes_of_one_file_are_combined_into_one_diff() -> None:
    [file] = changed_files(
        events(
            (call("Edit", "edit", file_path="a", old_string="1\n", new_string="2\n"), "completed"),
            (call("Edit", "edit", file_path="a", old_string="2\n", new_string="3\n"), "completed"),
            (call("Edit", "edit", file_path="a", old_string="9\n", new_string="8\n"), "failed"),
        )
    )
    assert (file.path, file.added, file.removed, file.calls) == ("a", 1, 1, [1, 3])
    assert file.parts == [Diff(path="a", old="1\n", new="3\n")]


def test_file_that_a_session_wrote_and_edited_is_new() -> None:
    [file] = changed_files(
        events(
            (call("Write", "edit", file_path="a", content="1\n2\n"), "completed"),
            (call("Edit", "edit", file_path="a", old_string="2", new_string="two"), "completed"),
        )
    )
    assert file.is_new and file.parts == [Diff(path="a", new="1\ntwo\n")]
    assert (file.added, file.removed) == (2, 0)


def test_change_that_was_taken_back_leaves_no_diff() -> None:
    [file] = changed_files(
        events(
            (call("Edit", "edit", file_path="a", old_string="1", new_string="2"), "completed"),
            (call("Edit", "edit", file_path="a", old_string="2", new_string="1"), "completed"),
        )
    )
    assert (file.parts, file.added, file.removed) == ([], 0, 0)


def test_the_end_of_a_text_begins_with_a_whole_line() -> None:
    assert end_of("one\ntwo\nthree", 8) == "three"
    assert end_of("one\ntwo", 100) == "one\ntwo"
    assert end_of("a line without an end", 3) == "end"


def test_a_call_of_an_agent_shows_its_prompt_and_its_answer_as_prose() -> None:
    parts = tool_body(call("Task", "other", prompt="**Find** it", x=1), result("It is **here**"))
    assert [(part.kind, part.text) for part in parts] == [
        ("prose", "**Find** it"),
        ("prose", "It is **here**"),
    ]


def test_the_row_of_an_mcp_tool_names_its_server() -> None:
    row = tool_row(call("mcp__linear__get_issue", "other", id="PAY-1"), None)
    assert (row.name, row.subject) == ("linear › get_issue", "PAY-1")
