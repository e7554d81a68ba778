"""Translate opencode's messages into events.

An assistant message is one request to a model. Its parts are completed while it runs: a text when
the model has said it, a tool call when the tool has ended. Texts, thoughts and calls are in the
order of the parts. A result is before the parts that begin after it, as it was written. The tokens
are last. What is not complete, and what follows it, is left to the next read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from segue.model import clock
from segue.model.content import Block, Diff, Resource, ResourceLink, Text
from segue.model.event import AnyBody, ToolKind, Usage
from segue.sources.kit import bodies
from segue.sources.kit.patches import parse_patch
from segue.sources.kit.reader import FIRST_SEQ, Item, Rewritten

from .records import Message, Part, SessionInfo, millis, text_or_none

_SOURCE = "opencode"
_ABORTED = "MessageAbortedError"
_ABANDONED_MS = 60_000  # after the last write of a text that the model has not ended
_CONTINUES = ("tool-calls", "unknown")  # the finish of a message that another one follows
_VERSIONS_WITHOUT_TOTAL = ("0.", "1.0.", "1.1.")
_IGNORED = frozenset({"step-start", "step-finish", "snapshot"})
_KINDS: dict[str, ToolKind] = {"todowrite": "think", "todoread": "think", "task": "other"}


class OpencodeState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What reading a session needs to know of the messages before."""

    last_ms: int = 0  # the time of the last complete message
    last_id: str = ""
    messages: int = 0  # the number of complete ones
    parts: int = 0  # of complete messages
    events: int = 0  # of complete messages
    open_events: list[str] = []  # the records of the next message, which is not complete
    has_partial: bool = False  # whether one of them is a text that was abandoned
    damaged: int = 0
    revert: str = ""
    is_reverted: bool = False  # whether the messages are hidden
    model: str | None = None
    forked_from: str | None = None
    compacts_itself: bool = False  # whether no person asked for the next summary
    prompted_at: int = 0
    has_prompt: bool = False  # whether a person typed something
    is_open: bool = False
    spawns: dict[str, str] = {}  # the call that started each subagent


class _Event(NamedTuple):
    """An event of a message: the time in milliseconds, the part or message, and the body."""

    at: int
    record: str
    body: AnyBody


