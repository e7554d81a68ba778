"""Translate the lines of a transcript to events.

One line becomes several events: its messages, tool calls and results. Content without an event
type of its own is kept whole as Foreign, so that no line is lost.

An event's `seq` is a position: the offset of its line plus the event's number in the line. So
reading continues anywhere without a table, and appending changes no seq. A line has more bytes
than events, so the seqs of two lines never overlap. The session's creation, which has no line, has
seq 1.

A few things depend on earlier lines: the time of a line without one, whether a response's cost was
counted, the numbers of a compaction. A Translator remembers them for CONTEXT_BYTES bytes. So a
Translator can start in the middle of a file: after it has read that many bytes before the position,
it returns the same events as one that started at the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from segue.model import ids
from segue.model.anthropic.content_blocks import DIALECT, exit_code
from segue.model.content import Content, Other, plain_text
from segue.model.event import (
    AgentMessage,
    AgentThought,
    AnyBody,
    Compacted,
    ConfigChanged,
    Event,
    Failed,
    Foreign,
    InfoChanged,
    Interrupted,
    ModelCalled,
    PlanChanged,
    SystemMessage,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.prices.estimate import with_cost
from segue.sources.claude.format import jsonl
from segue.sources.claude.format.jsonl import Entry
from segue.sources.claude.format.paths import is_uuid
from segue.sources.claude.format.prompt import INTERRUPTION_PREFIX, replace_lone_surrogates
from segue.sources.claude.format.user_markup import find_inserted

from . import blocks
from .blocks import extra, fields_except

CONTEXT_BYTES = 1 << 16
CREATED_SEQ = 1
_MAX_RESPONSES = 4096  # remembered
# Fields that an event has itself, so that its `extra` need not repeat them.
_EVENT_FIELDS = frozenset({"type", "message", "timestamp", "sessionId"})
_PERMISSIVE_MODES = frozenset({"acceptEdits", "bypassPermissions"})  # not taken from a file
_MAX_COST_MICROS = 1 << 50
_MESSAGES = (UserMessage, AgentMessage, AgentThought, ToolCall, ToolResult)
_CALL_TYPES = ("tool_use", "server_tool_use", "mcp_tool_use")


def event_seq(offset: int, number: int) -> int:
    """Return the seq of a line's event; the first event is number 0."""
    return offset + CREATED_SEQ + 1 + number


def event_id(session: str, offset: int, number: int) -> str:
    """Return the id of a line's event; the session's creation is at offset -1."""
    return ids.derived_id(DIALECT, session, str(offset), str(number))


def message_event_id(entry: Entry, body: AnyBody, part: int) -> str | None:
    """Return the id of a message or tool call, which is event number `part` of its entry.

    A copy in the store has the same id. None if the entry has no uuid.
    """
    uuid = entry.get("uuid")
    if not isinstance(body, _MESSAGES) or not uuid or not isinstance(uuid, str):
        return None
    first_id = uuid.lower() if is_uuid(uuid) else ids.derived_id(DIALECT, "", uuid)
    return first_id if part == 0 else ids.derived_id(DIALECT, first_id, str(part))


