"""Encode the changes of files for ACP clients."""

from typing import Any

from segue.acp import v1
from segue.interfaces.acp.versions.encode_v1 import EncoderV1
from segue.interfaces.acp.versions.encode_v2 import EncoderV2
from segue.model.content import Block, FileChange, Text
from segue.model.event import AnyBody, Event, ToolCall, ToolResult
from segue.model.tools.patches import file_change

OLD = "".join(f"{number}\n" for number in range(1, 21))
NEW = OLD.replace("1\n", "one\n", 1).replace("20\n", "")


def diffs(encoder: EncoderV1 | EncoderV2, change: FileChange, input: Any) -> list[Any]:
    """Return the diffs that a client receives for the result of a call."""
    call = ToolCall(call_id="c", name="write", kind="edit", input=input)
    content: tuple[Block, ...] = (Text(text="done"), change)
    bodies: list[AnyBody] = [call, ToolResult(call_id="c", content=content)]
    *_, update = [
        update
        for body in bodies
        for update in encoder.encode_event(Event(seq=1, id="e", at=0, body=body), None)
    ]
    assert update.content[0].content.text == "done"  # type: ignore[union-attr, index]
    return list(update.content[1:])  # type: ignore[union-attr, index]


def test_version_1_has_the_texts_of_each_hunk() -> None:
    first, second = diffs(
        EncoderV1(v1.ClientCapabilities()), file_change("/a", OLD.encode(), NEW.encode()), {}
    )
    assert (first.path, first.old_text, first.new_text) == ("/a", "1\n2\n3\n4\n", "one\n2\n3\n4\n")
    assert (second.old_text, second.new_text) == ("17\n18\n19\n20\n", "17\n18\n19\n")


def test_version_2_has_the_stored_patch_with_headers() -> None:
    change = file_change("/a", OLD.encode(), NEW.encode())
    (diff,) = diffs(EncoderV2(), change, {})
    assert diff.changes[0].operation == "modify"
    assert diff.patch.text == f"diff --git a/a b/a\n--- a/a\n+++ b/a\n{change.patch}"


def test_new_file_has_the_text_of_its_call() -> None:
    change = file_change("/a", None, b"text\n", "text\n")
    assert change.patch is None
    (first,) = diffs(EncoderV1(v1.ClientCapabilities()), change, {"content": "text\n"})
    assert (first.path, first.old_text, first.new_text) == ("/a", None, "text\n")
    (second,) = diffs(EncoderV2(), change, {"content": "text\n"})
    assert second.changes[0].operation == "add"
    assert second.patch.text == (
        "diff --git a/a b/a\nnew file mode 100644\n--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+text\n"
    )


def test_change_without_a_patch_has_no_diff() -> None:
    large = FileChange(path="/a", before_sha256="0", after_sha256="1")
    assert (
        diffs(EncoderV1(v1.ClientCapabilities()), large, {}) == diffs(EncoderV2(), large, {}) == []
    )
