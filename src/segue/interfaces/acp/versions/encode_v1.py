"""Events as version 1 shows them: chunks that append."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from segue.acp import v1, wire
from segue.acp.content import write_blocks
from segue.interfaces.acp.meta import info_meta, turn_meta
from segue.model import clock
from segue.model.content import Content, Diff, Text
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
from segue.model.session import Session

from . import options
from .content import NOT_REPLAYED, cost, locations, text_block

_CHUNKS: dict[type, type[v1.UserMessageChunk | v1.AgentMessageChunk | v1.AgentThoughtChunk]] = {
    UserMessage: v1.UserMessageChunk,
    AgentMessage: v1.AgentMessageChunk,
    AgentThought: v1.AgentThoughtChunk,
}


class View1:
    """What one connection has been shown of one session."""

    def __init__(self, client: v1.ClientCapabilities) -> None:
        self._session = client.session or v1.ClientSession()
        self._streamed: dict[str, int] = {}

    def replay(self, event: Event) -> Iterator[wire.SessionUpdate]:
        """The conversation as it was; how it was named and run is told once, at the end."""
        if not isinstance(event.body, NOT_REPLAYED):
            yield from self.show(event, None)

    def made(self, session: Session) -> Iterator[wire.SessionUpdate]:
        """What is told of a session once its client knows its id."""
        if commands := options.commands_v1(session):
            yield v1.AvailableCommandsUpdate(available_commands=commands)

    def ready(self, session: Session) -> Iterator[wire.SessionUpdate]:
        """What a replay ends with."""
        yield from self.made(session)
        yield wire.SessionInfoUpdate(
            title=session.title, updated_at=clock.to_rfc3339(session.active_at)
        )

    def notice(self, severity: str, title: str, description: str) -> Iterator[wire.SessionUpdate]:
        if self._session.notices is not None:
            yield wire.Notice(severity=severity, title=title, description=description)

    def delta(self, delta: Delta) -> Iterator[wire.SessionUpdate]:
        chunk = v1.AgentThoughtChunk if delta.kind == "thought" else v1.AgentMessageChunk
        self._streamed[delta.message] = delta.offset + len(delta.text)
        yield chunk(content=text_block(delta.text), message_id=delta.message)

    def show(self, event: Event, session: Session | None) -> Iterator[wire.SessionUpdate]:
        """An event that has just happened; `session` is the row after it."""
        match event.body:
            case UserMessage() | AgentMessage() | AgentThought() as body:
                yield from self._message(event.id, type(body), body.content)
            case ToolCall() as body:
                yield v1.ToolCall(
                    tool_call_id=body.call_id,
                    title=body.title or body.name,
                    name=body.name,
                    kind=body.kind,
                    status="in_progress",
                    content=tool_content(body.content) or UNSET,
                    locations=locations(body) or UNSET,
                    raw_input=UNSET if body.input is None else body.input,
                )
            case ToolResult() as body:
                yield v1.ToolCallUpdate(
                    tool_call_id=body.call_id,
                    status="completed" if body.status == "completed" else "failed",
                    content=tool_content(body.content) or UNSET,
                    raw_output=UNSET if body.output is None else body.output,
                )
            case PlanChanged() as body:
                entries = [entry for entry in body.entries if entry.status != "cancelled"]
                yield v1.Plan(
                    entries=[
                        wire.PlanEntry(
                            content=entry.content, priority=entry.priority, status=entry.status
                        )
                        for entry in entries
                    ]
                )
            case InfoChanged() as body:
                yield from _info(body, session)
            case ConfigChanged() as body if session is not None:
                offered = body.options is not UNSET and options.OFFERED in body.options
                if body.mode is not UNSET or offered:
                    mode = options.mode_option(session)["value"]
                    yield v1.CurrentModeUpdate(current_mode_id=mode)
                    config = options.config_v1(session, self._session)
                    yield v1.ConfigOptionUpdate(config_options=config)
                if offered:
                    yield from self.made(session)
            case StatusChanged(status="idle", turn=turn) if turn is not None:
                if session is not None and session.turn is None:
                    active = clock.to_rfc3339(session.active_at)
                    yield wire.SessionInfoUpdate(updated_at=active, meta=turn_meta(session))
            case ModelCalled(context_used=used, context_size=size) if used and size:
                yield wire.UsageUpdate(used=used, size=size, cost=cost(session))
            case Compacted() as body if self._session.compaction is not None:
                yield wire.CompactionUpdate(
                    compaction_id=event.id,
                    status="completed",
                    summary=write_blocks(body.summary) or UNSET,
                )
            case Failed() as body if self._session.notices is not None:
                severity = "warning" if body.retry == "retrying" else "error"
                yield wire.Notice(severity=severity, title=body.message or "Error")

    def _message(self, id: str, kind: type, content: Content) -> Iterator[wire.SessionUpdate]:
        sent = self._streamed.pop(id, 0)
        chunk = _CHUNKS[kind]
        for block in content:
            if sent and isinstance(block, Text):
                rest, sent = block.text[sent:], max(0, sent - len(block.text))
                if rest:
                    yield chunk(content=text_block(rest), message_id=id)
                continue
            for written in write_blocks([block]):
                yield chunk(content=written, message_id=id)


def _info(body: InfoChanged, session: Session | None) -> Iterator[wire.SessionUpdate]:
    # An automatic title that a person's had precedence over changed nothing.
    shown = body.title is not UNSET and (session is None or session.title == body.title)
    meta = info_meta(body)
    if shown or meta:
        yield wire.SessionInfoUpdate(title=body.title if shown else UNSET, meta=meta or None)


def tool_content(content: Content) -> list[v1.ToolCallContent]:
    found: list[v1.ToolCallContent] = []
    for block in content:
        if isinstance(block, Diff):
            found.append(v1.ToolDiff(path=block.path, old_text=block.old, new_text=block.new))
        else:
            found += [wire.ToolContent(content=written) for written in write_blocks([block])]
    return found
