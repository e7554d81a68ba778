"""Translate the records of wire.jsonl into events.

A message is there twice from version 2 on: as `context.*`, which all versions write, and as
`agent.message.appended`. Only the first is read. Tokens are those of `usage.record`.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from segue.model.content import Audio, Block, Diff, Image, ResourceLink, Text
from segue.model.event import AnyBody
from segue.sources import safe_io
from segue.sources.kit import bodies, files
from segue.sources.kit.files import Record
from segue.sources.kit.reader import Item, Rewritten

_SOURCE = "kimi"
_EXIT_CODE = re.compile(r"exit code:? (-?\d+)\.?\s*\Z")
_AGENT_ID = re.compile(r"^agent_id: (\S+)", re.MULTILINE)
_AGENT_TOOLS = frozenset({"Agent", "Task"})
_MEDIA = {"image_url": "imageUrl", "audio_url": "audioUrl", "video_url": "videoUrl"}
_MAX_BLOB_BYTES = 64 << 20
# Records of which a session's facts, or nothing, is of use.
_SKIPPED_PREFIXES = (
    "agent.",
    "file_history.",
    "full_compaction.",
    "interaction.",
    "llm.",
    "mcp.",
    "permission.",
    "prompt.",
    "runtime.",
    "staleGuard.",
    "subagent.",
    "token_counting.",
    "tools.",
    "turn.",
)


class Spawn(msgspec.Struct, omit_defaults=True):
    """What the record of its start says of a subagent."""

    call_id: str | None = None
    kind: str | None = None
    title: str | None = None


class WireState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What reading a wire needs to know of the records before."""

    has_records: bool = False
    created_at: int = 0
    updated_at: int = 0
    cwd: str | None = None
    model: str | None = None  # the name that the user gave it in the configuration
    real_model: str | None = None  # the name that the provider gave it
    open_since: int | None = None
    announces_end: bool = False  # whether a record says that the turn has ended
    compaction: str = ""  # the trigger of the compaction that began
    agent_calls: dict[str, Spawn] = {}  # calls that start subagents, without their results
    spawns: dict[str, Spawn] = {}
    extra: dict[str, Any] = {}


