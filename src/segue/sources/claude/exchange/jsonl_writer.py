"""Compose transcript entries from the events of any session, for Claude Code to resume from.

The same events always give the same entries, ids included, so that a session can be exported,
continued in Claude Code and imported again. A model's API accepts a conversation only if every
tool call is answered right after the message that makes it. So results move up to their calls,
and a call without a result gets one that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import UNSET

from segue.model import ids
from segue.model.anthropic.content_blocks import (
    DIALECT,
    agent_blocks,
    content_blocks,
    result_block,
    usage,
)
from segue.model.content import (
    plain_text,
)
from segue.model.event import (
    AgentMessage,
    AgentThought,
    Body,
    Compacted,
    Event,
    Failed,
    InfoChanged,
    Interrupted,
    ModelCalled,
    SystemMessage,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.model.requests.spans import request_end
from segue.model.tools.prompt_titles import title_change
from segue.sources.claude.conversation.entry_table import KINDS
from segue.sources.claude.format.jsonl import Entry, format_timestamp, message_content
from segue.sources.claude.format.prompt import INTERRUPTION_PREFIX

UNANSWERED = "The session ended before this call did."
INTERRUPTED = f"{INTERRUPTION_PREFIX}]"
_SYNTHETIC_MODEL = "<synthetic>"  # the model of messages that no model wrote


class EntryComposer:
    """Compose the events of one session as entries, each the child of the one before.

    If the entries are not `resumable`, they are for people to read: they keep thoughts that a
    model's API would refuse.
    """

    def __init__(
        self, native_id: str, cwd: str, git_branch: str | None = None, *, resumable: bool = True
    ) -> None:
        self._native_id = native_id
        self._cwd = cwd
        self._branch = git_branch
        self._resumable = resumable
        self.last_uuid: str | None = None  # the parent of the next entry
        self._run: list[Event] = []  # the agent's events since the last event of another author
        self._results: dict[str, Event] = {}
        self._used_call_ids: set[str] = set()
        # Calls without a result in entries that were not composed here: the uuids of the entries.
        self._open_calls: dict[str, str] = {}

    def continue_after(self, entry: Entry) -> None:
        """Make the next entry a child of this existing one."""
        uuid, content = entry.get("uuid"), message_content(entry)
        if entry.get("type") not in KINDS or entry.get("isSidechain") or not isinstance(uuid, str):
            return
        self.last_uuid = uuid
        for block in content if isinstance(content, list) else ():
            match block:
                case {"type": "tool_use", "id": str(id)}:
                    self._open_calls[id] = uuid
                case {"type": "tool_result", "tool_use_id": str(id)}:
                    self._open_calls.pop(id, None)

    def compose(self, events: Sequence[Event]) -> Iterator[Entry]:
        """Return the entries of the next events."""
        for event in events:
            if isinstance(event.body, ToolResult):
                self._results.setdefault(event.body.call_id, event)
        for event in events:
            if event.body.thread is None:
                yield from self._compose_event(event)
        yield from self._flush_run()

    def _compose_event(self, event: Event) -> Iterator[Entry]:
        body = event.body
        if isinstance(body, AgentMessage | AgentThought | ToolCall | ModelCalled):
            self._run.append(event)
            return
        if (compose := _COMPOSERS.get(type(body))) is None:
            return
        yield from self._flush_run()
        yield from compose(self, event, body)

    def _flush_run(self) -> Iterator[Entry]:
        """Compose the agent's run: one entry per block, then the results of its calls."""
        run, self._run = self._run, []
        events = [event for event in run if not isinstance(event.body, ModelCalled)]
        if not events:
            return
        run_usage, model = _total_usage(run)
        message = _message(events[0], model or _SYNTHETIC_MODEL)
        calls: dict[str, Event] = {}
        for event in events:
            if isinstance(event.body, ToolCall):
                if event.body.call_id in self._used_call_ids:
                    continue  # the API accepts an id once
                self._used_call_ids.add(event.body.call_id)
                calls[event.body.call_id] = event
            blocks = agent_blocks(event.body, resumable=self._resumable)
            for number, block in enumerate(blocks):
                fields = {**message, "content": [block]}
                fields |= {"stop_reason": None, "stop_sequence": None, "usage": usage(run_usage)}
                yield self._entry(event, "assistant", number, message=fields)
                run_usage = Usage()  # only the first entry of the run reports it
        for call_id, event in calls.items():
            if result := self._results.get(call_id):
                yield self._result_entry(result, 0, result.body, event.id)
            else:
                closing = ToolResult(call_id=call_id, status="failed", output=UNANSWERED)
                yield self._result_entry(event, 1, closing, event.id)

    def _compose_result(self, event: Event, body: ToolResult) -> Iterator[Entry]:
        # The results of composed calls follow the calls already.
        if source := self._open_calls.pop(body.call_id, None):
            yield self._result_entry(event, 0, body, source)

    def _result_entry(self, event: Event, number: int, body: Body, source: str) -> Entry:
        assert isinstance(body, ToolResult)
        message = {"role": "user", "content": [result_block(body)]}
        return self._entry(event, "user", number, message=message, sourceToolAssistantUUID=source)

    def _compose_user(self, event: Event, body: UserMessage | SystemMessage) -> Iterator[Entry]:
        blocks = content_blocks(body.content)
        if blocks:
            is_plain_text = len(blocks) == 1 and set(blocks[0]) == {"type", "text"}
            content = blocks[0]["text"] if is_plain_text else blocks
            fields = {"isMeta": True} if isinstance(body, SystemMessage) else {}
            message = {"role": "user", "content": content}
            yield self._entry(event, "user", 0, message=message, **fields)
        if (named := title_change(body)) is not None:
            yield from self._compose_info(event, named)

    def _compose_interruption(self, event: Event, body: Interrupted) -> Iterator[Entry]:
        message = {"role": "user", "content": [{"type": "text", "text": INTERRUPTED}]}
        yield self._entry(event, "user", 0, message=message)

    def _compose_failure(self, event: Event, body: Failed) -> Iterator[Entry]:
        message: Entry = {"id": _message_id(event), "model": _SYNTHETIC_MODEL}
        message |= {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": body.message}],
        }
        yield self._entry(
            event, "assistant", 0, message=message, isApiErrorMessage=True, error=body.code
        )

    def _compose_compaction(self, event: Event, body: Compacted) -> Iterator[Entry]:
        logical_parent, self.last_uuid = self.last_uuid, None
        metadata: Entry = {"trigger": body.trigger}
        if body.tokens_before is not None:
            metadata["preTokens"] = body.tokens_before
        yield self._entry(
            event,
            "system",
            0,
            logicalParentUuid=logical_parent,
            subtype="compact_boundary",
            content="Conversation compacted",
            level="info",
            compactMetadata=metadata,
        )
        summary = {"role": "user", "content": plain_text(body.summary) or "(no summary was kept)"}
        yield self._entry(
            event,
            "user",
            1,
            message=summary,
            isVisibleInTranscriptOnly=True,
            isCompactSummary=True,
        )

    def _compose_info(self, event: Event, body: InfoChanged) -> Iterator[Entry]:
        if body.title is not UNSET:
            kind, field = ("custom-title", "customTitle")
            if body.by != "person":
                kind, field = ("ai-title", "aiTitle")
            yield {"type": kind, field: body.title or "", "sessionId": self._native_id}
        if body.tag is not UNSET:
            yield {"type": "tag", "tag": body.tag or "", "sessionId": self._native_id}

    def _entry(self, event: Event, kind: str, number: int, **fields: Any) -> Entry:
        uuid = event.id if number == 0 else ids.derived_id(DIALECT, event.id, str(number))
        entry = {
            "parentUuid": self.last_uuid,
            "isSidechain": False,
            "type": kind,
            **fields,
            "uuid": uuid,
            "timestamp": format_timestamp(event.at),
            "userType": "external",
            "cwd": self._cwd,
            "sessionId": self._native_id,
        }
        if self._branch is not None:
            entry["gitBranch"] = self._branch
        self.last_uuid = uuid
        return entry


_COMPOSERS: dict[type[Body], Callable[[EntryComposer, Event, Any], Iterable[Entry]]] = {
    UserMessage: EntryComposer._compose_user,
    SystemMessage: EntryComposer._compose_user,
    Interrupted: EntryComposer._compose_interruption,
    Failed: EntryComposer._compose_failure,
    Compacted: EntryComposer._compose_compaction,
    InfoChanged: EntryComposer._compose_info,
    ToolResult: EntryComposer._compose_result,
}


def _total_usage(run: Iterable[Event]) -> tuple[Usage, str | None]:
    """Return the usage of an agent's run, and the model that it used last."""
    total, model = Usage(), None
    for event in run:
        if (end := request_end(event.body)) is not None:
            total, model = total + end.usage, end.model or model
    return total, model


def _message(event: Event, model: str) -> Entry:
    return {"id": _message_id(event), "type": "message", "role": "assistant", "model": model}


def _message_id(event: Event) -> str:
    return f"msg_{event.id.replace('-', '')}"
