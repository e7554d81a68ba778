"""Lines of a transcript as events.

One line becomes one event for each thing that it says: its messages, calls, results. What the
vocabulary has no word for is kept whole as Foreign, so that no line is lost.

An event's `seq` is its place: the offset of its line, and which of the line's events it is. So a
reader goes straight to where another one stopped, and appending moves nothing. A line is always
longer than the number of its events, hence places never run into those of the next line. The
session's creation, which no line tells, is at 1.

A few things need the lines before: when a line without a time was written, whether a response was
counted already, what a compaction's summary stands for. A Translator remembers them for WINDOW
bytes and no further, so that one that begins in the middle, and is shown the window before, says
the same as one that began at the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from segue.model import ids
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
    ToolResult,
    Usage,
    UserMessage,
)
from segue.sources.claude.format import jsonl
from segue.sources.claude.format.jsonl import Entry
from segue.sources.claude.format.prompt import replace_lone_surrogates
from segue.sources.claude.format.user_markup import find_inserted

from . import blocks
from .blocks import DIALECT, beyond, extra

WINDOW = 1 << 16
FIRST = 1  # the seq of a session's creation
INTERRUPTED = "[Request interrupted by user"
# What an event says by itself, and its `extra` need not repeat.
_TOLD = frozenset({"type", "message", "timestamp", "sessionId"})
_ALLOWING = frozenset({"acceptEdits", "bypassPermissions"})  # our modes that no file chooses
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


def seq(offset: int, number: int) -> int:
    """The place of a line's event, the first of which is number 0."""
    return offset + FIRST + 1 + number


def event_id(session: str, offset: int, number: int) -> str:
    """The id of a line's event; that of the session's creation is at offset -1."""
    return ids.derived_id(DIALECT, session, str(offset), str(number))


class Translator:
    """Turns the lines of one session's transcript into events, given in order."""

    def __init__(self, session: str, begun: int = 0) -> None:
        self._session = session
        self._begun = begun  # the time of lines before any that has one
        self._at = begun, -1
        self._responses: dict[str, int] = {}
        self._compaction: tuple[Entry, int] = {}, -WINDOW

    def line(self, offset: int, data: bytes, found: Sequence[Entry] | None = None) -> list[Event]:
        """The events of a line; one that holds no entry is kept as text.

        `found` are its entries, where they are read already.
        """
        if found is None:
            found = jsonl.parse_entries(data)
        bodies: list[AnyBody] = []
        for entry in found:
            at = jsonl.parse_timestamp(entry.get("timestamp"))
            if at is not None:
                self._at = at, offset
            said = self.bodies(offset, entry)
            bodies += [_told(body, entry, number == 0) for number, body in enumerate(said)]
        if not found and data.strip(jsonl.BLANK_BYTES):
            raw = data.decode("utf-8", "surrogateescape")
            bodies = [Foreign(dialect=DIALECT, raw=raw)]
        return self._placed(offset, bodies)

    def _placed(self, offset: int, bodies: Sequence[AnyBody]) -> list[Event]:
        at, where = self._at
        if offset - where > WINDOW:
            at = self._begun
        return [
            Event(
                seq=seq(offset, number),
                id=event_id(self._session, offset, number),
                at=at,
                body=body,
            )
            for number, body in enumerate(bodies)
        ]

    def bodies(self, offset: int, entry: Entry) -> list[AnyBody]:
        """What an entry says, one body an event, without what it says beyond that."""
        kind = entry.get("type")
        said: list[AnyBody] = []
        if kind == "user":
            said = self._user(offset, entry)
        elif kind == "assistant":
            said = self._assistant(offset, entry)
        elif isinstance(kind, str) and (step := _OTHERS.get(kind)):
            said = step(entry)
            if entry.get("subtype") == "compact_boundary":
                self._compaction = entry, offset
        return said or [Foreign(dialect=DIALECT, raw=entry)]

    def _user(self, offset: int, entry: Entry) -> list[AnyBody]:
        message = entry.get("message")
        given = message.get("content") if isinstance(message, dict) else None
        if entry.get("isCompactSummary"):
            return [self._compacted(offset, blocks.content(given))]
        return list(_said_by_user(given, bool(entry.get("isMeta"))))

    def _compacted(self, offset: int, summary: Content) -> Compacted:
        boundary, where = self._compaction
        told = boundary.get("compactMetadata")
        if offset - where > WINDOW or not isinstance(told, dict):
            return Compacted(summary=summary)
        before, after = told.get("preTokens"), told.get("postTokens")
        return Compacted(
            summary=summary,
            trigger="manual" if told.get("trigger") == "manual" else "auto",
            tokens_before=jsonl.parse_count(before),
            tokens_after=jsonl.parse_count(after),
        )

    def _assistant(self, offset: int, entry: Entry) -> list[AnyBody]:
        message = entry.get("message")
        if not isinstance(message, dict):
            return []
        if entry.get("isApiErrorMessage"):
            why = replace_lone_surrogates(plain_text(blocks.content(message.get("content"))))
            code = entry.get("error")
            return [Failed(message=why, code=code if isinstance(code, str) else "unknown")]
        said = list(_said_by_agent(message.get("content")))
        if called := self._called(offset, message):
            said.append(called)
        return said

    def _called(self, offset: int, message: Entry) -> ModelCalled | None:
        """Every line of a response tells what all of it cost: the first one counts."""
        id, told = message.get("id"), message.get("usage")
        if not isinstance(told, dict):
            return None
        if isinstance(id, str):
            last = self._responses.pop(id, -WINDOW - 1)
            self._responses[id] = offset
            if len(self._responses) > 4096:
                self._responses.pop(next(iter(self._responses)))
            if offset - last <= WINDOW:
                return None
        spent = usage(told)
        model = message.get("model")
        if spent == Usage() or not isinstance(model, str):
            return None  # a message that the program made up
        used = spent.input_tokens + spent.cache_read_tokens
        used += spent.cache_5m_tokens + spent.cache_1h_tokens + spent.output_tokens
        return ModelCalled(usage=spent, model=model, context_used=used)