class Translator:
    """Translates the messages of a session, in order."""

    def __init__(self, state: OpencodeState, session: SessionInfo) -> None:
        self.state = state
        self.problems: list[str] = []
        self.version = bodies.text(session.extra.get("version"))
        self._session = session
        self._now_ms = clock.now() // 1000

    def translate(self, messages: Iterable[Message]) -> Iterator[Item]:
        """Yield the events up to the first one that is not complete."""
        state = self.state
        for message, has_successor, is_last in _with_successors(messages):
            has_successor = has_successor or (not is_last and self._is_left(message))
            events, is_complete = self._message(message, has_successor=has_successor)
            if not {event.record for event in events}.issuperset(state.open_events):
                raise Rewritten("parts of a message were removed")
            yield from self._items(message, events)
            if not is_complete:
                return
            state.last_ms, state.last_id = message.created_ms, message.id
            state.messages += 1
            state.parts += len(message.parts)
            state.events += len(events)
            state.open_events = []

    def _items(self, message: Message, events: list[_Event]) -> Iterator[Item]:
        """Yield the events of a message that were not read before."""
        state = self.state
        is_copy = message.created_ms < self._session.created_ms
        revert = self._session.revert or {}
        first_part = ""
        if revert.get("messageID") == message.id:
            first_part = bodies.text(revert.get("partID"))
            state.is_reverted = state.is_reverted or not first_part
        for event in events:
            if event.record in state.open_events:
                continue
            body = event.body
            part = event.record.partition(".")[0]
            if state.is_reverted or (first_part and part >= first_part):
                body = bodies.off_branch(body)
            seq = FIRST_SEQ + state.events + len(state.open_events)
            state.open_events.append(event.record)
            inherited = is_copy and state.forked_from is not None
            yield Item(seq, event.at * 1000, body, event.record, inherited)
        state.is_reverted = state.is_reverted or bool(first_part)

    def _message(self, message: Message, *, has_successor: bool) -> tuple[list[_Event], bool]:
        """Return the events of a message, and whether they are all."""
        for part in message.parts:
            if part.data is None:
                self.problems.append(f"part {part.id} is damaged")
        if message.role == "user":
            return self._prompt(message), bool(message.parts) or has_successor
        if message.role == "assistant":
            return _AssistantMessage(self, message, has_successor=has_successor).events()
        self.problems.append(f"message {message.id} is damaged")
        self.state.damaged += 1
        return [], True

    def _is_left(self, message: Message) -> bool:
        """Return whether opencode ended in an answer, before it came to the prompts that follow."""
        is_open = message.role == "assistant" and not _time(message.data or {}, "completed")
        newest = max(message.parts, key=lambda part: part.updated_ms, default=None)
        return is_open and newest is not None and self.is_abandoned(newest)

    def is_abandoned(self, part: Part) -> bool:
        """Return whether a part that is not complete is shown as far as it came."""
        is_abandoned = self._now_ms - part.updated_ms > _ABANDONED_MS
        self.state.has_partial = self.state.has_partial or is_abandoned
        return is_abandoned

    # Prompts.

    def _prompt(self, message: Message) -> list[_Event]:
        state, data = self.state, message.data or {}
        at = _time(data, "created") or message.created_ms
        model = data.get("model")
        if isinstance(model, dict):
            state.model = text_or_none(model.get("modelID")) or state.model
        typed: list[Block] = []
        others: list[dict[str, Any]] = []
        for part in message.parts:
            blocks = list(_typed(part.data or {}))
            typed += blocks
            if part.data is not None and not blocks:
                others.append(part.data)
            if part.type == "compaction" and part.data is not None:
                state.compacts_itself = part.data.get("auto") is True
        events = []
        content = bodies.content_of(typed)
        if content:
            state.has_prompt = True
            events.append(_Event(at, message.id, bodies.prompt(content)))
        if others:
            events.append(_Event(at, f"{message.id}.context", bodies.injected(_SOURCE, others)))
        state.prompted_at, state.is_open = at, True
        return events


