"""Count the lines that tool calls add and remove."""

from typing import Any

import pytest
from msgspec.structs import replace

from segue.model import projection
from segue.model.content import Diff
from segue.model.event import Body, Event, ToolCall, ToolCallChanged, ToolResult
from segue.model.session import ChangedLines
from segue.model.tools.patches import file_change
from tests.model.histories import session_row

DIFF = Diff(path="a.py", old="a\nb\nc\n", new="a\nB\nB2\nc\n")
EDIT = {"file_path": "a.py", "old_string": "a\nb", "new_string": "a"}


def lines_after(*bodies: Body) -> ChangedLines | None:
    return session_row(*((1, body) for body in bodies)).lines


def edit(**fields: Any) -> ToolCall:
    return ToolCall(call_id="c", name="Edit", kind="edit", **fields)


def test_a_call_counts_once_it_is_completed() -> None:
    call = edit(content=(DIFF,))
    assert lines_after(call) == ChangedLines(open={"c": (2, 1)})
    assert lines_after(call, ToolResult(call_id="c")) == ChangedLines(added=2, removed=1)
    assert lines_after(call, ToolResult(call_id="c", status="failed")) == ChangedLines()


@pytest.mark.parametrize(
    ("call", "result", "added", "removed"),
    [
        (edit(input=EDIT), ToolResult(call_id="c"), 0, 1),
        (edit(input={"path": "new", "content": "1\n2"}), ToolResult(call_id="c"), 2, 0),
        (edit(), ToolResult(call_id="c", content=(file_change("a", b"1\n2\n", b"2\n3\n"),)), 1, 1),
        (
            edit(input={"path": "a", "content": "1\n2\n"}),
            ToolResult(call_id="c", content=(file_change("a", None, b"1\n2\n", "1\n2\n"),)),
            2,
            0,
        ),
        (ToolCall(call_id="c", name="Read", kind="read"), ToolResult(call_id="c"), 0, 0),
    ],
    ids=["edit", "new file", "patch", "new file of segue", "read"],
)
def test_changes_are_those_of_the_result_or_of_the_call(
    call: ToolCall, result: ToolResult, added: int, removed: int
) -> None:
    assert lines_after(call, result) == ChangedLines(added=added, removed=removed)


def test_a_changed_call_counts_as_it_was_last() -> None:
    bodies = (edit(), ToolCallChanged(call_id="c", content=(DIFF,)), ToolResult(call_id="c"))
    assert lines_after(*bodies) == ChangedLines(added=2, removed=1)


def test_a_row_of_a_version_that_counted_no_lines_gets_no_wrong_number() -> None:
    before = replace(session_row((1, edit(content=(DIFF,)))), lines=None)
    event = Event(seq=3, id="e", at=1, body=ToolResult(call_id="c"))
    assert projection.apply(before, event).lines is None
