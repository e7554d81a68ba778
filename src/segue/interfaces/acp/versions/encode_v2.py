"""Events as version 2 shows them: whole messages, replaced by their id."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator

from msgspec import UNSET

from segue.acp import v2, wire
from segue.acp.content import write_blocks
from segue.acp.rpc import INTERNAL_ERROR
from segue.interfaces.acp.meta import info_meta, turn_meta
from segue.model import clock
from segue.model.content import Content, Diff
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

from . import options
from .content import NOT_REPLAYED, cost, locations, text_block

_MESSAGES: dict[type, type[v2.UserMessage | v2.AgentMessage | v2.AgentThought]] = {
    UserMessage: v2.UserMessage,
    AgentMessage: v2.AgentMessage,
    AgentThought: v2.AgentThought,
}


class View2:
    """What one connection is shown of one session."""

    def __init__(self) -> None:
        self._failure: str | None = None
        self._joined = False  # in the middle of a turn

    def replay(self, event: Event) -> Iterator[wire.SessionUpdate | v2.ToolCallUpdate]:
        """The conversation as it was; how it was named and run is told once, at the end."""
        if not isinstance(event.body, NOT_REPLAYED):
            yield from self.show(event, None)

    def made(self, session: Session) -> Iterator[wire.SessionUpdate]:
        """Nothing: the answer says it all."""
        return iter(())

    def ready(self, session: Session) -> Iterator[wire.SessionUpdate]:
        """What opening a session ends with: its name, and the state it is in."""
        yield wire.SessionInfoUpdate(
            title=session.title, updated_at=clock.to_rfc3339(session.active_at)
        )
        yield v2.StateUpdate(state=state_of(session))
        self._joined = session.turn is not None

    def notice(self, severity: str, title: str, description: str) -> Iterator[wire.SessionUpdate]:
        yield wire.Notice(severity=severity, title=title, description=description)

    def delta(self, delta: Delta) -> Iterator[wire.SessionUpdate]:
        thought = delta.kind == "thought"
        if self._joined and delta.offset == 0:
            # The client may have seen some of this message before; it begins anew.
            self._joined = False
            whole = v2.AgentThought if thought else v2.AgentMessage
            yield whole(message_id=delta.message, content=[])
        chunk = v2.AgentThoughtChunk if thought else v2.AgentMessageChunk
        yield chunk(content=text_block(delta.text), message_id=delta.message)

    def show(
        self, event: Event, session: Session | None
    ) -> Iterator[wire.SessionUpdate | v2.ToolCallUpdate]:
        match event.body:
            case UserMessage() | AgentMessage() | AgentThought() as body:
                message = _MESSAGES[type(body)]
                yield message(message_id=event.id, content=write_blocks(body.content))
            case ToolCall() as body:
                yield v2.ToolCallUpdate(
                    tool_call_id=body.call_id,
                    name=body.name,
                    title=body.title or body.name,
                    kind=body.kind,
                    status="in_progress",
                    content=tool_content(body.content) or UNSET,
                    locations=locations(body) or UNSET,
                    raw_input=UNSET if body.input is None else body.input,
                )
            case ToolResult() as body:
                yield v2.ToolCallUpdate(
                    tool_call_id=body.call_id,
                    status=body.status,
                    content=tool_content(body.content) or UNSET,
                    raw_output=UNSET if body.output is None else body.output,
                )
            case PlanChanged() as body:
                entries = [
                    wire.PlanEntry(
                        content=entry.content, priority=entry.priority, status=entry.status
                    )
                    for entry in body.entries
                ]
                yield v2.PlanUpdate(plan=v2.PlanItems(plan_id=body.plan_id, entries=entries))
            case InfoChanged() as body:
                shown = body.title is not UNSET and (session is None or session.title == body.title)
                meta = info_meta(body)
                if shown or meta:
                    title = body.title if shown else UNSET
                    yield wire.SessionInfoUpdate(title=title, meta=meta or None)
            case ConfigChanged() as body if session is not None:
                offered = body.options is not UNSET and options.OFFERED in body.options
                if body.mode is not UNSET or offered:
                    yield v2.ConfigOptionUpdate(config_options=options.config_v2(session))
                if offered and (commands := options.commands_v2(session)):
                    yield v2.AvailableCommandsUpdate(available_commands=commands)
            case StatusChanged() as body:
                yield from self._moved(body, session)
            case ModelCalled(context_used=used, context_size=size) if used and size:
                yield wire.UsageUpdate(used=used, size=size, cost=cost(session))
            case Compacted() as body:
                yield wire.CompactionUpdate(
                    compaction_id=event.id,
                    status="completed",
                    summary=write_blocks(body.summary) or UNSET,
                )
            case Failed(retry="retrying", message=message):
                yield wire.Notice(severity="warning", title=message or "Trying again")
            case Failed() as body:
                self._failure = body.message

    def _moved(self, body: StatusChanged, session: Session | None) -> Iterator[wire.SessionUpdate]:
        if body.status in ("running", "rescheduling"):
            yield v2.StateUpdate(state="running")
        elif body.stop_reason == "requires_action":
            yield v2.StateUpdate(state="requires_action")
        else:
            if session is not None:
                active = clock.to_rfc3339(session.active_at)
                yield wire.SessionInfoUpdate(updated_at=active, meta=turn_meta(session))
            yield self._rest(body.stop_reason, body.message)

    def _rest(self, reason: StopReason | None, message: str | None) -> v2.StateUpdate:
        failure, self._failure = self._failure, None
        if reason is None:
            return v2.StateUpdate(state="idle")
        if reason == "budget_reached":  # of what the protocol knows, the nearest
            return v2.StateUpdate(state="idle", stop_reason="max_turn_requests")
        if reason != "error":
            return v2.StateUpdate(state="idle", stop_reason=reason)
        why = failure or message or "the turn failed"
        error = {"code": INTERNAL_ERROR, "message": why}
        return v2.StateUpdate(state="idle", stop_reason="error", error=error)


def state_of(session: Session) -> str:
    """What a session's agent is doing, in one word."""
    if session.pending:
        return "requires_action"
    return "running" if session.status in ("running", "rescheduling") else "idle"


def tool_content(content: Content) -> list[v2.ToolCallContent]:
    found: list[v2.ToolCallContent] = []
    for block in content:
        if isinstance(block, Diff):
            found.append(_diff(block))
        else:
            found += [wire.ToolContent(content=written) for written in write_blocks([block])]
    return found


def _diff(block: Diff) -> v2.ToolDiff:
    operation = "add" if block.old is None else "modify"
    change = v2.DiffChange(operation=operation, path=block.path, file_type="text")
    return v2.ToolDiff(changes=[change], patch=v2.DiffPatch(format="git_patch", text=_patch(block)))


def _patch(block: Diff) -> str:
    name = block.path.lstrip(os.sep)
    before = "/dev/null" if block.old is None else f"a/{name}"
    lines = [f"diff --git a/{name} b/{name}\n"]
    if block.old is None:
        lines.append("new file mode 100644\n")
    for line in difflib.unified_diff(
        (block.old or "").splitlines(keepends=True),
        block.new.splitlines(keepends=True),
        before,
        f"b/{name}",
    ):
        lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines)