class _AssistantMessage:
    """Translates one assistant message, whose parts may not be complete."""

    def __init__(self, translator: Translator, message: Message, *, has_successor: bool) -> None:
        self._translator = translator
        self._state = translator.state
        self._message = message
        self._data = message.data or {}
        self._error = self._data.get("error")
        self._ended_ms = _time(self._data, "completed")
        self._is_ended = bool(self._ended_ms or self._error or has_successor)
        self._is_summary = self._data.get("summary") is True
        self._summary: list[str] = []

    def events(self) -> tuple[list[_Event], bool]:
        """Return the events up to the first one that is not complete, and whether they are all."""
        state = self._state
        state.model = text_or_none(self._data.get("modelID")) or state.model
        events: list[_Event] = []
        calls: list[Part] = []  # their results are not among the events
        for part in self._message.parts:
            self._move_results(calls, events, before_ms=_start(part))
            if not self._is_complete(part):
                return events, self._note_open()
            events += self._part(part)
            if part.type == "tool":
                calls.append(part)
        self._move_results(calls, events)
        if not self._is_ended:
            return events, self._note_open()
        events += self._end()
        finish = self._data.get("finish")
        state.is_open = bool(not self._error and self._ended_ms and finish in _CONTINUES)
        return events, True

    def _note_open(self) -> bool:
        self._state.is_open = True
        return False

    def _is_complete(self, part: Part) -> bool:
        """Return whether the first event of a part will not change any more."""
        data = part.data
        if data is None or self._is_ended:
            return True
        if part.type in ("text", "reasoning"):
            time = data.get("time")
            has_end = isinstance(time, dict) and bool(time.get("end"))
            return has_end or self._translator.is_abandoned(part)
        if part.type == "tool":
            return _tool_state(data).get("status") != "pending"
        return True

    def _part(self, part: Part) -> Iterator[_Event]:
        """Return the first event of a part."""
        data = part.data or {}
        time = data.get("time")
        times = time if isinstance(time, dict) else {}
        at = millis(times.get("end")) or millis(times.get("start")) or self._message.created_ms
        text = bodies.text(data.get("text"))
        match part.type:
            case "text" if self._is_summary:
                self._summary.append(text)
            case "text" if data.get("synthetic") or data.get("ignored"):
                yield _Event(at, part.id, bodies.injected(_SOURCE, data))
            case "text" if text:
                is_partial = not self._ended_ms and not times.get("end")
                yield _Event(at, part.id, bodies.answer(text, partial=is_partial))
            case "reasoning":
                if text:
                    yield _Event(at, part.id, bodies.thought(text))
            case "tool":
                yield self._call(part.id, data)
            case "file":
                yield _Event(at, part.id, bodies.answer([_file(data)]))
            case "retry":
                failed = _failed(data.get("error"))
                retried = msgspec.structs.replace(failed, retry="retrying")
                yield _Event(millis(times.get("created")) or at, part.id, retried)
            case "" | "text":
                pass
            case kind if kind not in _IGNORED:
                yield _Event(at, part.id, bodies.injected(_SOURCE, data))

    def _call(self, id: str, data: Mapping[str, Any]) -> _Event:
        state = _tool_state(data)
        name = bodies.text(data.get("tool")) or "unknown"
        fields = state.get("input")
        call_id = bodies.text(data.get("callID")) or id
        self._note_subagent(call_id, state)
        call = bodies.tool_call(
            call_id,
            name,
            fields,
            kind=_KINDS.get(name),
            diffs=_diffs(name, fields) if isinstance(fields, dict) else (),
        )
        return _Event(_time(state, "start") or self._message.created_ms, id, call)

    def _note_subagent(self, call_id: str, state: Mapping[str, Any]) -> None:
        metadata = state.get("metadata")
        child = metadata.get("sessionId") if isinstance(metadata, dict) else None
        if isinstance(child, str) and child:
            self._state.spawns[child] = call_id

    def _move_results(
        self, calls: list[Part], events: list[_Event], *, before_ms: int | None = None
    ) -> None:
        """Move the results that there are to the events: all, or those before a time."""
        ended = []
        for part in calls:
            state = _tool_state(part.data or {})
            at = _time(state, "end") or self._message.created_ms
            is_due = before_ms is None or at < before_ms
            if is_due and state.get("status") in ("completed", "error"):
                ended.append((at, part.id, part))
        for at, id, part in sorted(ended):
            data = part.data or {}
            call_id = bodies.text(data.get("callID")) or id
            self._note_subagent(call_id, _tool_state(data))  # a running call may not name it yet
            events.append(_Event(at, f"{id}.result", _result(call_id, _tool_state(data))))
            calls.remove(part)

    def _end(self) -> Iterator[_Event]:
        """Return what is known at the end of a message: its tokens, an error, a summary."""
        state, id = self._state, self._message.id
        at = self._ended_ms or self._message.created_ms
        tokens = _usage(self._data, self._translator.version)
        if not tokens.is_zero:
            yield _Event(at, f"{id}.usage", bodies.model_called(tokens, state.model))
        error = self._error
        if isinstance(error, dict) and error.get("name") == _ABORTED:
            yield _Event(at, f"{id}.error", bodies.interrupted())
        elif error:
            yield _Event(at, f"{id}.error", _failed(error))
        elif self._is_summary and self._ended_ms:
            summary = "\n\n".join(filter(None, self._summary))
            compacted = bodies.compacted(summary, "auto" if state.compacts_itself else "manual")
            yield _Event(at, f"{id}.summary", compacted)


def _with_successors(messages: Iterable[Message]) -> Iterator[tuple[Message, bool, bool]]:
    """Return each message, whether the agent has written a later one, and if it is the last."""
    waiting: list[Message] = []
    for message in messages:
        if message.role == "assistant":
            yield from ((earlier, True, False) for earlier in waiting)
            waiting = []
        waiting.append(message)
    for message in waiting:
        yield message, False, message is waiting[-1]


def _time(data: Mapping[str, Any], name: str) -> int:
    time = data.get("time")
    return millis(time.get(name)) if isinstance(time, dict) else 0


def _start(part: Part) -> int:
    """Return when a part began; 0 if it does not say so."""
    data = part.data or {}
    return _time(_tool_state(data) if part.type == "tool" else data, "start")


def _tool_state(data: Mapping[str, Any]) -> dict[str, Any]:
    state = data.get("state")
    return state if isinstance(state, dict) else {}