class Translator:
    """Translates the lines of one transcript, in order."""

    def __init__(self, session: str, default_time: int = 0) -> None:
        self._session = session
        self._default_time = default_time  # of lines before any line with a time
        self._last_time = default_time, -1  # and the offset of its line
        self._responses: dict[str, int] = {}  # the offset of the last line of each response
        self._compaction: tuple[Entry, int] = {}, -CONTEXT_BYTES

    def translate_line(
        self, offset: int, data: bytes, entries: Sequence[Entry] | None = None
    ) -> list[Event]:
        """Return the events of a line; a line without an entry becomes one event with its text.

        `entries` are those of the line, if it was parsed already.
        """
        if entries is None:
            entries = jsonl.parse_entries(data)
        bodies: list[AnyBody] = []
        event_ids: list[str | None] = []
        for entry in entries:
            at = jsonl.parse_timestamp(entry.get("timestamp"))
            if at is not None:
                self._last_time = at, offset
            first, *further_bodies = self._with_costs(self.entry_bodies(offset, entry), entry)
            bodies.append(_with_entry_fields(first, entry))
            bodies += [_with_uuid(body, entry) for body in further_bodies]
            event_ids += [
                message_event_id(entry, body, part)
                for part, body in enumerate((first, *further_bodies))
            ]
        if not entries and data.strip(jsonl.BLANK_BYTES):
            raw = data.decode("utf-8", "surrogateescape")
            bodies = [Foreign(dialect=DIALECT, raw=raw)]
        return self._events(offset, bodies, event_ids)

    def _with_costs(self, bodies: Sequence[AnyBody], entry: Entry) -> list[AnyBody]:
        """Return the bodies of an entry with the cost of its response, estimated if need be."""
        return [
            replace(body, usage=response_cost(body.usage, body.model, entry, self._last_time[0]))
            if isinstance(body, ModelCalled)
            else body
            for body in bodies
        ]

    def _events(
        self, offset: int, bodies: Sequence[AnyBody], event_ids: Sequence[str | None]
    ) -> list[Event]:
        at, line_offset = self._last_time
        if offset - line_offset > CONTEXT_BYTES:
            at = self._default_time
        return [
            Event(
                seq=event_seq(offset, number),
                id=id or event_id(self._session, offset, number),
                at=at,
                body=body,
            )
            for number, (body, id) in enumerate(zip_longest(bodies, event_ids))
        ]

    def entry_bodies(self, offset: int, entry: Entry) -> list[AnyBody]:
        """Return the event bodies of an entry, without the fields of the entry itself."""
        kind = entry.get("type")
        bodies: list[AnyBody] = []
        if kind == "user":
            bodies = self._user_bodies(offset, entry)
        elif kind == "assistant":
            bodies = self._assistant_bodies(offset, entry)
        elif isinstance(kind, str) and (translate := _OTHER_ENTRIES.get(kind)):
            bodies = translate(entry)
            if entry.get("subtype") == "compact_boundary":
                self._compaction = entry, offset
        return bodies or [Foreign(dialect=DIALECT, raw=entry)]

    def _user_bodies(self, offset: int, entry: Entry) -> list[AnyBody]:
        content = jsonl.message_content(entry)
        if entry.get("isCompactSummary"):
            return [self._compacted(offset, blocks.content(content))]
        return list(_user_bodies(content, is_meta=bool(entry.get("isMeta"))))

    def _compacted(self, offset: int, summary: Content) -> Compacted:
        boundary, boundary_offset = self._compaction
        metadata = boundary.get("compactMetadata")
        if offset - boundary_offset > CONTEXT_BYTES or not isinstance(metadata, dict):
            return Compacted(summary=summary)
        before, after = metadata.get("preTokens"), metadata.get("postTokens")
        return Compacted(
            summary=summary,
            trigger="manual" if metadata.get("trigger") == "manual" else "auto",
            tokens_before=jsonl.parse_count(before),
            tokens_after=jsonl.parse_count(after),
        )

    def _assistant_bodies(self, offset: int, entry: Entry) -> list[AnyBody]:
        message = entry.get("message")
        if not isinstance(message, dict):
            return []
        if entry.get("isApiErrorMessage"):
            reason = replace_lone_surrogates(plain_text(blocks.content(message.get("content"))))
            code = entry.get("error")
            return [Failed(message=reason, code=code if isinstance(code, str) else "unknown")]
        bodies = list(_agent_bodies(message.get("content")))
        if model_called := self._model_called(offset, message):
            bodies.append(model_called)
        return bodies

    def _model_called(self, offset: int, message: Entry) -> ModelCalled | None:
        """Return the usage of a response at its first line; every line repeats it."""
        id, tokens = message.get("id"), message.get("usage")
        if not isinstance(tokens, dict):
            return None
        if isinstance(id, str):
            last = self._responses.pop(id, -CONTEXT_BYTES - 1)
            self._responses[id] = offset
            if len(self._responses) > _MAX_RESPONSES:
                self._responses.pop(next(iter(self._responses)))
            if offset - last <= CONTEXT_BYTES:
                return None
        usage = parse_usage(tokens)
        model = message.get("model")
        if usage.is_zero or not isinstance(model, str):
            return None  # no model wrote this message
        return ModelCalled(usage=usage, model=model, context_used=usage.tokens)


