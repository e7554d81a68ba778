"""Translate Goose's messages into events.

Seqs count the events of messages, in steps. They do not depend on the numbers of rows, because a
compaction replaces all rows by copies. The seqs between two messages are for tokens that no message
has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from segue.model import clock
from segue.model.content import Audio, Block, Diff, Image, Other, Resource, ResourceLink, Text
from segue.model.event import AnyBody, ToolKind, Usage
from segue.sources.kit import bodies
from segue.sources.kit.reader import FIRST_SEQ, Item

from . import tables

Row = Mapping[str, Any]
_SOURCE = "goose"
_SEQS_PER_EVENT = 16  # between the seqs of two events
_CALLS = ("toolRequest", "frontendToolRequest")
_MAX_CONTENT_CHARS = 64 << 20  # of a message; a longer one is skipped


class GooseState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What reading a session needs to know of the messages before."""

    last_row: int = -1  # the highest number of a row
    last_time: int = 0  # of a message, as Goose has it
    rows: int = 0
    count: int = 0  # events of messages
    last_at: int = 0
    last_message: str = ""
    parts: int = 0  # events of the last message id
    damaged: int = 0
    model: str | None = None
    forked_from: str | None = None
    open_since: int | None = None
    spawns: dict[str, str] = {}  # the call that started each subagent
    counted: Usage = Usage()  # of messages
    rest: Usage = Usage()  # the tokens that no message has
    rests: int = 0  # events with such tokens since the last message


