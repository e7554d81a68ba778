"""Convert the updates of an agent process to events, for both versions of the protocol."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, get_args

import msgspec

from segue.acp.content import read_block
from segue.acp.rpc import RpcError
from segue.agents.base import Answer, StreamKind
from segue.agents.tools.base import MAX_OUTPUT_CHARACTERS
from segue.model import ids
from segue.model.content import Block, Content, Diff, Text
from segue.model.errors import AgentFailed
from segue.model.event import (
    READ_ONLY_KINDS,
    AgentMessage,
    AgentThought,
    AnyBody,
    Compacted,
    InfoChanged,
    Location,
    ModelCalled,
    Option,
    PlanChanged,
    PlanEntry,
    ToolCall,
    ToolKind,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.model.session import Session

from .history_prompt import INTRODUCTION
from .patches import parse_patch

log = logging.getLogger("segue.agents.acp")

_PLACEHOLDER_TITLE = re.compile(r"New session - \d{4}-\d\d-\d\dT")
_TOOL_KINDS = frozenset(get_args(ToolKind))
_FINAL_STATUSES: dict[str, Any] = {
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
}
_STREAM_KINDS: dict[str, StreamKind] = {"agent_message": "message", "agent_thought": "thought"}
_BODY_TYPES: dict[StreamKind, type[AgentMessage | AgentThought]] = {
    "message": AgentMessage,
    "thought": AgentThought,
}


class EventSink(Protocol):
    """The receiver of the converted events: a Turn, or a Recorder."""

    @property
    def id(self) -> str: ...
    @property
    def session(self) -> Session: ...
    async def emit(self, *bodies: AnyBody) -> object: ...
    async def delta(self, text: str, kind: StreamKind = "message") -> None: ...
    async def request_permission(
        self, title: str, options: Sequence[Option] = ..., call_id: str | None = None
    ) -> Answer: ...


class UpdateHandler:
    """Converts the updates of one turn or, if `replaying`, of a whole conversation.

    With `keep_title`, the agent cannot set the session's title. That is for sessions whose
    beginning the agent does not know.
    """

    def __init__(
        self, turn: EventSink, *, replaying: bool = False, keep_title: bool = False
    ) -> None:
        self._turn = turn
        self._replaying = replaying
        self._keep_title = keep_title
        # The user message that is being replayed: its id and blocks.
        self._user_message: tuple[str, list[Block]] | None = None
        self._current: tuple[StreamKind, str] | None = None  # the message that is being streamed
        self._texts: dict[tuple[StreamKind, str], str] = {}  # the text of each message so far
        self._calls: dict[str, _PendingCall] = {}
        self._terminals: dict[str, bytes] = {}  # the output of each terminal
        self._closed = False
        self.allowed_paths: set[str] = set()  # files that the user has allowed to change
        # The update that ends a turn, in version 2 of the protocol.
        self.result: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def on_update(self, update: dict[str, Any]) -> None:
        """Handle a `session/update`; ignore an invalid one."""
        try:
            if not self._closed:
                await self._convert(update.get("sessionUpdate"), update)
            ended = update.get("state") == "idle" and update.get("stopReason")
            if ended and not self.result.done():
                self.result.set_result(update)
        except msgspec.ValidationError as error:
            log.info("ignored an invalid update: %s in %r", error, update)

    async def _convert(self, kind: Any, update: dict[str, Any]) -> None:
        if kind in ("user_message", "user_message_chunk"):
            if self._replaying:  # segue has the user's messages of a live turn
                await self._add_user_message(update, is_chunk=kind.endswith("_chunk"))
            return
        await self._store_user_message()
        match kind:
            case "agent_message_chunk" | "agent_thought_chunk":
                await self._add_chunk(_STREAM_KINDS[kind.removesuffix("_chunk")], update)
            case "agent_message" | "agent_thought":
                await self._add_message(_STREAM_KINDS[kind], update)
            case "tool_call" | "tool_call_update":
                await self._update_call(update)
            case "tool_call_content_chunk":
                if call := self._calls.get(str(update.get("toolCallId"))):
                    call.raw_content.append(update.get("content"))
            case "terminal_update" if isinstance(output := update.get("output"), dict):
                self._terminals[str(update.get("terminalId"))] = _decode_bytes(output.get("data"))
            case "terminal_output_chunk":
                id = str(update.get("terminalId"))
                data = self._terminals.get(id, b"") + _decode_bytes(update.get("data"))
                self._terminals[id] = data[-MAX_OUTPUT_CHARACTERS:]
            case "plan":
                await self._store_plan("plan", update.get("entries"))
            case "plan_update":
                plan = update.get("plan")
                if isinstance(plan, dict):
                    await self._store_plan(str(plan.get("planId", "plan")), plan.get("entries"))
            case "session_info_update":
                title = meaningful_title(update.get("title"))
                if title and not self._keep_title and title != self._turn.session.title:
                    await self._turn.emit(InfoChanged(title=title, by="agent"))
            case "usage_update":
                await self._store_context_usage(update)
            case "compaction_update" if update.get("status") == "completed":
                await self._turn.emit(Compacted(summary=_parse_blocks(update.get("summary"))))

    def close(self) -> None:
        """Ignore further updates, except the end of the turn: segue's turn is over."""
        self._closed = True

    # Messages.

    async def _add_user_message(self, update: dict[str, Any], *, is_chunk: bool) -> None:
        id, content = str(update.get("messageId") or ""), update.get("content")
        if self._user_message is None or not is_chunk or self._user_message[0] != id:
            await self._store_user_message()
            await self._turn.emit()
            self._current, self._user_message = None, (id, [])
        self._user_message[1].extend(_parse_blocks([content] if is_chunk else content))

    async def _store_user_message(self) -> None:
        message, self._user_message = self._user_message, None
        if message is not None and message[1]:
            await self._turn.emit(UserMessage(content=_join_texts(message[1])))

    async def _add_chunk(self, kind: StreamKind, update: dict[str, Any]) -> None:
        block = read_block(update.get("content"))
        await self._start_message(kind, str(update.get("messageId") or ""))
        if isinstance(block, Text):
            await self._stream(block.text)
        else:
            self._current = None
            await self._turn.emit(_BODY_TYPES[kind](content=(block,)))

    async def _add_message(self, kind: StreamKind, update: dict[str, Any]) -> None:
        """Store a complete message, or the rest of one that was streamed."""
        if not update.get("content"):
            return
        content = _parse_blocks(update["content"])
        key = (kind, str(update.get("messageId") or ids.new_id()))
        text = "".join(block.text for block in content if isinstance(block, Text))
        streamed = self._texts.get(key, "")
        if not text.startswith(streamed):
            log.info("ignored a change to the message %s, which is already stored", key[1])
            return
        is_new = key not in self._texts
        await self._start_message(*key)
        self._texts.setdefault(key, "")
        await self._stream(text[len(streamed) :])
        for block in content:
            if is_new and not isinstance(block, Text):
                await self._turn.emit(_BODY_TYPES[kind](content=(block,)))

    async def _start_message(self, kind: StreamKind, message_id: str) -> None:
        if self._current != (kind, message_id):
            await self._turn.emit()  # stores the previous message
            self._current = (kind, message_id)

    async def _stream(self, text: str) -> None:
        assert self._current is not None
        if text:
            await self._turn.delta(text, self._current[0])
            if self._current[1]:
                self._texts[self._current] = self._texts.get(self._current, "") + text

    # Tool calls.

    async def _update_call(self, update: dict[str, Any]) -> None:
        id = str(update.get("toolCallId"))
        self._current = None
        call_id = ids.derived_id("acp", self._turn.id, id)
        call = self._calls.setdefault(id, _PendingCall(call_id, self._terminals))
        call.apply(update)
        if call.is_described:
            await self._store_call(call)
        if call.is_final and not call.result_stored:
            call.result_stored = True
            await self._turn.emit(call.result())

    async def _store_call(self, call: _PendingCall) -> None:
        if not call.stored:
            call.stored = True
            await self._turn.emit(call.event())

    async def on_permission(self, request: dict[str, Any]) -> str | None:
        """Ask the user on behalf of the agent, and return the id of the chosen option."""
        if self._closed:
            return None
        subject = request.get("subject")
        raw_call = request.get("toolCall")
        if isinstance(subject, dict) and subject.get("type") == "tool_call":
            raw_call = subject.get("toolCall")
        call: _PendingCall | None = None
        if isinstance(raw_call, dict) and raw_call.get("toolCallId") is not None:
            await self._update_call({"status": "pending", **raw_call})
            call = self._calls[str(raw_call["toolCallId"])]
            await self._store_call(call)
        options = _parse_options(request.get("options"))
        title = str(
            request.get("title") or (call.title if call else "") or "May the agent continue?"
        )
        answer = await self._turn.request_permission(title, options, call.id if call else None)
        if answer.option is None or (answer.allowed and answer.input is not None):
            return None  # the protocol cannot send a changed input to the agent, so refuse
        if answer.allowed and call is not None:
            self.allowed_paths |= call.paths
        return answer.option.id

    def on_terminal_output(self, terminal: str, output: str) -> None:
        """Record the current output of a terminal."""
        self._terminals[terminal] = output.encode("utf-8", "replace")[-MAX_OUTPUT_CHARACTERS:]

    # Plans and usage.

    async def _store_plan(self, id: str, entries: Any) -> None:
        plan = [
            PlanEntry(
                content=str(entry.get("content", "")),
                priority=_one_of(entry.get("priority"), ("high", "medium", "low"), "medium"),
                status=_one_of(
                    entry.get("status"),
                    ("pending", "in_progress", "completed", "cancelled"),
                    "pending",
                ),
            )
            for entry in entries or ()
            if isinstance(entry, dict)
        ]
        self._current = None
        await self._turn.emit(PlanChanged(entries=tuple(plan), plan_id=id))

    async def _store_context_usage(self, update: dict[str, Any]) -> None:
        cost = update.get("cost")
        amount = cost.get("amount") if isinstance(cost, dict) else None
        new_cost: int | None = None
        if isinstance(amount, int | float) and _is_in_dollars(cost):
            # The agent reports the cost of the whole session so far.
            new_cost = max(0, round(amount * 1_000_000) - (self._turn.session.usage.cost or 0))
        used, size = update.get("used"), update.get("size")
        await self._turn.emit(
            ModelCalled(
                usage=Usage(cost=new_cost),
                context_used=used if isinstance(used, int) else None,
                context_size=size if isinstance(size, int) else None,
            )
        )

    async def store_usage(self, usage: Any) -> None:
        """Store the token counts in the result of a prompt."""
        if not isinstance(usage, dict):
            return
        tokens = Usage(
            input_tokens=_count(usage.get("inputTokens")),
            output_tokens=_count(usage.get("outputTokens")),
            cache_read_tokens=_count(usage.get("cachedReadTokens")),
            cache_write_tokens=_count(usage.get("cachedWriteTokens")),
        )
        if not tokens.is_zero:
            await self._turn.emit(ModelCalled(usage=tokens))

    async def finish(self) -> None:
        """Store the streamed message, and calls without a description; the agent's turn is over."""
        await self._store_user_message()
        self._current = None
        await self._turn.emit()
        for call in self._calls.values():
            await self._store_call(call)


