"""Encode events for protocol version 2, where an update replaces a whole message by its id."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from msgspec import UNSET

from segue.acp import v2, wire
from segue.acp.content import write_blocks
from segue.acp.rpc import INTERNAL_ERROR
from segue.model.content import Diff
from segue.model.event import (
    AgentMessage,
    AgentThought,
    Compacted,
    ConfigChanged,
    Delta,
    Event,
    Failed,
    InfoChanged,
    ModelCalled,
    PlanChanged,
    StatusChanged,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.lifecycle import StopReason
from segue.model.session import Session
from segue.render.diffs import Change, find_changes

from . import options
from .content import (
    NOT_REPLAYED,
    encode_compaction,
    encode_current_info,
    encode_info,
    encode_plan_entry,
    encode_tool_content,
    encode_turn_end,
    encode_usage,
    offers_changed,
    text_block,
    tool_call_fields,
)

_MESSAGES: dict[type, type[v2.UserMessage | v2.AgentMessage | v2.AgentThought]] = {
    UserMessage: v2.UserMessage,
    AgentMessage: v2.AgentMessage,
    AgentThought: v2.AgentThought,
}


class EncoderV2:
    """Encodes the events of one session for one client."""

    def __init__(self) -> None:
        self._failure: str | None = None  # the last error of the current turn
        self._attached_during_turn = False  # and no message has started since

    def encode_replayed(self, event: Event) -> Iterator[v2.Update]:
        """Encode an event of the history that a client loads."""
        if not isinstance(event.body, NOT_REPLAYED):
            yield from self.encode_event(event, None)

    def encode_created(self, session: Session) -> Iterator[wire.SessionUpdate]:
        """Return no updates: the response contains everything."""
        return iter(())

    def encode_opened(self, session: Session) -> Iterator[wire.SessionUpdate]:
        """Encode the title and the state of a session that was opened."""
        yield encode_current_info(session)
        yield v2.StateUpdate(state=state_of(session))
        self._attached_during_turn = session.turn is not None

    def encode_notice(
        self, severity: str, title: str, description: str
    ) -> Iterator[wire.SessionUpdate]:
        """Encode a notice for people."""
        yield wire.Notice(severity=severity, title=title, description=description)

    def encode_delta(self, delta: Delta) -> Iterator[wire.SessionUpdate]:
        """Encode a live piece of a message."""
        thought = delta.kind == "thought"
        if self._attached_during_turn and delta.offset == 0:
            # The client may have received a part of this message before; the message restarts.
            self._attached_during_turn = False
            message = v2.AgentThought if thought else v2.AgentMessage
            yield message(message_id=delta.message, content=[])
        chunk = v2.AgentThoughtChunk if thought else v2.AgentMessageChunk
        yield chunk(content=text_block(delta.text), message_id=delta.message)

    def encode_event(self, event: Event, session: Session | None) -> Iterator[v2.Update]:
        """Encode a new event. `session` is the session after it, or None during a replay."""
        match event.body:
            case UserMessage() | AgentMessage() | AgentThought() as body:
                message = _MESSAGES[type(body)]
                yield message(message_id=event.id, content=write_blocks(body.content))
            case ToolCall() as body:
                content = encode_tool_content(body.content, encode_diff)
                yield v2.ToolCallUpdate(**tool_call_fields(body, content))
            case ToolResult() as body:
                yield v2.ToolCallUpdate(
                    tool_call_id=body.call_id,
                    status=body.status,
                    content=encode_tool_content(body.content, encode_diff) or UNSET,
                    raw_output=UNSET if body.output is None else body.output,
                )
            case PlanChanged() as body:
                entries = [encode_plan_entry(entry) for entry in body.entries]
                yield v2.PlanUpdate(plan=v2.PlanItems(plan_id=body.plan_id, entries=entries))
            case InfoChanged() as body:
                yield from encode_info(body, session)
            case ConfigChanged() as body if session is not None:
                if body.mode is not UNSET or offers_changed(body):
                    yield v2.ConfigOptionUpdate(config_options=options.config_v2(session))
                if offers_changed(body) and (commands := options.commands_v2(session)):
                    yield v2.AvailableCommandsUpdate(available_commands=commands)
            case StatusChanged() as body:
                yield from self._encode_status(body, session)
            case ModelCalled() as body:
                yield from encode_usage(body, session)
            case Compacted() as body:
                yield encode_compaction(event.id, body)
            case Failed(retry="retrying", message=message):
                yield wire.Notice(severity="warning", title=message or "Trying again")
            case Failed() as body:
                self._failure = body.message

    def _encode_status(
        self, body: StatusChanged, session: Session | None
    ) -> Iterator[wire.SessionUpdate]:
        if body.status in ("running", "rescheduling"):
            yield v2.StateUpdate(state="running")
        elif body.stop_reason == "requires_action":
            yield v2.StateUpdate(state="requires_action")
        else:
            if session is not None:
                yield encode_turn_end(session)
            yield self._encode_idle(body.stop_reason, body.message)

    def _encode_idle(self, reason: StopReason | None, message: str | None) -> v2.StateUpdate:
        """Encode the end of a turn."""
        failure, self._failure = self._failure, None
        if reason is None:
            return v2.StateUpdate(state="idle")
        if reason == "budget_reached":  # unknown to the protocol; this is the closest
            return v2.StateUpdate(state="idle", stop_reason="max_turn_requests")
        if reason != "error":
            return v2.StateUpdate(state="idle", stop_reason=reason)
        error = {
            "code": INTERNAL_ERROR,
            "message": failure or message or "the turn failed",
        }
        return v2.StateUpdate(state="idle", stop_reason="error", error=error)


def state_of(session: Session) -> str:
    """Return the protocol's state of a session."""
    if session.pending:
        return "requires_action"
    return "running" if session.status in ("running", "rescheduling") else "idle"