class Translator:
    """Translates the messages of a session, in order."""

    def __init__(self, state: GooseState, created_at: int, model: str | None) -> None:
        self.state = state
        self.problems: list[str] = []
        self._created_at = created_at
        self._model = model
        self.copied_ids: set[str] = set()  # of the session that was forked

    def message(self, row: Row, following: Row | None) -> Iterator[Item]:
        """Yield the events of a message; `following` is the next one."""
        state = self.state
        at = bodies.time_of(row["created_timestamp"]) or state.last_at or self._created_at
        state.last_row = max(state.last_row, row["id"])
        state.last_time = row["created_timestamp"]
        state.rows += 1
        state.last_at = max(state.last_at, at)
        message_id = bodies.text(row["message_id"])
        if message_id != state.last_message:
            state.last_message, state.parts = message_id, 0
        if message_id not in self.copied_ids:
            self.copied_ids = set()  # the copies come first
        # A copied message has the time of its original, in seconds.
        is_old = at // clock.SECOND < self._created_at // clock.SECOND
        is_copy = is_old or bool(self.copied_ids)
        inherited = is_copy and state.forked_from is not None
        for body in self._bodies(row, following, is_copy=is_copy):
            record = f"{message_id}.{state.parts}" if message_id else ""
            yield Item(self._next_seq(), at, body, record, inherited)
            state.parts += 1

    def _next_seq(self) -> int:
        self.state.count += 1
        self.state.rests = 0
        return FIRST_SEQ + _SEQS_PER_EVENT * self.state.count

    def rest_of_usage(self, total: Usage, at: int) -> Iterator[Item]:
        """Yield the tokens that no message has: of a compaction, or of a version without them."""
        state = self.state
        rest = total - state.counted
        added = rest - state.rest
        tokens = _tokens(added)
        if min(tokens) < 0 or not any(tokens) or state.rests == _SEQS_PER_EVENT - 1:
            return
        if added.cost is not None and added.cost < 0:  # sums are rounded
            added = msgspec.structs.replace(added, cost=None)
        state.rest = rest
        state.rests += 1
        seq = FIRST_SEQ + _SEQS_PER_EVENT * state.count + state.rests
        called = bodies.model_called(added, state.model or self._model)
        yield Item(seq, at, called, f"usage.{sum(_tokens(rest))}")

    # One message.

    def _bodies(self, row: Row, following: Row | None, *, is_copy: bool) -> Iterator[AnyBody]:
        content = self._content(row)
        if content is None:
            return
        metadata = tables.decode(row["metadata_json"])
        metadata = metadata if isinstance(metadata, dict) else {}
        role = row["role"]
        if metadata.get("userVisible") is False:
            yield self._hidden(role, metadata, content, following)
        elif role == "assistant":
            yield from self._answer(content)
        elif role == "user":
            yield from self._prompt(content)
        else:
            yield bodies.injected(_SOURCE, {"role": role, "content": content})
        yield from self._model_called(metadata, is_copy=is_copy)
        self._follow_turn(role, metadata, content)

    def _content(self, row: Row) -> list[dict[str, Any]] | None:
        data = row["content_json"]
        content = None
        if not isinstance(data, str | bytes) or len(data) <= _MAX_CONTENT_CHARS:
            content = tables.decode(data)
            reason = "is damaged"
        else:
            reason = f"is too long: {len(data)} characters"
        if not isinstance(content, list):
            self.problems.append(f"message {row['id']} {reason}")
            self.state.damaged += 1
            return None
        return [part for part in content if isinstance(part, dict)]

    def _follow_turn(
        self, role: Any, metadata: Mapping[str, Any], content: list[dict[str, Any]]
    ) -> None:
        """Note whether the turn is open after a message: it ends with text of the agent."""
        if metadata.get("userVisible") is False:
            return
        if role == "assistant":
            if not any(part.get("type") in _CALLS for part in content):
                self.state.open_since = None
        elif self.state.open_since is None:
            self.state.open_since = self.state.last_at

    def _hidden(
        self,
        role: Any,
        metadata: Mapping[str, Any],
        content: list[dict[str, Any]],
        following: Row | None,
    ) -> AnyBody:
        """Return a message for the model only: a summary, or context."""
        note = _hidden_note(following)
        if role == "user" and not metadata.get("turnContext") and note is not None:
            summary = _text(content)
            if summary and not summary.startswith("<turn-context>"):
                return bodies.compacted(summary, "manual" if "request" in note else "auto")
        return bodies.injected(_SOURCE, {"role": role, "content": content})

    def _prompt(self, content: list[dict[str, Any]]) -> Iterator[AnyBody]:
        typed: list[Block] = []
        has_results = False
        for part in content:
            match part.get("type"):
                case "toolResponse":
                    has_results = True
                    yield self._result(part)
                case "text" | "image":
                    typed.append(_block(part))
                case _:
                    yield bodies.injected(_SOURCE, part)
        blocks = bodies.content_of(typed)
        if blocks and has_results:
            yield bodies.injected(_SOURCE, {"role": "user", "content": content})
        elif blocks:
            yield bodies.prompt(blocks)

    def _answer(self, content: list[dict[str, Any]]) -> Iterator[AnyBody]:
        blocks: list[Block] = []
        for part in content:
            if part.get("type") in ("text", "image"):
                blocks.append(_block(part))
                continue
            yield from _answers(blocks)
            blocks = []
            match part.get("type"):
                case "thinking":
                    yield bodies.thought(bodies.text(part.get("thinking")))
                case "reasoning":
                    yield bodies.thought(bodies.text(part.get("text")))
                case "toolRequest" | "frontendToolRequest":
                    yield _call(part, self.state.rows)
                case "systemNotification" if part.get("notificationType") == "creditsExhausted":
                    yield bodies.failed(bodies.text(part.get("msg")), "credits_exhausted")
                case _:
                    yield bodies.injected(_SOURCE, part)
        yield from _answers(blocks)

    def _result(self, part: Mapping[str, Any]) -> AnyBody:
        call_id = bodies.text(part.get("id"))
        result = part.get("toolResult")
        result = result if isinstance(result, dict) else {}
        value = result.get("value")
        if result.get("status") == "error" or not isinstance(value, dict | list):
            message = bodies.text(result.get("error")) or bodies.text(value)
            return bodies.tool_result(call_id, message, status="failed")
        if isinstance(value, list):  # of older versions, which have the content alone
            return bodies.tool_result(call_id, _result_blocks(value))
        self._note_subagent(call_id, value.get("_meta"))
        structured = value.get("structuredContent")
        exit_code = structured.get("exit_code") if isinstance(structured, dict) else None
        return bodies.tool_result(
            call_id,
            _result_blocks(value.get("content")),
            status="failed" if value.get("isError") is True else "completed",
            exit_code=exit_code if isinstance(exit_code, int) else None,
        )

    def _note_subagent(self, call_id: str, meta: Any) -> None:
        child = meta.get("subagent_session_id") if isinstance(meta, dict) else None
        if isinstance(child, str) and child:
            self.state.spawns[child] = call_id

    def _model_called(self, metadata: Mapping[str, Any], *, is_copy: bool) -> Iterator[AnyBody]:
        inference, usage = metadata.get("inference"), metadata.get("usage")
        if isinstance(inference, dict):
            model = bodies.text(inference.get("requestedModel"))
            self.state.model = model or self.state.model
        if isinstance(usage, dict) and not is_copy:
            names = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "cost")
            tokens = tables.usage_of(*(usage.get(name) for name in names))
            if not tokens.is_zero:
                self.state.counted += tokens
                yield bodies.model_called(tokens, self.state.model or self._model)