class Recorder:
    """Collects the events of a conversation that an agent replays."""

    def __init__(self, session: Session) -> None:
        self.id = session.id
        self.session = session
        self.bodies: list[AnyBody] = []
        self._stream: tuple[StreamKind, list[str]] | None = None

    async def emit(self, *bodies: AnyBody) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            self.bodies.append(_BODY_TYPES[stream[0]](content=(Text(text="".join(stream[1])),)))
        self.bodies += bodies

    async def delta(self, text: str, kind: StreamKind = "message") -> None:
        if self._stream is None or self._stream[0] != kind:
            await self.emit()
            self._stream = (kind, [])
        self._stream[1].append(text)

    async def request_permission(
        self, title: str, options: Sequence[Option] = (), call_id: str | None = None
    ) -> Answer:
        return Answer()  # a past call cannot be allowed


class _PendingCall:
    """A tool call, assembled from updates that contain only changes."""

    def __init__(self, id: str, terminals: Mapping[str, bytes]) -> None:
        self.id = id
        self.stored = False
        self.result_stored = False
        self.title = ""
        self.raw_content: list[Any] = []
        self._terminals = terminals
        self._name = ""
        self._kind: Any = "other"
        self._status = ""
        self._input: Any = None
        self._output: Any = None
        self._locations: tuple[Location, ...] = ()

    def apply(self, update: Mapping[str, Any]) -> None:
        """Apply the changes of an update."""
        self.title = _text(update.get("title")) or self.title
        self._name = _text(update.get("name")) or self._name
        self._kind = _one_of(update.get("kind"), tuple(_TOOL_KINDS), self._kind)
        self._status = _text(update.get("status")) or self._status
        self._input = self._input if update.get("rawInput") is None else update["rawInput"]
        self._output = self._output if update.get("rawOutput") is None else update["rawOutput"]
        if isinstance(update.get("content"), list):
            self.raw_content = [*update["content"]]
        if isinstance(update.get("locations"), list):
            self._locations = _parse_locations(update["locations"])

    @property
    def is_described(self) -> bool:
        """True if the call can be shown; many agents send its description in a later update."""
        return bool(self.title) and (self._input is not None or self._status not in ("", "pending"))

    @property
    def is_final(self) -> bool:
        """True if the call has ended."""
        return self._status in _FINAL_STATUSES

    @property
    def paths(self) -> set[str]:
        """The files that the call will change, as the agent declares them."""
        if self._kind in READ_ONLY_KINDS:
            return set()
        diffs = {block.path for block in self.content if isinstance(block, Diff)}
        paths = diffs | {location.path for location in self._locations}
        return {os.path.realpath(path) for path in paths if "\0" not in path}

    @property
    def content(self) -> Content:
        return _parse_tool_content(self.raw_content, self._terminals)

    def event(self) -> ToolCall:
        return ToolCall(
            call_id=self.id,
            name=self._name or self.title or "tool",
            title=self.title or None,
            kind=self._kind,
            input=self._input,
            content=self.content,
            locations=self._locations,
        )

    def result(self) -> ToolResult:
        return ToolResult(
            call_id=self.id,
            status=_FINAL_STATUSES[self._status],
            content=self.content,
            output=self._output,
            exit_code=_exit_code(self._output),
        )