def _told(body: AnyBody, entry: Entry, first: bool) -> AnyBody:
    """The body with its thread and, for the first of an entry, all else that the entry says."""
    if isinstance(body, Foreign) and body.raw is entry:
        return replace(body, thread=thread(entry))
    uuid = entry.get("uuid")
    more = dict(body.extra.get(DIALECT) or {})
    if first:
        more |= {name: value for name, value in entry.items() if name not in _TOLD}
        message = entry.get("message")
        if isinstance(message, dict) and (rest := beyond(message, "content", "role")):
            more["message"] = rest
    elif isinstance(uuid, str):
        more["uuid"] = uuid
    if isinstance(body, UserMessage | SystemMessage) and (inserted := find_inserted(body.content)):
        body = replace(body, inserted=inserted)
    return replace(body, thread=thread(entry), extra=extra(**more))


def thread(entry: Entry) -> str | None:
    """The agent that an entry belongs to, when that is not the session's own."""
    if not entry.get("isSidechain"):
        return None
    agent = entry.get("agentId")
    return agent if isinstance(agent, str) and agent else "sidechain"


def _said_by_user(given: Any, meta: bool) -> Iterator[AnyBody]:
    kind: type[UserMessage | SystemMessage] = SystemMessage if meta else UserMessage
    if isinstance(given, str):
        if given.startswith(INTERRUPTED) and not meta:
            yield Interrupted(extra=extra(text=given))
        else:
            yield kind(content=blocks.content(given))
        return
    run: list[Any] = []
    for value in given if isinstance(given, list) else []:
        name = value.get("type") if isinstance(value, dict) else None
        text = value.get("text") if isinstance(value, dict) else None
        if isinstance(text, str) and text.startswith(INTERRUPTED) and not meta:
            body: AnyBody = Interrupted(extra=extra(text=text))
        elif isinstance(name, str) and name.endswith("tool_result"):
            body = _result(value)
        else:
            run.append(value)
            continue
        if run:
            yield kind(content=blocks.content(run))
            run = []
        yield body
    if run:
        yield kind(content=blocks.content(run))