def encode_diff(block: Diff) -> v2.ToolDiff:
    """Encode a diff as a Git patch."""
    operation = "add" if block.old is None else "modify"
    change = v2.DiffChange(operation=operation, path=block.path, file_type="text")
    return v2.ToolDiff(
        changes=[change], patch=v2.DiffPatch(format="git_patch", text=_git_patch(block))
    )


def _git_patch(block: Diff) -> str:
    """Return a diff in the format of `git diff`."""
    name = block.path.lstrip(os.sep)
    before = "/dev/null" if block.old is None else f"a/{name}"
    lines = [f"diff --git a/{name} b/{name}\n"]
    if block.old is None:
        lines.append("new file mode 100644\n")
    lines += _hunks(
        (block.old or "").splitlines(keepends=True),
        block.new.splitlines(keepends=True),
        f"--- {before}\n+++ b/{name}\n",
    )
    return "".join(lines)


def _hunks(before: list[str], after: list[str], header: str) -> Iterator[str]:
    """Yield the changes in the format of `git diff`; all lines if they cannot be compared."""
    changes: Iterable[Sequence[Change]] | None = find_changes(before, after)
    if changes is None:
        changes = [[("replace", 0, len(before), 0, len(after))]]
    for group in changes:
        yield header
        header = ""
        first, last = group[0], group[-1]
        old_range, new_range = _line_range(first[1], last[2]), _line_range(first[3], last[4])
        yield f"@@ -{old_range} +{new_range} @@\n"
        for tag, old_start, old_end, new_start, new_end in group:
            sign = " " if tag == "equal" else "-"
            yield from (_patch_line(sign, line) for line in before[old_start:old_end])
            if tag != "equal":
                yield from (_patch_line("+", line) for line in after[new_start:new_end])


def _line_range(start: int, end: int) -> str:
    """Return a range of lines as a hunk's header has it."""
    if end - start == 1:
        return str(start + 1)
    return f"{start + 1 if end > start else start},{end - start}"


def _patch_line(sign: str, line: str) -> str:
    ending = "" if line.endswith("\n") else "\n\\ No newline at end of file\n"
    return f"{sign}{line}{ending}"