class Translator:
    """Translates the records of one agent, in order.

    The records before `copied_before` are those that a fork copied. `session` is given for a
    subagent, whose name is not unique.
    """

    def __init__(
        self, path: str, state: WireState, *, copied_before: int = 0, session: str | None = None
    ) -> None:
        self.state = state
        self.undone: list[tuple[int, int]] = []
        self.collects_undone = False
        self._blobs = os.path.join(os.path.dirname(path), "blobs")
        self._copied_before = copied_before
        self._session = session
        self._offset = -1
        self._number = 0

    def translate(self, line: Record) -> Iterator[Item]:
        """Return the events of a record."""
        record, state = line.record, self.state
        kind = record.get("type")
        if not isinstance(kind, str):
            return
        at = bodies.time_of(record.get("time") or record.get("created_at")) or state.updated_at
        if not state.has_records:
            state.has_records, state.created_at = True, at
        if line.offset != self._offset:  # a crash may leave two objects on one line
            self._offset, self._number = line.offset, 0
        if kind == "context.undo":
            self._note_undo(line.seq(), record)
        for body in self._bodies(kind, record, at):
            seq = line.seq(self._number)
            name = "" if self._session is None else f"{self._session}:{seq}"
            yield Item(seq, at, body, name, inherited=at < self._copied_before)
            self._number += 1
        state.updated_at = max(state.updated_at, at)

    def _note_undo(self, seq: int, record: dict[str, Any]) -> None:
        if not self.collects_undone:
            raise Rewritten("turns were undone")
        self.undone.append((seq, bodies.count(record.get("count"))))

    def _bodies(self, kind: str, record: dict[str, Any], at: int) -> Iterator[AnyBody]:
        match kind:
            case "context.append_message":
                message = record.get("message")
                if isinstance(message, dict):
                    yield from self._message(message, record, at)
            case "context.append_loop_event":
                event = record.get("event")
                if isinstance(event, dict):
                    yield from self._loop_event(event)
            case "usage.record":
                yield from self._usage(record)
            case "context.apply_compaction":
                yield self._compaction(record)
            case "turn.ended":
                yield from self._turn_end(record)
            case "turn.cancel" | "prompt.aborted":
                if self.state.open_since is not None and not self.state.announces_end:
                    yield bodies.interrupted(bodies.text(record.get("reason")) or "cancelled")
                    self.state.open_since = None
            case _:
                self._note_facts(kind, record, at)
                is_skipped = kind in ("metadata", "config.update", "profile.bind", "forked")
                if not is_skipped and not kind.startswith(_SKIPPED_PREFIXES):
                    yield bodies.injected(_SOURCE, record)

    # What is true of the whole session.

    def _note_facts(self, kind: str, record: dict[str, Any], at: int) -> None:
        state = self.state
        match kind:
            case "metadata":
                state.created_at = bodies.time_of(record.get("created_at")) or state.created_at
                self._keep(record, "protocol_version")
            case "config.update" | "profile.bind":
                state.model = bodies.text(record.get("modelAlias")) or state.model
                disclosure = record.get("environmentDisclosure")
                for fields in (record, disclosure if isinstance(disclosure, dict) else {}):
                    state.cwd = bodies.text(fields.get("cwd")) or state.cwd
                self._keep(record, "profileName", "thinkingEffort", "thinkingLevel")
            case "permission.set_mode":
                self._keep(record, "mode")
            case "llm.request":
                state.model = bodies.text(record.get("modelAlias")) or state.model
                state.real_model = bodies.text(record.get("model")) or state.real_model
                self._keep(record, "provider")
            case "turn.prompt":
                state.open_since = at
                state.announces_end = "agentId" in record  # from version 2 of the agent on
            case "prompt.completed":
                state.open_since = None
            case "full_compaction.begin":
                state.compaction = bodies.text(record.get("source"))
            case "subagent.spawned":
                if agent := bodies.text(record.get("subagentId")):
                    state.spawns[agent] = Spawn(
                        bodies.text(record.get("parentToolCallId")) or None,
                        bodies.text(record.get("subagentName")) or None,
                        bodies.text(record.get("description")) or None,
                    )

    def _keep(self, record: dict[str, Any], *names: str) -> None:
        for name in names:
            if isinstance(value := record.get(name), str):
                self.state.extra[name] = value

    def _turn_end(self, record: dict[str, Any]) -> Iterator[AnyBody]:
        self.state.open_since, self.state.announces_end = None, True
        reason, error = record.get("reason"), record.get("error")
        if reason == "cancelled":
            yield bodies.interrupted("cancelled")
        elif reason == "blocked":
            yield bodies.interrupted("blocked")
        elif reason == "failed":
            fields = error if isinstance(error, dict) else {"message": error}
            message = bodies.text(fields.get("message")) or "the turn failed"
            yield bodies.failed(message, bodies.text(fields.get("code")) or "unknown")

    # Messages.

    def _message(
        self, message: dict[str, Any], record: dict[str, Any], at: int
    ) -> Iterator[AnyBody]:
        content = message.get("content")
        match message.get("role"):
            case "user" if self._is_prompt(message.get("origin")):
                self.state.open_since = self.state.open_since or at
                yield bodies.prompt(self._blocks(content))
            case "assistant":
                yield from self._parts(content)
                calls = message.get("toolCalls")
                for call in calls if isinstance(calls, list) else ():
                    if isinstance(call, dict):
                        yield from self._message_call(call)
            case "tool":
                call_id = bodies.text(message.get("toolCallId"))
                result = {**message, "output": content}
                yield self._result(call_id, result)
            case _:
                yield bodies.injected(_SOURCE, record)

    def _is_prompt(self, origin: Any) -> bool:
        """Return whether a person typed a message, or it is the task of a subagent."""
        fields = origin if isinstance(origin, dict) else {}
        match fields.get("kind"):
            case None | "user":
                return True
            case "skill_activation" | "plugin_command":
                return fields.get("trigger") == "user-slash"
            case kind:
                return kind == "system_trigger" and self._session is not None

    def _parts(self, content: Any) -> Iterator[AnyBody]:
        """Return the thoughts and the answers of a message of the agent."""
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        for part in parts:
            if isinstance(part, dict):
                if think := bodies.text(part.get("think")):
                    yield bodies.thought(think)
                elif blocks := [*bodies.content_of(self._blocks([part]))]:
                    yield bodies.answer(blocks)

    def _blocks(self, content: Any) -> list[Block]:
        if isinstance(content, str):
            return [Text(text=content)]
        blocks: list[Block] = []
        for part in content if isinstance(content, list) else ():
            if not isinstance(part, dict):
                continue
            kind = bodies.text(part.get("type"))
            if kind in _MEDIA:
                blocks.append(self._media(kind, part.get(_MEDIA[kind])))
            elif text := bodies.text(part.get("text")):
                blocks.append(Text(text=text))
        return blocks

    def _media(self, kind: str, value: Any) -> Block:
        url = bodies.text(value.get("url") if isinstance(value, dict) else value)
        if url.startswith("blobref:"):
            url = self._blob(url)
        if kind == "image_url":
            return bodies.image(url)
        if kind == "audio_url" and url.startswith("data:"):
            image: Image = bodies.image(url)
            return Audio(mime=image.mime, data=image.data or "")
        return ResourceLink(uri=url if len(url) < 4096 else url.partition(",")[0])

    def _blob(self, url: str) -> str:
        """Return the data of a large file as a URL; the reference itself if it is missing."""
        mime, _, name = url.removeprefix("blobref:").partition(";")
        if not name or os.path.basename(name) != name:
            return url
        data = safe_io.read_small_file(os.path.join(self._blobs, name), _MAX_BLOB_BYTES)
        return f"data:{mime};base64,{base64.b64encode(data).decode()}" if data else url

    # What the agent does.

    def _loop_event(self, event: dict[str, Any]) -> Iterator[AnyBody]:
        match event.get("type"):
            case "content.part":
                yield from self._parts([event.get("part")])
            case "tool.call":
                call_id = bodies.text(event.get("toolCallId")) or bodies.text(event.get("uuid"))
                display = event.get("display")
                yield self._call(
                    call_id,
                    bodies.text(event.get("name")),
                    event.get("args"),
                    display if isinstance(display, dict) else {},
                )
            case "tool.result":
                call_id = bodies.text(event.get("toolCallId"))
                result = event.get("result")
                fields = result if isinstance(result, dict) else {"output": result}
                yield self._result(call_id or bodies.text(event.get("parentUuid")), fields)
            case "step.end":
                if event.get("finishReason") != "tool_use" and not self.state.announces_end:
                    self.state.open_since = None

    def _message_call(self, call: dict[str, Any]) -> Iterator[AnyBody]:
        function = call.get("function")
        fields = {**call, **function} if isinstance(function, dict) else call
        arguments = fields.get("arguments")
        if isinstance(arguments, str):
            arguments = _decoded(arguments)
        yield self._call(bodies.text(call.get("id")), bodies.text(fields.get("name")), arguments)

    def _call(
        self, call_id: str, name: str, arguments: Any, display: dict[str, Any] | None = None
    ) -> AnyBody:
        fields = arguments if isinstance(arguments, dict) else {}
        if name in _AGENT_TOOLS:
            kind = bodies.text(fields.get("subagent_type")) or None
            title = bodies.text(fields.get("description")) or None
            self.state.agent_calls[call_id] = Spawn(call_id, kind, title)
        return bodies.tool_call(
            call_id, name or "tool", arguments, diffs=_diffs(name, fields, display or {})
        )

    def _result(self, call_id: str, result: dict[str, Any]) -> AnyBody:
        blocks = self._blocks(result.get("output"))
        text = "\n".join(block.text for block in blocks if isinstance(block, Text))
        if spawn := self.state.agent_calls.pop(call_id, None):
            for agent in _AGENT_ID.findall(text):
                self.state.spawns.setdefault(agent, spawn)
        is_error = result.get("isError") is True
        match = _EXIT_CODE.search(text[-200:]) if is_error else None
        body = bodies.tool_result(
            call_id,
            blocks,
            status="failed" if is_error else "completed",
            exit_code=int(match[1]) if match else None,
        )
        names = ("note", "durationMs", "truncated")
        extra = {name: result[name] for name in names if result.get(name)}
        return msgspec.structs.replace(body, extra={_SOURCE: extra}) if extra else body

    def _usage(self, record: dict[str, Any]) -> Iterator[AnyBody]:
        usage = record.get("usage")
        alias = bodies.text(record.get("model"))
        self.state.model = alias or self.state.model
        if isinstance(usage, dict):
            tokens = bodies.usage(
                input=usage.get("inputOther"),
                output=usage.get("output"),
                cache_read=usage.get("inputCacheRead"),
                cache_write=usage.get("inputCacheCreation"),
                input_includes_cache=False,
            )
            yield bodies.model_called(tokens, self.state.real_model or alias)

    def _compaction(self, record: dict[str, Any]) -> AnyBody:
        summary = record.get("summary")
        if isinstance(summary, dict):
            blocks = self._blocks(summary.get("content"))
            summary = "\n".join(block.text for block in blocks if isinstance(block, Text))
        text = bodies.text(summary) or bodies.text(record.get("contextSummary"))
        return msgspec.structs.replace(
            bodies.compacted(text, "manual" if self.state.compaction == "manual" else "auto"),
            tokens_before=bodies.count(record.get("tokensBefore")) or None,
            tokens_after=bodies.count(record.get("tokensAfter")) or None,
        )


def _diffs(name: str, arguments: dict[str, Any], display: dict[str, Any]) -> list[Diff]:
    """Return the changes that a tool call asks for."""
    path = bodies.text(arguments.get("path")) or bodies.text(display.get("path"))
    if not path:
        return []
    before = arguments.get("old_string", display.get("before"))
    after = arguments.get("new_string", display.get("after"))
    if isinstance(after, str):
        return [Diff(path=path, old=before if isinstance(before, str) else None, new=after)]
    content = arguments.get("content", display.get("content"))
    is_write = bodies.tool_kind(name) == "edit" or display.get("operation") == "write"
    return [Diff(path=path, new=content)] if is_write and isinstance(content, str) else []


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except files.DECODE_ERRORS:
        return text