def _with_entry_fields(body: AnyBody, entry: Entry) -> AnyBody:
    """Return the first body of an entry, with its thread and the entry's other fields."""
    if isinstance(body, Foreign) and body.raw is entry:
        return replace(body, thread=thread(entry))
    fields = {name: value for name, value in entry.items() if name not in _EVENT_FIELDS}
    message = entry.get("message")
    if isinstance(message, dict) and (untranslated := fields_except(message, "content", "role")):
        fields["message"] = untranslated
    return _with_thread(body, entry, fields)


def _with_uuid(body: AnyBody, entry: Entry) -> AnyBody:
    """Return a further body of an entry, with its thread and the entry's uuid."""
    uuid = entry.get("uuid")
    return _with_thread(body, entry, {"uuid": uuid} if isinstance(uuid, str) else {})


def _with_thread(body: AnyBody, entry: Entry, fields: dict[str, Any]) -> AnyBody:
    if isinstance(body, UserMessage | SystemMessage) and (inserted := find_inserted(body.content)):
        body = replace(body, inserted=inserted)
    own_fields = body.extra.get(DIALECT) or {}
    return replace(body, thread=thread(entry), extra=extra(**{**own_fields, **fields}))


def thread(entry: Entry) -> str | None:
    """Return the subagent that an entry belongs to, None for the session's own entries."""
    if not entry.get("isSidechain"):
        return None
    agent = entry.get("agentId")
    return agent if isinstance(agent, str) and agent else "sidechain"


def _user_bodies(content: Any, *, is_meta: bool) -> Iterator[AnyBody]:
    kind: type[UserMessage | SystemMessage] = SystemMessage if is_meta else UserMessage
    if isinstance(content, str):
        if content.startswith(INTERRUPTION_PREFIX) and not is_meta:
            yield Interrupted(extra=extra(text=content))
        else:
            yield kind(content=blocks.content(content))
        return
    run: list[Any] = []
    for value in content if isinstance(content, list) else []:
        name = value.get("type") if isinstance(value, dict) else None
        text = value.get("text") if isinstance(value, dict) else None
        if isinstance(text, str) and text.startswith(INTERRUPTION_PREFIX) and not is_meta:
            body: AnyBody = Interrupted(extra=extra(text=text))
        elif isinstance(name, str) and name.endswith("tool_result"):
            body = _tool_result(value)
        else:
            run.append(value)
            continue
        if run:
            yield kind(content=blocks.content(run))
            run = []
        yield body
    if run:
        yield kind(content=blocks.content(run))


def _tool_result(value: dict[str, Any]) -> ToolResult:
    id, content = value.get("tool_use_id"), value.get("content")
    if isinstance(content, dict):
        content = [content]
    is_error, result = bool(value.get("is_error")), blocks.content(content)
    return ToolResult(
        call_id=id if isinstance(id, str) else "",
        status="failed" if is_error else "completed",
        content=result,
        exit_code=exit_code(result, is_error=is_error),
        extra=extra(**fields_except(value, "type", "tool_use_id", "content", "is_error")),
    )


def _agent_bodies(content: Any) -> Iterator[AnyBody]:
    if isinstance(content, str):
        yield AgentMessage(content=blocks.content(content))
        return
    for value in content if isinstance(content, list) else []:
        if not isinstance(value, dict):
            yield Foreign(dialect=DIALECT, raw=value)
            continue
        kind = value.get("type")
        thought = value.get("thinking")
        if kind == "thinking" and isinstance(thought, str):
            extra_fields = extra(**fields_except(value, "type", "thinking"))
            yield AgentThought(content=blocks.content(thought), extra=extra_fields)
        elif kind == "redacted_thinking":
            yield AgentThought(content=(Other(dialect=DIALECT, raw=value),))
        elif kind in _CALL_TYPES:
            yield blocks.tool_call(value)
            if (entries := blocks.plan(value)) is not None:
                yield PlanChanged(entries=entries)
        elif isinstance(kind, str) and kind.endswith("tool_result"):
            yield _tool_result(value)
        else:
            yield AgentMessage(content=(blocks.block(value),))


