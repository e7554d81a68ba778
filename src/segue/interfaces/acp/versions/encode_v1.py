"""Encode events for protocol version 1, where chunks are appended to messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import UNSET

from segue.acp import v1, wire
from segue.acp.content import write_blocks
from segue.interfaces.acp.meta import NAMESPACE
from segue.model.content import Content, Diff, FileChange, Text
from segue.model.event import (
    AgentMessage,
    AgentThought,
    Compacted,
    ConfigChanged,
    Delta,
    Event,
    Failed,
    InfoChanged,
    Interrupted,
    PlanChanged,
    StatusChanged,
    ThreadChanged,
    ThreadStarted,
    ToolCall,
    ToolCallChanged,
    ToolResult,
    UserMessage,
)
from segue.model.requests.spans import request_end
from segue.model.session import Session
from segue.model.tools.changes import apply_change
from segue.model.tools.patches import as_diffs

from . import options
from .content import (
    NOT_REPLAYED,
    changed_call_fields,
    encode_compaction,
    encode_current_info,
    encode_info,
    encode_plan_entry,
    encode_thread,
    encode_tool_content,
    encode_turn_end,
    encode_usage,
    offers_changed,
    shown_terminal,
    text_block,
    tool_call_fields,
)
from .forwarding import meta_of, turn_error, with_own_mode

_CHUNKS: dict[type, type[v1.UserMessageChunk | v1.AgentMessageChunk | v1.AgentThoughtChunk]] = {
    UserMessage: v1.UserMessageChunk,
    AgentMessage: v1.AgentMessageChunk,
    AgentThought: v1.AgentThoughtChunk,
}


# Unstable updates for clients that show subagents.
_SUBAGENT_UPDATES = ("subagent_update", "session_message", "session_message_chunk")


class EncoderV1:
    """Encodes the events of one session for one client."""

    def __init__(self, capabilities: v1.ClientCapabilities) -> None:
        """Create an encoder for a client with these capabilities."""
        self._capabilities = capabilities
        self._client_session = capabilities.session or v1.ClientSession()
        self._calls: dict[str, ToolCall] = {}  # calls that have not ended
        self._settings: tuple[Any, Any, Any] = (None, None, None)  # mode, options, commands
        self._streamed_lengths: dict[str, int] = {}  # characters sent as deltas, by message id
        self._replayed_end: Event | None = None  # the last error or interruption in a replay

    def encode_replayed(self, event: Event) -> Iterator[v1.Update]:
        """Encode an event of the history that a client loads.

        A live client learns from the response to its prompt that the turn failed or was cancelled.
        In a replay a message says it.
        """
        match event.body:
            case Failed(retry="exhausted" | "terminal", server=None) | Interrupted():
                self._replayed_end = event
            case AgentMessage() | ToolCall() | StatusChanged(stop_reason="end_turn"):
                self._replayed_end = None
            case StatusChanged(status="idle" | "terminated", stop_reason="error" | "cancelled"):
                yield from self._encode_replayed_end(event)
            case UserMessage():  # other tools do not store that a turn has ended
                yield from self._encode_replayed_end()
        if not isinstance(event.body, NOT_REPLAYED):
            yield from self.encode_event(event, None)

    def _encode_replayed_end(self, ended: Event | None = None) -> Iterator[v1.Update]:
        """Encode why a replayed turn ended. `ended` is its end, if the history has it."""
        event, self._replayed_end = self._replayed_end or ended, None
        if event is None:
            return
        meta: dict[str, Any] = {"stopReason": "cancelled"}
        text = "The turn was cancelled."
        match event.body:
            case Interrupted(reason="cancelled") | StatusChanged(stop_reason="cancelled"):
                pass
            case Interrupted(reason=reason):
                meta, text = {"stopReason": "error"}, f"The turn was interrupted: {reason}"
            case body:
                error = turn_error(body if isinstance(body, Failed) else None)
                meta = {"stopReason": "error", "error": error.to_wire()}
                text = f"The turn failed: {error.message}"
        yield v1.AgentMessageChunk(
            content=text_block(f"[{text}]"), message_id=event.id, meta={NAMESPACE: meta}
        )

    def encode_created(self, session: Session) -> Iterator[wire.SessionUpdate]:
        """Encode the commands of a session, which the response has no field for."""
        if commands := options.commands_v1(session):
            yield v1.AvailableCommandsUpdate(available_commands=commands)

    def encode_opened(self, session: Session) -> Iterator[v1.Update]:
        """Encode how the last turn failed, and the commands, title and time that end a replay."""
        if session.turn is None:
            yield from self._encode_replayed_end()
        yield from self.encode_created(session)
        yield encode_current_info(session)

    def encode_state(self, session: Session) -> Iterator[wire.SessionUpdate]:
        """Return no updates: this version has none for the state."""
        return iter(())

    def encode_notice(
        self, severity: str, title: str, description: str
    ) -> Iterator[wire.SessionUpdate]:
        """Encode a notice if the client supports notices."""
        if self._client_session.notices is not None:
            yield wire.Notice(severity=severity, title=title, description=description)

    def resume_message(self, message_id: str, length: int) -> None:
        """Continue an unfinished message of which the client has received `length` characters."""
        self._streamed_lengths[message_id] = length

    def encode_delta(self, delta: Delta) -> Iterator[wire.SessionUpdate]:
        """Encode a live piece of a message, and remember how much of the message was sent."""
        chunk = v1.AgentThoughtChunk if delta.kind == "thought" else v1.AgentMessageChunk
        self._streamed_lengths[delta.message] = delta.offset + len(delta.text)
        yield chunk(content=text_block(delta.text), message_id=delta.message)

    def encode_forwarded(
        self, payload: Mapping[str, Any], session: Session
    ) -> Iterator[dict[str, Any]]:
        """Return the update of an agent, unless the client does not support it."""
        update, supported = payload["update"], self._client_session
        if message := payload.get("message"):
            self._streamed_lengths[message] = payload["end"]
        if "session" in payload and self._capabilities.subagents is None:
            return
        match update.get("sessionUpdate"):
            case "notice" if supported.notices is None:
                return
            case "compaction_update" | "compaction_summary_chunk" if supported.compaction is None:
                return
            case "plan_update" | "plan_removed" if self._capabilities.plan is None:
                return
            case kind if kind in _SUBAGENT_UPDATES and self._capabilities.subagents is None:
                return
            case "config_option_update":
                update = with_own_mode(update, session, options.config_v1(session, supported))
        yield update

    def note_result(self, result: Mapping[str, Any]) -> None:
        """Do nothing: the response to the prompt has the result."""

    def encode_event(self, event: Event, session: Session | None) -> Iterator[v1.Update]:
        """Encode a new event. `session` is the session after it, or None during a replay."""
        match event.body:
            case UserMessage() | AgentMessage() | AgentThought() as body:
                yield from self._encode_message(event.id, type(body), body.content)
            case ToolCall() as body:
                self._calls[body.call_id] = body
                content = encode_tool_content(body.content, encode_diff)
                yield v1.ToolCall(**tool_call_fields(body, content))
            case ToolCallChanged() as body:
                if call := self._calls.get(body.call_id):
                    self._calls[body.call_id] = apply_change(call, body)
                fields = changed_call_fields(body, encode_diff)
                if session is not None and (terminal := shown_terminal(body)):
                    fields["content"] = [*fields["content"], terminal]
                yield v1.ToolCallUpdate(**fields)
            case ToolResult() as body:
                call = self._calls.pop(body.call_id, None)
                yield v1.ToolCallUpdate(
                    tool_call_id=body.call_id,
                    status="completed" if body.status == "completed" else "failed",
                    content=[*encode_tool_content(body.content, encode_diff, call)] or UNSET,
                    raw_output=UNSET if body.output is None else body.output,
                    meta=meta_of(body),
                )
            case PlanChanged() as body:
                entries = [entry for entry in body.entries if entry.status != "cancelled"]
                yield v1.Plan(entries=[encode_plan_entry(entry) for entry in entries])
            case InfoChanged() as body:
                yield from encode_info(body, session)
            case ConfigChanged() as body if session is not None:
                if body.mode is not UNSET or offers_changed(body):
                    yield from self._encode_settings(session)
            case StatusChanged(status="idle", turn=turn) if turn is not None:
                if session is not None and session.turn is None:
                    yield encode_turn_end(session)
            case ThreadStarted() | ThreadChanged() as body:
                if self._capabilities.subagents is not None:
                    yield from encode_thread(body, session)
            case Compacted() as body if self._client_session.compaction is not None:
                yield encode_compaction(event.id, body)
            case Failed() as body if self._client_session.notices is not None:
                severity = "warning" if body.retry == "retrying" else "error"
                yield wire.Notice(severity=severity, title=body.message or "Error")
        if (end := request_end(event.body)) is not None:
            yield from encode_usage(end, session)

    def note_settings(self, session: Session) -> None:
        """Remember the mode, options and commands of a session that the client knows."""
        config = options.config_v1(session, self._client_session)
        option = options.mode_option(session)
        mode = None if option is None else option["value"]
        self._settings = (mode, config, options.commands_v1(session))

    def _encode_settings(self, session: Session) -> Iterator[wire.SessionUpdate]:
        """Encode the mode, options and commands that have changed."""
        known_mode, known_config, known_commands = self._settings
        self.note_settings(session)
        mode, config, commands = self._settings
        if mode is not None and mode != known_mode:
            yield v1.CurrentModeUpdate(current_mode_id=mode)
        if config != known_config:
            yield v1.ConfigOptionUpdate(config_options=config)
        if commands != known_commands:
            yield v1.AvailableCommandsUpdate(available_commands=commands)

    def _encode_message(
        self, message_id: str, body_type: type, content: Content
    ) -> Iterator[wire.SessionUpdate]:
        """Encode the part of a message that was not sent as deltas."""
        sent = self._streamed_lengths.pop(message_id, 0)
        chunk = _CHUNKS[body_type]
        for block in content:
            if sent and isinstance(block, Text):
                unsent, sent = block.text[sent:], max(0, sent - len(block.text))
                if unsent:
                    yield chunk(content=text_block(unsent), message_id=message_id)
                continue
            for wire_block in write_blocks([block]):
                yield chunk(content=wire_block, message_id=message_id)


def encode_diff(block: Diff | FileChange) -> Iterator[v1.ToolDiff]:
    """Encode a diff, or each hunk of a patch, as the texts before and after it."""
    for diff in [block] if isinstance(block, Diff) else as_diffs(block):
        yield v1.ToolDiff(path=diff.path, old_text=diff.old, new_text=diff.new)
