"""Translate the lines of events.jsonl into events.

Subagents write into the file of their session: their lines have `agentId`, or name the call that
started them in `parentToolCallId`. Both become events of a thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from segue.model.content import Block, Image, Resource, ResourceLink, Text
from segue.model.event import AnyBody
from segue.sources import safe_io
from segue.sources.kit import bodies, files
from segue.sources.kit.files import Record
from segue.sources.kit.reader import Item, Rewritten, ThreadRef

from .edits import call_diffs, result_diffs
from .usage import UsageState, shutdown_usage, token_usage

_SOURCE = "copilot"
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_FORK = re.compile(rf"Forked from .*\(({_UUID})\) as ", re.DOTALL)
_EXIT_CODE = re.compile(r"<(?:exited|shellId: \S+ completed) with exit code (-?\d+)>\s*\Z")
_MAIN_AGENT = "main"
# Origins of user messages that no person typed; others are skills, subagents and schedules.
_INJECTED = frozenset(
    {"system", "autopilot", "jit-instruction", "snippy-blocking", "thinking-exhausted-continuation"}
)
_INJECTED_PREFIXES = ("skill-", "agent-", "schedule-")
# Records that repeat others, or say how the program works. Nothing of a conversation is in them.
_SKIPPED = frozenset(
    {
        "assistant.intent",
        "assistant.usage",
        "pending_messages.modified",
        "session.background_tasks_changed",
        "session.compaction_start",
        "session.idle",
        "session.permissions_changed",
        "session.title_changed",
        "session.tools_updated",
        "session.usage_info",
        "subagent.completed",
        "subagent.configured",
        "subagent.deselected",
        "subagent.selected",
        "tool.execution_partial_result",
        "tool.execution_progress",
    }
)
_SKIPPED_PREFIXES = ("hook.", "model.", "permission.")


class OpenCall(msgspec.Struct, omit_defaults=True):
    """A tool call without a result: its thread, and whether it has diffs already."""

    thread: str | None = None
    has_diffs: bool = False


class SessionState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What reading a session needs to know of the lines before."""

    id: str
    has_events: bool = False
    created_at: int = 0
    updated_at: int = 0
    cwd: str | None = None
    model: str | None = None
    git_branch: str | None = None
    forked_from: str | None = None
    fork_end: int = -1  # the offset of the line after those that a fork copied
    open_since: int | None = None
    is_answered: bool = False  # whether the last message of the agent called no tool
    thought: str | None = None  # the last one; a message may repeat it
    calls: dict[str, OpenCall] = {}
    threads: dict[str, ThreadRef] = {}
    assets: dict[str, int] = {}  # the offsets of attached files
    usage: UsageState = msgspec.field(default_factory=UsageState)
    extra: dict[str, Any] = {}