def parse_usage(tokens: dict[str, Any]) -> Usage:
    """Return the tokens of a response."""

    def count(name: str) -> int | None:
        return jsonl.parse_count(tokens.get(name))

    by_lifetime = tokens.get("cache_creation")
    cached = count("cache_creation_input_tokens")
    hour = None
    if isinstance(by_lifetime, dict):
        hour = jsonl.parse_count(by_lifetime.get("ephemeral_1h_input_tokens"))
    return Usage(
        input_tokens=count("input_tokens"),
        output_tokens=count("output_tokens"),
        cache_read_tokens=count("cache_read_input_tokens"),
        cache_write_tokens=max(cached or 0, hour) if hour else cached,
        cache_1h_tokens=hour or UNSET,
    )


def response_cost(usage: Usage, model: str | None, entry: Entry, at: int) -> Usage:
    """Return the tokens of a response with the cost that its entry reports, or an estimated one."""
    return with_cost(replace(usage, cost=parse_cost(entry.get("costUSD"))), model, at)


def parse_cost(dollars: Any) -> int | None:
    """Return a cost in millionths of a dollar, or None if it is unknown."""
    if not isinstance(dollars, int | float) or not 0 < dollars < _MAX_COST_MICROS / 1e6:
        return None
    return round(dollars * 1e6)


# Entries that are not messages of the user or the model.


def _system(entry: Entry) -> list[AnyBody]:
    text = entry.get("content")
    if entry.get("subtype") == "api_error":
        return [Failed(message=_error_message(entry), code="api_error", retry="retrying")]
    if entry.get("subtype") == "compact_boundary" or not isinstance(text, str) or not text:
        return []
    return [SystemMessage(content=blocks.content(text))]


def _error_message(entry: Entry) -> str:
    error = entry.get("error")
    message = error.get("message") if isinstance(error, dict) else error
    return (
        replace_lone_surrogates(message)
        if isinstance(message, str)
        else "the model's API returned an error"
    )


def _attachment(entry: Entry) -> list[AnyBody]:
    attachment = entry.get("attachment")
    if not isinstance(attachment, dict) or attachment.get("type") != "queued_command":
        return []
    content = blocks.content(attachment.get("prompt"))
    kind = SystemMessage if attachment.get("isMeta") else UserMessage
    return [kind(content=content)] if content else []


def _custom_title(entry: Entry) -> list[AnyBody]:
    title = entry.get("customTitle")
    return (
        [InfoChanged(title=replace_lone_surrogates(title) or None)]
        if isinstance(title, str)
        else []
    )


def _ai_title(entry: Entry) -> list[AnyBody]:
    title = entry.get("aiTitle")
    return (
        [InfoChanged(title=replace_lone_surrogates(title), by="auto")]
        if isinstance(title, str) and title
        else []
    )


def _tag(entry: Entry) -> list[AnyBody]:
    tag = entry.get("tag")
    return [InfoChanged(tag=replace_lone_surrogates(tag) or None)] if isinstance(tag, str) else []


def _mode(entry: Entry) -> list[AnyBody]:
    mode = entry.get("mode")
    return (
        [ConfigChanged(mode=mode)]
        if isinstance(mode, str) and mode not in _PERMISSIVE_MODES
        else []
    )


def _permission_mode(entry: Entry) -> list[AnyBody]:
    mode = entry.get("permissionMode")
    return [ConfigChanged(options={"permission_mode": mode})] if isinstance(mode, str) else []


_OTHER_ENTRIES = {
    "system": _system,
    "attachment": _attachment,
    "custom-title": _custom_title,
    "ai-title": _ai_title,
    "tag": _tag,
    "mode": _mode,
    "permission-mode": _permission_mode,
}
