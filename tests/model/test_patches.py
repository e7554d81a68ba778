"""Write the changes of files as patches, and read them."""

import re
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.model.content import Diff, FileChange, Text
from segue.model.event import ToolCall
from segue.model.tools.patches import (
    MAX_PATCHED_CHARACTERS,
    as_diffs,
    file_change,
    hunks,
    split_lines,
    with_texts,
)

TEXTS = st.lists(
    st.sampled_from(["a", "b", "c", "", "-x", "+y", " z", "@@", "\\ No", "\r", "\u2028"]),
    max_size=40,
).flatmap(lambda lines: st.sampled_from(["\n".join(lines), "\n".join([*lines, ""])]))


def apply(patch: str, old: str) -> str:
    """Return the text that a patch makes of `old`, which must have the patch's lines."""
    lines, position, new = split_lines(old), 0, ""
    starts = [int(start) for start in re.findall(r"^@@ -(\d+)", patch, re.MULTILINE)]
    for start, hunk in zip(starts, hunks(patch), strict=True):
        removed = split_lines(hunk.old)
        begin = start - 1 if removed else start
        assert lines[begin : begin + len(removed)] == removed
        new += "".join(lines[position:begin]) + hunk.new
        position = begin + len(removed)
    return new + "".join(lines[position:])


@given(TEXTS, TEXTS)
def test_patch_makes_the_new_text_of_the_old_one(old: str, new: str) -> None:
    change = file_change("/a", old.encode(), new.encode())
    assert change.patch is not None
    # A context line of a patch begins with a sign, so only hunks begin with @.
    assert apply(change.patch, old) == new
    assert change.before_sha256 == sha256(old.encode()).hexdigest()
    assert change.after_sha256 == sha256(new.encode()).hexdigest()


def test_patch_has_the_lines_around_each_change() -> None:
    old = "".join(f"{number}\n" for number in range(1, 31))
    new = old.replace("10\n", "ten\n").replace("25\n", "")
    change = file_change("/a", old.encode(), new.encode())
    assert change.patch == (
        "@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n"
        "@@ -22,7 +22,6 @@\n 22\n 23\n 24\n-25\n 26\n 27\n 28\n"
    )
    first, second = as_diffs(change)
    assert first == Diff(
        path="/a", old="7\n8\n9\n10\n11\n12\n13\n", new="7\n8\n9\nten\n11\n12\n13\n"
    )
    assert second == Diff(
        path="/a", old="22\n23\n24\n25\n26\n27\n28\n", new="22\n23\n24\n26\n27\n28\n"
    )


def test_text_of_a_new_file_is_stored_only_in_the_call() -> None:
    change = file_change("/a", None, b"one\n", "one\n")
    assert (change.before_sha256, change.patch) == (None, None)
    call = ToolCall(call_id="c", name="write", input={"file_path": "/a", "content": "one\n"})
    content = (Text(text="Wrote /a."), change)
    assert with_texts(content, call) == (Text(text="Wrote /a."), Diff(path="/a", new="one\n"))
    # Without the call, or after a person has changed its input, the text is not known.
    other = ToolCall(call_id="c", name="write", input={"file_path": "/a", "content": "two\n"})
    assert with_texts(content, None) == with_texts(content, other) == content
    assert as_diffs(file_change("/a", None, b"one\n")) == [Diff(path="/a", new="one\n")]


def test_large_change_has_hashes_and_no_patch() -> None:
    after = b"x" * MAX_PATCHED_CHARACTERS
    change = file_change("/a", b"old", after)
    assert (change.patch, change.after_sha256) == (None, sha256(after).hexdigest())
    assert as_diffs(change) == []


@pytest.mark.parametrize(
    "patch", ["", "no hunk", "@@", "@@\n\\ No newline\n", "@@ -1 +1 @@\n\nx\n"]
)
def test_malformed_patch_is_read_without_an_error(patch: str) -> None:
    change = FileChange(path="/a", before_sha256="", after_sha256="", patch=patch)
    assert all(isinstance(diff, Diff) for diff in as_diffs(change))