class Translator:
    """Translates the lines of a session, in order."""

    def __init__(self, path: str, state: SessionState, *, continues: bool) -> None:
        self._path = path
        self.state = state
        self._continues = continues  # an earlier read, whose events cannot change any more
        self._offset = -1
        self._number = 0
        self._is_copied = False  # whether a fork copied the line from its parent

    def translate(self, line: Record) -> Iterator[Item]:
        """Return the events of a line."""
        record, state = line.record, self.state
        kind, data = record.get("type"), record.get("data")
        if not isinstance(kind, str) or not isinstance(data, dict):
            return
        at = bodies.time_of(record.get("timestamp")) or state.updated_at
        if not state.has_events:
            state.has_events, state.created_at = True, at
        if line.offset != self._offset:  # a crash may leave two objects on one line
            self._offset, self._number = line.offset, 0
        thread = self._thread_of(kind, record, data)
        self._is_copied = line.offset < state.fork_end
        for body in self._bodies(kind, record, data, at, thread):
            yield Item(line.seq(self._number), at, body, inherited=self._is_copied)
            self._number += 1
        state.updated_at = max(state.updated_at, at)

    def _thread_of(self, kind: str, record: dict[str, Any], data: dict[str, Any]) -> str | None:
        """Return the subagent whose record this is; None for the session's own agent."""
        agent = bodies.text(record.get("agentId"))
        if agent and agent != _MAIN_AGENT:
            return agent
        call = bodies.text(data.get("parentToolCallId"))
        if kind == "subagent.started":
            call = call or bodies.text(data.get("toolCallId"))
        if not call:
            return None
        threads = self.state.threads.values()
        return next((thread.id for thread in threads if thread.call_id == call), call)

    def _bodies(
        self, kind: str, record: dict[str, Any], data: dict[str, Any], at: int, thread: str | None
    ) -> Iterator[AnyBody]:
        for body in self._own_bodies(kind, record, data, at, thread):
            yield body if thread is None else bodies.in_thread(body, thread)
        if kind == "session.usage_record":
            yield from self._usage_record(data, thread)

    def _own_bodies(
        self, kind: str, record: dict[str, Any], data: dict[str, Any], at: int, thread: str | None
    ) -> Iterator[AnyBody]:
        if thread is None:
            self._note_turn(kind, data, at)
            self._note_facts(kind, data)
        match kind:
            case "user.message":
                yield self._user_message(record, data, thread)
            case "assistant.message":
                yield from self._agent_message(data, thread)
            case "assistant.reasoning":
                if text := bodies.text(data.get("content")):
                    self.state.thought = text
                    yield bodies.thought(text)
            case "tool.execution_start" | "tool.user_requested":
                name = bodies.text(data.get("toolName"))
                yield from self._call(data, name, thread)
            case "tool.execution_complete":
                yield from self._result(data)
            case "session.binary_asset":
                if asset := bodies.text(data.get("assetId")):
                    self.state.assets[asset] = self._offset
            case "session.shutdown":
                for tokens, model in shutdown_usage(self.state.usage, data):
                    yield bodies.model_called(tokens, model)
            case "session.compaction_complete":
                yield from _compaction(record, data)
            case "abort":
                yield bodies.interrupted(bodies.text(data.get("reason")) or "cancelled")
            case "session.error" | "subagent.failed":
                yield _failure(data)
            case "subagent.started":
                self._note_subagent(data, thread or "")
            case "session.start" | "session.resume" | "session.usage_record":
                pass
            case "assistant.turn_start" | "assistant.turn_end":
                pass
            case _:
                if kind == "session.info":
                    self._note_fork(data)
                is_skipped = kind in _SKIPPED or kind.startswith(_SKIPPED_PREFIXES)
                if not is_skipped and not kind.endswith("_delta"):
                    yield bodies.injected(_SOURCE, record)

    # What is true of the whole session.

    def _note_turn(self, kind: str, data: dict[str, Any], at: int) -> None:
        """Note whether the agent works on a prompt."""
        state = self.state
        match kind:
            case "user.message":
                state.open_since, state.is_answered = at, False
            case "assistant.turn_start":
                state.open_since = state.open_since or at
                state.is_answered = False
            case "assistant.message":
                state.is_answered = not data.get("toolRequests")
            case "assistant.turn_end" if state.is_answered:
                state.open_since = None
            case "abort" | "session.error" | "session.shutdown" | "session.start":
                state.open_since = None
            case "session.resume":  # the process before has ended
                state.open_since = None

    def _note_facts(self, kind: str, data: dict[str, Any]) -> None:
        state = self.state
        context = data if kind == "session.context_changed" else data.get("context")
        if isinstance(context, dict) and bodies.text(context.get("cwd")):
            state.cwd = bodies.text(context.get("cwd"))
            state.git_branch = bodies.text(context.get("branch")) or None
            for name in ("gitRoot", "headCommit", "repository"):
                if value := bodies.text(context.get(name)):
                    state.extra[name] = value
        names = ("model", "newModel", "selectedModel", "currentModel")
        if kind.startswith(("session.", "assistant.", "tool.")):
            state.model = next(filter(None, (bodies.text(data.get(n)) for n in names)), state.model)
        if kind == "session.start":
            state.created_at = bodies.time_of(data.get("startTime")) or state.created_at
        if kind in ("session.start", "session.resume", "session.shutdown"):
            for name in (
                "copilotVersion",
                "producer",
                "reasoningEffort",
                "shutdownType",
                "codeChanges",
                "totalPremiumRequests",
                "totalNanoAiu",
            ):
                if data.get(name):
                    state.extra[name] = data[name]

    def _note_fork(self, data: dict[str, Any]) -> None:
        """Note the session that this one is a fork of: all lines before are copies."""
        parent = fork_parent(data)
        if parent is None or parent == self.state.id:
            return
        if self._continues:
            raise Rewritten("the lines before were copied by a fork")
        self.state.forked_from = parent
        self.state.fork_end = max(self.state.fork_end, self._offset)

    def _note_subagent(self, data: dict[str, Any], thread: str) -> None:
        call_id = bodies.text(data.get("toolCallId"))
        call = self.state.calls.get(call_id)
        kind = bodies.text(data.get("agentType")) or bodies.text(data.get("agentName"))
        title = bodies.text(data.get("agentDisplayName"))
        self.state.threads[thread] = ThreadRef(
            id=thread,
            kind=kind or None,
            title=title or None,
            call_id=call_id or None,
            parent=None if call is None else call.thread,
        )

    # Messages.

    def _user_message(
        self, record: dict[str, Any], data: dict[str, Any], thread: str | None
    ) -> AnyBody:
        origin = bodies.text(data.get("source"))
        is_injected = origin in _INJECTED or origin.startswith(_INJECTED_PREFIXES)
        if is_injected and thread is None:
            return bodies.injected(_SOURCE, record)
        blocks: list[Block] = [Text(text=bodies.text(data.get("content")))]
        attachments = data.get("attachments")
        for attachment in attachments if isinstance(attachments, list) else ():
            if isinstance(attachment, dict):
                blocks += self._attachment(attachment)
        return bodies.prompt(blocks)

    def _attachment(self, attachment: dict[str, Any]) -> Iterator[Block]:
        mime = bodies.text(attachment.get("mimeType")) or None
        name = bodies.text(attachment.get("displayName")) or bodies.text(attachment.get("title"))
        path = bodies.text(attachment.get("path")) or bodies.text(attachment.get("filePath"))
        uri = f"file://{path}" if path else bodies.text(attachment.get("url"))
        if image := self._image(attachment):
            yield image
        elif content := bodies.text(attachment.get("text")):
            yield Resource(uri=uri, text=content, mime=mime)
        elif uri:
            yield ResourceLink(uri=uri, name=name, mime=mime)

    def _image(self, part: dict[str, Any]) -> Image | None:
        """Return a picture with its data, which may be in an earlier line."""
        asset = bodies.text(part.get("assetId"))
        if asset in self.state.assets and not part.get("data"):
            record = _record_at(self._path, self.state.assets[asset], asset)
            part = {**part, **record}
        mime = bodies.text(part.get("mimeType"))
        data = bodies.text(part.get("data"))
        return Image(mime=mime, data=data) if data and mime.startswith("image/") else None

    def _agent_message(self, data: dict[str, Any], thread: str | None) -> Iterator[AnyBody]:
        self.state.usage.messages += 1
        thought = bodies.text(data.get("reasoningText"))
        if thought and thought != self.state.thought:
            yield bodies.thought(thought)
        self.state.thought = None
        if text := bodies.text(data.get("content")):
            yield bodies.answer(text)
        requests = data.get("toolRequests")
        for request in requests if isinstance(requests, list) else ():
            if isinstance(request, dict):
                yield from self._call(request, bodies.text(request.get("name")), thread)

    # Tools.

    def _call(self, call: dict[str, Any], name: str, thread: str | None) -> Iterator[AnyBody]:
        """Return a tool call, unless its message has announced it."""
        call_id = bodies.text(call.get("toolCallId"))
        if not call_id or call_id in self.state.calls:
            return
        arguments = call.get("arguments")
        diffs = call_diffs(arguments)
        self.state.calls[call_id] = OpenCall(thread, bool(diffs))
        title = bodies.text(call.get("intentionSummary")) or bodies.text(call.get("toolTitle"))
        fields = arguments if isinstance(arguments, dict) else {}
        has_title = any(bodies.text(fields.get(field)) for field in ("command", "pattern", "query"))
        yield bodies.tool_call(
            call_id,
            name or "tool",
            arguments,
            title=None if has_title else title or None,
            diffs=diffs,
            server=bodies.text(call.get("mcpServerName")) or None,
        )

    def _result(self, data: dict[str, Any]) -> Iterator[AnyBody]:
        call_id = bodies.text(data.get("toolCallId"))
        call = self.state.calls.pop(call_id, OpenCall())
        result, error = data.get("result"), data.get("error")
        result = result if isinstance(result, dict) else {"content": result}
        text = bodies.text(result.get("content")) or bodies.text(result.get("detailedContent"))
        if not text and error:
            text = error if isinstance(error, str) else bodies.text(_field(error, "message"))
        blocks: list[Block] = [Text(text=text)]
        for field in ("contents", "binaryResultsForLlm"):  # an image may be in both
            parts = result.get(field)
            for part in parts if isinstance(parts, list) else ():
                image = self._image(part) if isinstance(part, dict) else None
                if image and image not in blocks:
                    blocks.append(image)
        diffs = [] if call.has_diffs else result_diffs(bodies.text(result.get("detailedContent")))
        yield bodies.tool_result(
            call_id,
            blocks,
            status="failed" if data.get("success") is False or error else "completed",
            exit_code=_exit_code(data, text),
            diffs=diffs,
        )

    # Tokens.

    def _usage_record(self, data: dict[str, Any], thread: str | None) -> Iterator[AnyBody]:
        """Return the tokens of a model call.

        As Copilot counts them, a session's tokens include those of its subagents. A fork has copies
        of its parent's records.
        """
        usage = data.get("usage")
        if not isinstance(usage, dict):
            return
        self.state.usage.has_records = True
        called = bodies.model_called(token_usage(usage), bodies.text(usage.get("model")))
        paid_by = bodies.text(_field(usage.get("accounting"), "sourceSessionId"))
        if thread is None and paid_by and paid_by != self.state.id:
            self.state.forked_from = self.state.forked_from or paid_by
            self._is_copied = True
        yield called
        if thread is not None:
            yield bodies.in_thread(called, thread)


