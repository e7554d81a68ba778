"""Encode events for protocol version 2, where an update replaces a whole message by its id."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import UNSET

from segue.acp import v2, wire
from segue.acp.content import write_blocks
from segue.model.content import Diff, FileChange
from segue.model.event import (
    AgentMessage,
    AgentThought,
    Compacted,
    ConfigChanged,
    Delta,
    Event,
    Failed,
    InfoChanged,
    PlanChanged,
    StatusChanged,
    ThreadChanged,
    ThreadStarted,
    ToolCall,
    ToolCallChanged,
    ToolResult,
    UserMessage,
)
from segue.model.lifecycle import StopReason
from segue.model.requests.spans import request_end
from segue.model.session import Session
from segue.model.tools.changes import apply_change
from segue.model.tools.patches import patch_lines

from . import options
from .content import (
    NOT_REPLAYED,
    changed_call_fields,
    encode_compaction,
    encode_current_info,
    encode_info,
    encode_plan_entry,
    encode_thread,
    encode_tokens,
    encode_tool_content,
    encode_turn_end,
    encode_usage,
    offers_changed,
    text_block,
    tool_call_fields,
)
from .forwarding import meta_of, turn_error, with_own_mode

_MESSAGES: dict[type, type[v2.UserMessage | v2.AgentMessage | v2.AgentThought]] = {
    UserMessage: v2.UserMessage,
    AgentMessage: v2.AgentMessage,
    AgentThought: v2.AgentThought,
}


class EncoderV2:
    """Encodes the events of one session for one client."""

    def __init__(self) -> None:
        self._failure: Failed | None = None  # the last error of the current turn
        self._result: dict[str, Any] = {}  # what only an agent knows about the current turn
        self._calls: dict[str, ToolCall] = {}  # calls that have not ended
        self._settings: tuple[Any, Any] = (None, None)  # options and commands
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

    def encode_state(self, session: Session) -> Iterator[wire.SessionUpdate]:
        """Encode the state of a session, without any effect on later updates."""
        yield v2.StateUpdate(state=state_of(session))

    def encode_notice(
        self, severity: str, title: str, description: str
    ) -> Iterator[wire.SessionUpdate]:
        """Encode a notice for people."""
        yield wire.Notice(severity=severity, title=title, description=description)

    def resume_message(self, message_id: str, length: int) -> None:
        """Do nothing: the finished message replaces what the client has received."""

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

    def encode_forwarded(
        self, payload: Mapping[str, Any], session: Session
    ) -> Iterator[dict[str, Any]]:
        """Return the update of an agent."""
        update = payload["update"]
        if update.get("sessionUpdate") == "config_option_update":
            update = with_own_mode(update, session, options.config_v2(session))
        yield update

    def note_result(self, result: Mapping[str, Any]) -> None:
        """Remember the fields of an agent's last state that only the agent knows."""
        fields = {"background": "background", "usage": "usage", "_meta": "meta"}
        self._result = {fields[name]: value for name, value in result.items() if name in fields}
        if str(reason := result.get("stopReason")).startswith("_"):  # the agent's own
            self._result["stop_reason"] = reason

    def encode_event(self, event: Event, session: Session | None) -> Iterator[v2.Update]:
        """Encode a new event. `session` is the session after it, or None during a replay."""
        match event.body:
            case UserMessage() | AgentMessage() | AgentThought() as body:
                message = _MESSAGES[type(body)]
                yield message(message_id=event.id, content=write_blocks(body.content))
            case ToolCall() as body:
                self._calls[body.call_id] = body
                content = encode_tool_content(body.content, encode_diff)
                yield v2.ToolCallUpdate(**tool_call_fields(body, content))
            case ToolCallChanged() as body:
                if call := self._calls.get(body.call_id):
                    self._calls[body.call_id] = apply_change(call, body)
                yield v2.ToolCallUpdate(**changed_call_fields(body, encode_diff))
            case ToolResult() as body:
                call = self._calls.pop(body.call_id, None)
                yield v2.ToolCallUpdate(
                    tool_call_id=body.call_id,
                    status=body.status,
                    content=encode_tool_content(body.content, encode_diff, call) or UNSET,
                    raw_output=UNSET if body.output is None else body.output,
                    meta=meta_of(body),
                )
            case PlanChanged() as body:
                entries = [encode_plan_entry(entry) for entry in body.entries]
                yield v2.PlanUpdate(plan=v2.PlanItems(plan_id=body.plan_id, entries=entries))
            case InfoChanged() as body:
                yield from encode_info(body, session)
            case ConfigChanged() as body if session is not None:
                if body.mode is not UNSET or offers_changed(body):
                    yield from self._encode_settings(session)
            case StatusChanged() as body:
                yield from self._encode_status(body, session)
            case ThreadStarted() | ThreadChanged() as body:
                yield from encode_thread(body, session)
            case Compacted() as body:
                yield encode_compaction(event.id, body)
            case Failed(retry="retrying", message=message):
                yield wire.Notice(severity="warning", title=message or "Trying again")
            case Failed() as body:
                self._failure = body
        if (end := request_end(event.body)) is not None:
            yield from encode_usage(end, session)

    def note_settings(self, session: Session) -> None:
        """Remember the options and commands of a session that the client knows."""
        self._settings = (options.config_v2(session), options.commands_v2(session))

    def _encode_settings(self, session: Session) -> Iterator[wire.SessionUpdate]:
        """Encode the options and commands that have changed."""
        known_config, known_commands = self._settings
        self.note_settings(session)
        config, commands = self._settings
        if config != known_config:
            yield v2.ConfigOptionUpdate(config_options=config)
        if commands != known_commands:
            yield v2.AvailableCommandsUpdate(available_commands=commands)

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
                if (usage := encode_tokens(session)) is not UNSET:
                    self._result = {"usage": usage, **self._result}
            yield self._encode_idle(body.stop_reason, body.message)

    def _encode_idle(self, reason: StopReason | None, message: str | None) -> v2.StateUpdate:
        """Encode the end of a turn."""
        failure, self._failure = self._failure, None
        result, self._result = self._result, {}
        own_reason = result.pop("stop_reason", reason)
        if reason is None:
            return v2.StateUpdate(state="idle", **result)
        if reason == "budget_reached":  # unknown to the protocol; this is the closest
            return v2.StateUpdate(state="idle", stop_reason="max_turn_requests")
        if reason != "error":
            if reason == "end_turn":
                reason = own_reason
            return v2.StateUpdate(state="idle", stop_reason=reason, **result)
        error = turn_error(failure or Failed(message=message or "")).to_wire()
        return v2.StateUpdate(state="idle", stop_reason="error", error=error, **result)