def meaningful_title(value: Any) -> str:
    """Return a title, or "" if it does not describe the conversation.

    Some agents use the time of creation as the title, others the beginning of segue's introduction.
    """
    title = _text(value).strip()
    is_placeholder = _PLACEHOLDER_TITLE.match(title) or title.startswith(INTRODUCTION)
    return "" if is_placeholder else title


def stop_reason(result: Any) -> Any:
    """Return the stop reason in the result of a turn. Raises AgentFailed if the turn failed."""
    reason = result.get("stopReason") if isinstance(result, dict) else None
    if reason == "error":
        error = RpcError.from_wire(result.get("error") or {})
        raise AgentFailed(f"the agent failed: {error.message}")
    known = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
    return reason if reason in known else "end_turn"


def _parse_options(raw: Any) -> list[Option]:
    options = []
    for option in raw or ():
        try:
            options.append(
                Option(
                    id=option["optionId"],
                    name=option.get("name") or option["optionId"],
                    kind=_one_of(
                        option.get("kind"),
                        ("allow_once", "allow_always", "reject_once", "reject_always"),
                        "reject_once",  # an unknown kind must not count as approval
                    ),
                )
            )
        except (KeyError, TypeError, AttributeError):
            continue
    return options


def _parse_blocks(raw: Any) -> Content:
    """Return the valid content blocks in a list."""
    blocks: list[Block] = []
    for block in raw if isinstance(raw, list) else ():
        try:
            blocks.append(read_block(block))
        except msgspec.ValidationError as error:
            log.info("ignored an invalid content block: %s", error)
    return tuple(blocks)