def _tokens(usage: Usage) -> tuple[int, ...]:
    return (
        usage.input_tokens or 0,
        usage.output_tokens or 0,
        usage.cache_read_tokens or 0,
        usage.cache_write_tokens or 0,
    )


def _hidden_note(row: Row | None) -> str | None:
    """Return the text of a message of the agent that people do not see; None if it is another."""
    if row is None or row["role"] != "assistant":
        return None
    metadata, content = tables.decode(row["metadata_json"]), tables.decode(row["content_json"])
    if not isinstance(metadata, dict) or metadata.get("userVisible") is not False:
        return None
    return _text(content) if isinstance(content, list) else None


def _text(content: list[Any]) -> str:
    parts = (part for part in content if isinstance(part, dict) and part.get("type") == "text")
    return "\n\n".join(filter(None, (bodies.text(part.get("text")) for part in parts)))


def _answers(blocks: list[Block]) -> Iterator[AnyBody]:
    if content := bodies.content_of(blocks):
        yield bodies.answer(content)


def _block(part: Mapping[str, Any]) -> Block:
    """Return a content block, which is one of MCP."""
    resource = part.get("resource")
    match part.get("type"):
        case "text":
            return Text(text=bodies.text(part.get("text")))
        case "image":
            mime = bodies.text(part.get("mimeType")) or "image/png"
            return Image(mime=mime, data=bodies.text(part.get("data")))
        case "audio":
            return Audio(mime=bodies.text(part.get("mimeType")), data=bodies.text(part.get("data")))
        case "resource_link":
            uri, name = bodies.text(part.get("uri")), bodies.text(part.get("name"))
            return ResourceLink(uri=uri, name=name)
        case "resource" if isinstance(resource, dict):
            return Resource(
                uri=bodies.text(resource.get("uri")),
                text=bodies.text(resource.get("text")) or None,
                data=bodies.text(resource.get("blob")) or None,
                mime=bodies.text(resource.get("mimeType")) or None,
            )
        case _:
            return Other(dialect=_SOURCE, raw=dict(part))


def _result_blocks(content: Any) -> list[Block]:
    """Return the content of a result for people; some tools have a copy of it for the model."""
    parts = [part for part in content if isinstance(part, dict)] if _is_list(content) else []
    for_people = [part for part in parts if _is_for_people(part)]
    return [_block(part) for part in for_people or parts]


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_for_people(part: Mapping[str, Any]) -> bool:
    annotations = part.get("annotations")
    audience = annotations.get("audience") if isinstance(annotations, dict) else None
    return not isinstance(audience, list) or not audience or "user" in audience


def _call(part: Mapping[str, Any], row: int) -> AnyBody:
    call = part.get("toolCall")
    call = call if isinstance(call, dict) else {}
    call_id = bodies.text(part.get("id")) or f"call-{row}"
    value = call.get("value")
    if not isinstance(value, dict):
        return bodies.tool_call(call_id, "invalid_tool_call", {"error": call.get("error")})
    name = bodies.text(value.get("name")) or "unknown"
    fields = value.get("arguments")
    meta = part.get("_meta")
    extension = bodies.text(meta.get("goose_extension")) if isinstance(meta, dict) else ""
    prefix, _, tool = name.rpartition("__")
    fields = fields if isinstance(fields, dict) else {}
    return bodies.tool_call(
        call_id,
        name,
        fields,
        kind=_kind(tool, fields),
        diffs=_diffs(tool, fields),
        server=extension or prefix or None,
    )


def _kind(tool: str, fields: Mapping[str, Any]) -> ToolKind:
    if tool == "text_editor":
        return "read" if fields.get("command") == "view" else "edit"
    return bodies.tool_kind(tool)


def _diffs(tool: str, fields: Mapping[str, Any]) -> list[Diff]:
    """Return the change of a file that a call asks for."""
    path = bodies.text(fields.get("path"))
    if not path or tool not in ("edit", "write", "text_editor"):
        return []
    old: Any = fields.get("before", fields.get("old_str"))
    new: Any = fields.get("after", fields.get("new_str"))
    if new is None:
        new = fields.get("content", fields.get("file_text"))
    if not isinstance(new, str):
        return []
    is_insertion = fields.get("command") == "insert"
    return [Diff(path=path, old="" if is_insertion else bodies.text(old) or None, new=new)]