def _typed(data: Mapping[str, Any]) -> Iterator[Block]:
    """Return the content of a part that a person entered."""
    match data.get("type"):
        case "text" if not data.get("synthetic") and not data.get("ignored"):
            yield Text(text=bodies.text(data.get("text")))
        case "subtask":
            yield Text(text=bodies.text(data.get("prompt")))
        case "file":
            yield _file(data)


def _file(data: Mapping[str, Any]) -> Block:
    """Return a file: a picture, included data or a reference."""
    url, mime = bodies.text(data.get("url")), bodies.text(data.get("mime"))
    name = bodies.text(data.get("filename"))
    if mime.startswith("image/"):
        return bodies.image(url, mime)
    if url.startswith("data:") and "," in url:
        return Resource(uri=name or "attachment", data=url.split(",", 1)[1], mime=mime or None)
    return ResourceLink(uri=url, name=name, mime=mime or None)


def _result(call_id: str, state: Mapping[str, Any]) -> AnyBody:
    if state.get("status") == "error":
        error = bodies.text(state.get("error"))
        is_aborted = error.lower().startswith("tool execution aborted")
        return bodies.tool_result(call_id, error, status="cancelled" if is_aborted else "failed")
    metadata = state.get("metadata")
    exit_code = metadata.get("exit") if isinstance(metadata, dict) else None
    attachments = state.get("attachments")
    blocks: list[Block] = [Text(text=bodies.text(state.get("output")))]
    for attachment in attachments if isinstance(attachments, list) else ():
        if isinstance(attachment, dict):
            blocks.append(_file(attachment))
    return bodies.tool_result(
        call_id, blocks, exit_code=exit_code if isinstance(exit_code, int) else None
    )


def _failed(error: Any) -> Any:
    """Return an error of a message: a name and data."""
    fields = error if isinstance(error, dict) else {}
    data = fields.get("data")
    message = bodies.text(data.get("message")) if isinstance(data, dict) else ""
    name = bodies.text(fields.get("name"))
    message = message or bodies.text(fields.get("message")) or name or "the request failed"
    return bodies.failed(message, name or "unknown")


def _usage(data: Mapping[str, Any], version: str) -> Usage:
    """Return the tokens of a message; those of thoughts are output."""
    tokens = data.get("tokens")
    counts = tokens if isinstance(tokens, dict) else {}
    cache = counts.get("cache")
    cached = cache if isinstance(cache, dict) else {}
    cost, output = data.get("cost"), counts.get("output")
    if counts.get("reasoning") is not None and not _has_thoughts(counts, cached, version):
        output = bodies.count(output) + bodies.count(counts["reasoning"])
    return bodies.usage(
        input=counts.get("input"),
        output=output,
        cache_read=cached.get("read"),
        cache_write=cached.get("write"),
        cost=cost if isinstance(cost, int | float) else None,
        input_includes_cache=False,
    )


def _has_thoughts(counts: Mapping[str, Any], cached: Mapping[str, Any], version: str) -> bool:
    """Return whether the output of a message includes its thoughts, as in older versions."""
    if counts.get("total") is None:
        return version.startswith(_VERSIONS_WITHOUT_TOTAL)
    values = (counts.get("input"), counts.get("output"), cached.get("read"), cached.get("write"))
    return sum(map(bodies.count, values)) == bodies.count(counts["total"])


def _diffs(tool: str, fields: Mapping[str, Any]) -> list[Diff]:
    """Return the changes of files that a call asks for."""
    path = bodies.text(fields.get("filePath"))
    if patch := bodies.text(fields.get("patchText")):
        return parse_patch(patch)
    if tool == "write" and path and isinstance(fields.get("content"), str):
        return [Diff(path=path, new=fields["content"])]
    edits = fields.get("edits")
    changes = [fields, *(edits if isinstance(edits, list) else ())]
    diffs = []
    for change in changes:
        new = change.get("newString") if isinstance(change, dict) else None
        if isinstance(new, str):
            target = bodies.text(change.get("filePath")) or path
            old = bodies.text(change.get("oldString"))
            diffs.append(Diff(path=target, old=old or None, new=new))
    return diffs