def _result(value: dict[str, Any]) -> ToolResult:
    id, given = value.get("tool_use_id"), value.get("content")
    if isinstance(given, dict):
        given = [given]
    return ToolResult(
        call_id=id if isinstance(id, str) else "",
        status="failed" if value.get("is_error") else "completed",
        content=blocks.content(given),
        extra=extra(**beyond(value, "type", "tool_use_id", "content", "is_error")),
    )


def _said_by_agent(given: Any) -> Iterator[AnyBody]:
    if isinstance(given, str):
        yield AgentMessage(content=blocks.content(given))
        return
    for value in given if isinstance(given, list) else []:
        if not isinstance(value, dict):
            yield Foreign(dialect=DIALECT, raw=value)
            continue
        kind = value.get("type")
        thought = value.get("thinking")
        if kind == "thinking" and isinstance(thought, str):
            more = extra(**beyond(value, "type", "thinking"))
            yield AgentThought(content=blocks.content(thought), extra=more)
        elif kind == "redacted_thinking":
            yield AgentThought(content=(Other(dialect=DIALECT, raw=value),))
        elif kind in _CALLS:
            yield blocks.tool_call(value)
            if (entries := blocks.plan(value)) is not None:
                yield PlanChanged(entries=entries)
        elif isinstance(kind, str) and kind.endswith("tool_result"):
            yield _result(value)
        else:
            yield AgentMessage(content=(blocks.block(value),))


def usage(told: dict[str, Any]) -> Usage:
    """Tokens, as a response tells them."""

    def count(given: dict[str, Any], name: str) -> int:
        return jsonl.parse_count(given.get(name)) or 0

    made, written = told.get("cache_creation"), count(told, "cache_creation_input_tokens")
    hour = count(made, "ephemeral_1h_input_tokens") if isinstance(made, dict) else 0
    return Usage(
        input_tokens=count(told, "input_tokens"),
        output_tokens=count(told, "output_tokens"),
        cache_read_tokens=count(told, "cache_read_input_tokens"),
        cache_5m_tokens=max(0, written - hour),
        cache_1h_tokens=hour,
    )


# Lines that are no message of the user or the model.


def _system(entry: Entry) -> list[AnyBody]:
    said = entry.get("content")
    if entry.get("subtype") == "api_error":
        return [Failed(message=_why(entry), code="api_error", retry="retrying")]
    if entry.get("subtype") == "compact_boundary" or not isinstance(said, str) or not said:
        return []
    return [SystemMessage(content=blocks.content(said))]


def _why(entry: Entry) -> str:
    error = entry.get("error")
    told = error.get("message") if isinstance(error, dict) else error
    return (
        replace_lone_surrogates(told)
        if isinstance(told, str)
        else "the model's interface answered with an error"
    )


def _attachment(entry: Entry) -> list[AnyBody]:
    attached = entry.get("attachment")
    if not isinstance(attached, dict) or attached.get("type") != "queued_command":
        return []
    said = blocks.content(attached.get("prompt"))
    kind = SystemMessage if attached.get("isMeta") else UserMessage
    return [kind(content=said)] if said else []


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
    return [ConfigChanged(mode=mode)] if isinstance(mode, str) and mode not in _ALLOWING else []


def _permission_mode(entry: Entry) -> list[AnyBody]:
    mode = entry.get("permissionMode")
    return [ConfigChanged(options={"permission_mode": mode})] if isinstance(mode, str) else []


_OTHERS = {
    "system": _system,
    "attachment": _attachment,
    "custom-title": _custom_title,
    "ai-title": _ai_title,
    "tag": _tag,
    "mode": _mode,
    "permission-mode": _permission_mode,
}