def _join_texts(blocks: Sequence[Block]) -> Content:
    """Return the blocks with adjacent texts joined."""
    joined: list[Block] = []
    for block in blocks:
        last = joined[-1] if joined else None
        if isinstance(block, Text) and isinstance(last, Text):
            joined[-1] = Text(text=last.text + block.text)
        else:
            joined.append(block)
    return tuple(joined)


def _parse_tool_content(raw: Sequence[Any], terminals: Mapping[str, bytes]) -> Content:
    """Return the content of a tool call, with the output of its terminals as text."""
    blocks: list[Block] = []
    for item in raw:
        match item:
            case {"type": "content", "content": block}:
                blocks += _parse_blocks([block])
            case {"type": "terminal", "terminalId": str(id)}:
                if output := terminals.get(id):
                    blocks.append(Text(text=output.decode("utf-8", "replace")))
            case {"type": "diff", "path": str(path), "newText": str(new)}:
                old = item.get("oldText")
                blocks.append(Diff(path=path, new=new, old=old if isinstance(old, str) else None))
            case {"type": "diff", "patch": {"text": str(patch)}}:
                blocks += parse_patch(patch)
            case {"type": "diff", "changes": list(changes)}:
                paths = [change.get("path") for change in changes if isinstance(change, dict)]
                blocks.append(Text(text="\n".join(path for path in paths if isinstance(path, str))))
    return tuple(blocks)


def _parse_locations(raw: Sequence[Any]) -> tuple[Location, ...]:
    return tuple(
        Location(path=item["path"], line=line if isinstance(line, int) else None)
        for item in raw
        if isinstance(item, dict) and isinstance(item.get("path"), str)
        for line in (item.get("line"),)
    )


def _decode_bytes(data: Any) -> bytes:
    try:
        return base64.b64decode(data, validate=True)[-MAX_OUTPUT_CHARACTERS:]
    except (ValueError, TypeError):
        return b""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _one_of(value: Any, known: Sequence[str], default: Any) -> Any:
    return value if value in known else default


def _count(value: Any) -> int | None:
    return max(0, value) if isinstance(value, int) else None


def _exit_code(output: Any) -> int | None:
    """Return the exit code in the raw output of a call; agents spell its name in two ways."""
    code = None
    if isinstance(output, dict):
        code = output.get("exit_code", output.get("exitCode"))
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def _is_in_dollars(cost: Any) -> bool:
    return str(cost.get("currency", "USD")).upper() == "USD"
