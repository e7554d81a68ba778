"""Count the lines that the tool calls of a session added and removed."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET
from msgspec.structs import replace

from segue.model.content import Diff, FileChange
from segue.model.event import Body, ToolCall, ToolCallChanged, ToolResult
from segue.model.session import ChangedLines

from .arguments import changes_of
from .patches import find_changes, hunks

MAX_OPEN_CALLS = 100  # the lines of further calls are not kept; only their results count

LineCount = tuple[int, int]  # added, removed


def count_lines(lines: ChangedLines, body: Body) -> ChangedLines:
    """Return the sums after an event. A call counts once it is completed."""
    if isinstance(body, ToolCall):
        return _with_open_call(lines, body)
    if isinstance(body, ToolCallChanged):
        fields = {name: getattr(body, name) for name in ("kind", "input", "content", "locations")}
        known = {name: value for name, value in fields.items() if value is not UNSET}
        return _with_open_call(lines, ToolCall(call_id=body.call_id, name="", **known))
    if not isinstance(body, ToolResult):
        return lines
    planned = lines.open.get(body.call_id, (0, 0))
    if body.call_id in lines.open:
        others = {call: count for call, count in lines.open.items() if call != body.call_id}
        lines = replace(lines, open=others)
    if body.status != "completed":
        return lines
    # A new file's text may be only in the input of the call.
    changes = [
        change
        for change in changes_of(None, body)
        if isinstance(change, Diff) or change.patch is not None
    ]
    added, removed = _count(changes) if changes else planned
    if not added and not removed:
        return lines
    return replace(lines, added=lines.added + added, removed=lines.removed + removed)


def _with_open_call(lines: ChangedLines, call: ToolCall) -> ChangedLines:
    """Return the sums with the lines that a call will change."""
    changes = changes_of(call, None)
    if not changes or (len(lines.open) >= MAX_OPEN_CALLS and call.call_id not in lines.open):
        return lines
    return replace(lines, open={**lines.open, call.call_id: _count(changes)})


def _count(changes: Iterable[Diff | FileChange]) -> LineCount:
    counts = [_count_patch(c) if isinstance(c, FileChange) else _count_diff(c) for c in changes]
    return sum(added for added, _ in counts), sum(removed for _, removed in counts)


def _count_patch(change: FileChange) -> LineCount:
    signs = [line[0] for hunk in hunks(change.patch or "") for line in hunk.lines]
    return signs.count("+"), signs.count("-")


def _count_diff(diff: Diff) -> LineCount:
    after = diff.new.splitlines()
    if diff.old is None:
        return len(after), 0
    before = diff.old.splitlines()
    groups = find_changes(before, after)
    if groups is None:
        return len(after), len(before)
    changes = [change for group in groups for change in group if change[0] != "equal"]
    return (
        sum(new_end - new_start for _, _, _, new_start, new_end in changes),
        sum(old_end - old_start for _, old_start, old_end, _, _ in changes),
    )
