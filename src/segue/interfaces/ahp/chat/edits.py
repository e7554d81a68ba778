"""Results of tool calls and the changes of files in them, as clients get them."""

from __future__ import annotations

from typing import Any

from segue.interfaces.ahp.protocol import session_uri
from segue.model.content import Content, Diff, FileChange, Image, plain_text
from segue.model.event import ToolCall, ToolResult
from segue.model.tools.patches import as_diffs, with_texts


def _diffs(content: Content, call: ToolCall | None) -> list[Diff]:
    """Return the changes of files in a content, one for each hunk of a patch."""
    diffs: list[Diff] = []
    for block in with_texts(content, call):
        if isinstance(block, Diff):
            diffs.append(block)
        elif isinstance(block, FileChange):
            diffs += as_diffs(block)
    return diffs


def result_content(
    session_id: str, seq: int, call: ToolCall, result: ToolResult
) -> list[dict[str, Any]]:
    """Return the content of a tool result: its text, pictures and changes of files."""
    blocks: list[dict[str, Any]] = []
    texts = tuple(
        block for block in result.content if not isinstance(block, Image | Diff | FileChange)
    )
    if text := plain_text(texts):
        blocks.append({"type": "text", "text": text})
    for block in result.content:
        if isinstance(block, Image) and block.data:
            image = {"data": block.data, "contentType": block.mime}
            blocks.append({"type": "embeddedResource", **image})
    diffs = _diffs(result.content, call) or _diffs(call.content, call)
    content_uri = f"{session_uri(session_id)}/content/{seq}"
    blocks += [
        {"type": "fileEdit", **_file_edit(f"{content_uri}/{number}", diff)}
        for number, diff in enumerate(diffs)
    ]
    return blocks


def proposed_edits(session_id: str, call: ToolCall) -> list[dict[str, Any]]:
    """Return the changes of files that a call asks for."""
    content_uri = f"{session_uri(session_id)}/proposed/{call.call_id}"
    return [
        _file_edit(f"{content_uri}/{number}", diff)
        for number, diff in enumerate(_diffs(call.content, call))
    ]


def _file_edit(content_uri: str, diff: Diff) -> dict[str, Any]:
    file = f"file://{diff.path}"
    edit: dict[str, Any] = {"after": {"uri": file, "content": {"uri": f"{content_uri}/after"}}}
    if diff.old is not None:
        edit["before"] = {"uri": file, "content": {"uri": f"{content_uri}/before"}}
    old, new = (diff.old or "").splitlines(), diff.new.splitlines()
    edit["diff"] = {
        "added": sum(line not in old for line in new),
        "removed": sum(line not in new for line in old),
    }
    return edit


def text_of_edit(diffs: list[Diff], number: int, side: str) -> str | None:
    """Return one side of a change that `_file_edit` refers to, or None if there is none."""
    if not 0 <= number < len(diffs):
        return None
    return diffs[number].new if side == "after" else diffs[number].old


def diffs_of_result(call: ToolCall, result: ToolResult) -> list[Diff]:
    """Return the changes of files that a finished call shows."""
    return _diffs(result.content, call) or _diffs(call.content, call)


def diffs_of_call(call: ToolCall) -> list[Diff]:
    """Return the changes of files that a call asks for."""
    return _diffs(call.content, call)