def state_of(session: Session) -> str:
    """Return the protocol's state of a session."""
    if session.pending:
        return "requires_action"
    return "running" if session.status in ("running", "rescheduling") else "idle"


def encode_diff(block: Diff | FileChange) -> Iterator[v2.ToolDiff]:
    """Encode a diff as a Git patch; a change without a patch is left out."""
    if isinstance(block, Diff):
        is_new, patch = block.old is None, "".join(patch_lines(block.old or "", block.new))
    elif block.patch is not None:
        is_new, patch = block.before_sha256 is None, block.patch
    else:
        return
    operation = "add" if is_new else "modify"
    change = v2.DiffChange(operation=operation, path=block.path, file_type="text")
    text = _git_header(block.path, is_new=is_new, has_hunks=bool(patch)) + patch
    yield v2.ToolDiff(changes=[change], patch=v2.DiffPatch(format="git_patch", text=text))


def _git_header(path: str, *, is_new: bool, has_hunks: bool) -> str:
    """Return what `git diff` writes before the hunks of a file."""
    name = path.lstrip(os.sep)
    lines = [f"diff --git a/{name} b/{name}\n"]
    if is_new:
        lines.append("new file mode 100644\n")
    if has_hunks:
        lines.append(f"--- {'/dev/null' if is_new else f'a/{name}'}\n+++ b/{name}\n")
    return "".join(lines)