def fork_parent(data: dict[str, Any]) -> str | None:
    """Return the session that a record names as the origin of this one."""
    if data.get("infoType") != "fork":
        return None
    match = _FORK.match(bodies.text(data.get("message")))
    return match and match[1]


def _compaction(record: dict[str, Any], data: dict[str, Any]) -> Iterator[AnyBody]:
    summary = bodies.text(data.get("summaryContent"))
    if data.get("success") is False or not summary:
        yield bodies.injected(_SOURCE, record)
        return
    body = bodies.compacted(summary)
    yield msgspec.structs.replace(
        body,
        tokens_before=bodies.count(data.get("preCompactionTokens")) or None,
        tokens_after=bodies.count(data.get("postCompactionTokens")) or None,
    )


def _failure(data: dict[str, Any]) -> AnyBody:
    message = bodies.text(data.get("message")) or bodies.text(data.get("error"))
    return bodies.failed(
        message or "the turn failed", bodies.text(data.get("errorType")) or "unknown"
    )


def _exit_code(data: dict[str, Any], text: str) -> int | None:
    metrics = _field(data.get("toolTelemetry"), "metrics")
    # Copilot replaces the characters of secrets in texts, so that the text may not say it.
    for code in (_field(data.get("shellExecution"), "exitCode"), _field(metrics, "exit_code")):
        if isinstance(code, int) and not isinstance(code, bool):
            return code
    match = _EXIT_CODE.search(text[-200:])
    return int(match[1]) if match else None


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _record_at(path: str, offset: int, asset: str) -> dict[str, Any]:
    """Return the attached file in the line at an offset; empty if it is gone."""
    with safe_io.open_for_reading(path) as (descriptor, _):
        lines = safe_io.read_lines(descriptor, offset, files.MAX_RECORD_BYTES)
        _, _, data = next(lines, (0, 0, b""))
    for record in files.parse_records(data):
        fields = record.get("data")
        if isinstance(fields, dict) and fields.get("assetId") == asset:
            return fields
    return {}
