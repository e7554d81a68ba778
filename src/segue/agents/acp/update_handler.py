"""Convert the updates of an agent process to events, for both versions of the protocol."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from segue.acp.content import read_block_of_agent
from segue.acp.rpc import RpcError
from segue.agents.base import Answer, StreamKind
from segue.agents.tools.base import MAX_OUTPUT_CHARACTERS
from segue.model import ids
from segue.model.content import Block, Content, Text
from segue.model.errors import AgentFailed
from segue.model.event import (
    AgentMessage,
    AgentThought,
    AnyBody,
    Compacted,
    ConfigChanged,
    Draft,
    InfoChanged,
    ModelCalled,
    Option,
    PlanChanged,
    PlanEntry,
    Usage,
    UserMessage,
)
from segue.model.session import Session

from .agent_options import OFFERED, valid_commands
from .history_prompt import INTRODUCTION
from .tool_calls import (
    DIALECT,
    MIN_UNIQUE_CHARACTERS,
    PendingCall,
    call_id_of,
    one_of,
    parse_blocks,
    protocol_fields,
    text_of,
)

log = logging.getLogger("segue.agents.acp")

DEFAULT_QUESTION = "May the agent continue?"  # if a permission request has no title
_PLACEHOLDER_TITLE = re.compile(r"New session - \d{4}-\d\d-\d\dT")
_STREAM_KINDS: dict[str, StreamKind] = {"agent_message": "message", "agent_thought": "thought"}
BODY_TYPES: dict[StreamKind, type[AgentMessage | AgentThought]] = {
    "message": AgentMessage,
    "thought": AgentThought,
}
# Updates that clients get from segue, which has the user's messages and states of its own, and
# updates that are forwarded when they are converted.
_NOT_FORWARDED = (
    "user_message",
    "user_message_chunk",
    "state_update",
    "agent_message",
    "agent_message_chunk",
    "agent_thought",
    "agent_thought_chunk",
    "session_info_update",
)


class EventSink(Protocol):
    """The receiver of the converted events: a Turn, or an EventCollector."""

    @property
    def id(self) -> str: ...
    @property
    def session(self) -> Session: ...
    async def emit(self, *bodies: AnyBody | Draft) -> object: ...
    async def delta(
        self,
        text: str,
        kind: StreamKind = "message",
        *,
        message_id: str | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None: ...
    async def request_permission(
        self,
        title: str,
        options: Sequence[Option] = ...,
        call_id: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Answer: ...
    def publish(self, payload: Any) -> None: ...


class UpdateHandler:
    """Converts the updates of one turn or, if `replaying`, of a whole conversation.

    With `keep_title`, the agent cannot set the session's title. That is for sessions whose
    beginning the agent does not know. `version` is that of the agent's protocol.
    """

    def __init__(
        self,
        turn: EventSink,
        *,
        version: int = 1,
        replaying: bool = False,
        keep_title: bool = False,
    ) -> None:
        self._turn = turn
        self._version = version
        self._meta: Any = None  # of the message that is being handled
        self._replaying = replaying
        self._keep_title = keep_title
        # The user message that is being replayed: its id and blocks.
        self._user_message: tuple[str, list[Block]] | None = None
        self._current: tuple[StreamKind, str] | None = None  # the message that is being streamed
        self._message_id = ""  # of that message, in segue
        self._message_size = 0  # characters of it so far
        self._parts: dict[tuple[StreamKind, str], int] = {}  # stored parts of each message
        self._texts: dict[tuple[StreamKind, str], str] = {}  # the text of each message so far
        self._calls: dict[str, PendingCall] = {}
        # Tool calls that segue announced because a permission request named them first, with the
        # fields that end them: none before the answer, None if the agent updates the call itself.
        self._asked: dict[str, dict[str, Any] | None] = {}
        self._terminals: dict[str, bytes] = {}  # the output of each terminal
        self._summaries: dict[str, list[Block]] = {}  # of compactions, as they are streamed
        self._closed = False
        self.allowed_paths: set[str] = set()  # files that the user has allowed to change
        # The update that ends a turn, in version 2 of the protocol.
        self.result: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def on_update(self, update: dict[str, Any], meta: Any = None) -> None:
        """Handle a `session/update`, whose message has `meta`; do not store an invalid one."""
        self._meta = meta
        try:
            if not self._closed:
                kind = update.get("sessionUpdate")
                if str(update.get("toolCallId")) in self._asked:
                    self._asked[str(update["toolCallId"])] = None
                    if kind == "tool_call":  # clients know the call already
                        update = {**update, "sessionUpdate": "tool_call_update"}
                has_background = "background" in update and not update.get("stopReason")
                if kind not in _NOT_FORWARDED or has_background:
                    self._forward(update)
                elif kind == "user_message_chunk" and not self._replaying and self._version == 1:
                    # Perhaps the prompt: other clients have it from segue.
                    self._forward(update, for_prompter=True)
                await self._convert(kind, update)
            ended = update.get("state") == "idle" and update.get("stopReason")
            if ended and not self.result.done():
                self.result.set_result(update)
        except msgspec.ValidationError as error:
            log.info("ignored an invalid update: %s in %r", error, update)

    def _forward(self, update: dict[str, Any], **more: Any) -> None:
        """Send an update as it is, with segue's ids, to clients that use the same protocol."""
        if isinstance(commands := update.get("availableCommands"), list):
            commands = valid_commands(commands, self._version)
            update = {**update, "availableCommands": commands}
        payload = {"version": self._version, "update": update, **more}
        if "toolCallId" in update:
            id = str(update["toolCallId"])
            payload["native_call_id"] = id
            payload["update"] = {**update, "toolCallId": call_id_of(self._turn.id, id)}
        self._turn.publish(payload if self._meta is None else {**payload, "_meta": self._meta})

    def forward_child(self, child: str, update: dict[str, Any], meta: Any) -> None:
        """Send an update of the session of a subagent as it is."""
        payload = {"version": self._version, "session": child, "update": update}
        self._turn.publish(payload if meta is None else {**payload, "_meta": meta})

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
            case "plan_removed":
                await self._store_plan(str(update.get("planId", "plan")), [])
            case "plan_update":
                plan = update.get("plan")
                if isinstance(plan, dict):
                    await self._store_plan(str(plan.get("planId", "plan")), plan.get("entries"))
            case "session_info_update":
                await self._update_info(update)
            case "usage_update":
                await self._store_context_usage(update)
            case "compaction_summary_chunk":
                chunks = self._summaries.setdefault(str(update.get("compactionId")), [])
                chunks += parse_blocks([update.get("content")])
            case "compaction_update" if update.get("status") == "completed":
                chunks = self._summaries.pop(str(update.get("compactionId")), [])
                summary = parse_blocks(update.get("summary")) or _join_texts(chunks)
                extra = protocol_fields(update.get("_meta"))
                await self._turn.emit(Compacted(summary=summary, extra=extra))

    async def _update_info(self, update: dict[str, Any]) -> None:
        """Store a title, unless it does not describe the conversation."""
        title = meaningful_title(update.get("title"))
        accepted = bool(title) and not self._keep_title
        fields = {name: value for name, value in update.items() if name != "title" or accepted}
        if len(fields) > 1:
            self._forward(fields)
        if accepted and title != self._turn.session.title:
            await self._turn.emit(InfoChanged(title=title, by="agent", extra=protocol_fields()))

    async def store_offered(self, offered: Mapping[str, Any]) -> None:
        """Store the options and commands that the agent offers now."""
        if not self._closed and offered != self._turn.session.options.get(OFFERED, {}):
            change = ConfigChanged(options={OFFERED: offered}, extra=protocol_fields())
            await self._turn.emit(change)

    def continue_with(self, sink: EventSink) -> None:
        """Convert further updates for another receiver: the turn is over."""
        self._turn = sink

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
        self._user_message[1].extend(parse_blocks([content] if is_chunk else content))

    async def _store_user_message(self) -> None:
        message, self._user_message = self._user_message, None
        if message is not None and message[1]:
            id = self._event_id("user", message[0]) if message[0] else None
            body = UserMessage(content=_join_texts(message[1]))
            await self._turn.emit(Draft(id=id, body=body))

    def _event_id(self, kind: str, message_id: str, part: int = 0) -> str:
        """Return the event id of a message, or of a later part of it.

        Agents use short ids again in other turns.
        """
        is_unique = self._replaying or len(message_id) >= MIN_UNIQUE_CHARACTERS
        scope = (self._turn.session.id,) if is_unique else (self._turn.session.id, self._turn.id)
        parts = (*scope, kind, message_id, *([str(part)] if part else []))
        return ids.derived_id(DIALECT, *parts)

    async def _add_chunk(self, kind: StreamKind, update: dict[str, Any]) -> None:
        native_id = update.get("messageId")
        block = read_block_of_agent(update.get("content"))
        await self._start_message(kind, str(native_id or ""))
        text = block.text if isinstance(block, Text) else ""
        forwarded = {**update, "messageId": self._message_id} if native_id else update
        end = self._message_size + len(text)
        self._forward(forwarded, message=self._message_id, end=end)
        extra = protocol_fields(update.get("_meta"))
        if isinstance(block, Text):
            await self._stream(block.text, extra)
        else:
            id, self._current = self._message_id, None
            body = BODY_TYPES[kind](content=(block,), extra=extra)
            await self._turn.emit(Draft(id=None if self._message_size else id, body=body))

    async def _add_message(self, kind: StreamKind, update: dict[str, Any]) -> None:
        """Store a complete message, or the rest of one that was streamed."""
        key = (kind, str(update.get("messageId") or ids.new_id()))
        content = parse_blocks(update.get("content"))
        text = "".join(block.text for block in content if isinstance(block, Text))
        if self._parts.get(key, 0) <= 1:  # clients have a divided message from its chunks
            id = self._event_id(*key)
            sent = {"message": id, "end": len(text)} if content else {}
            self._forward({**update, "messageId": id}, **sent)
        if not content:
            return
        streamed = self._texts.get(key, "")
        if not text.startswith(streamed):
            log.info("ignored a change to the message %s, which is already stored", key[1])
            return
        is_new = key not in self._texts
        await self._start_message(*key)
        self._texts.setdefault(key, "")
        extra = protocol_fields(update.get("_meta"))
        await self._stream(text[len(streamed) :], extra)
        for block in content:
            if is_new and not isinstance(block, Text):
                await self._turn.emit(BODY_TYPES[kind](content=(block,), extra=extra))

    async def _start_message(self, kind: StreamKind, message_id: str) -> None:
        if self._current != (kind, message_id):
            await self._turn.emit()  # stores the previous message
            self._current = key = (kind, message_id)
            part = self._parts.get(key, 0)
            self._message_id = (
                self._event_id(kind, message_id, part) if message_id else ids.new_id()
            )
            self._message_size = 0
            self._parts[key] = part + 1

    async def _stream(self, text: str, extra: dict[str, Any]) -> None:
        assert self._current is not None
        if text:
            await self._turn.delta(text, self._current[0], message_id=self._message_id, extra=extra)
            self._message_size += len(text)
            if self._current[1]:
                self._texts[self._current] = self._texts.get(self._current, "") + text

    # Tool calls.

    async def _update_call(self, update: dict[str, Any]) -> None:
        id = str(update.get("toolCallId"))
        self._current = None
        call = self._calls.get(id)
        if call is None:
            call = PendingCall(call_id_of(self._turn.id, id), self._terminals)
            self._calls[id] = call
        status_changed = call.apply(update)
        # Streamed output and input are stored when the status changes.
        if call.is_final or (call.is_described and (call.stored is None or status_changed)):
            await self._store_call(call)
        if call.is_final and not call.result_stored:
            call.result_stored = True
            await self._turn.emit(call.result())

    async def _store_call(self, call: PendingCall) -> None:
        """Store a call, or what has changed since it was stored."""
        if call.stored is None:
            call.stored = call.event()
            await self._turn.emit(call.stored)
        elif change := call.take_change():
            await self._turn.emit(change)

    async def on_permission(self, request: dict[str, Any]) -> str | dict[str, Any] | None:
        """Ask the user on behalf of the agent.

        Returns the response of a client that uses the agent's protocol, or the id of the option.
        """
        if self._closed:
            return None
        subject = request.get("subject")
        raw_call = request.get("toolCall")
        if isinstance(subject, dict) and subject.get("type") == "tool_call":
            raw_call = subject.get("toolCall")
        call: PendingCall | None = None
        if isinstance(raw_call, dict) and raw_call.get("toolCallId") is not None:
            known = self._calls.get(str(raw_call["toolCallId"]))
            # A title of the request does not replace that of the call.
            own_title = {"title": known.title} if known is not None and known.title else {}
            update = {"status": "pending", **raw_call, **own_title}
            if known is None:
                self._announce_asked(update)
            await self._update_call(update)
            call = self._calls[str(raw_call["toolCallId"])]
            await self._store_call(call)
        elif isinstance(subject, dict) and subject.get("type") == "command":
            call = self._calls.get(str(subject.get("toolCallId")))
        options = _parse_options(request.get("options"))
        asked_title = raw_call.get("title") if isinstance(raw_call, dict) else None
        title = str(
            request.get("title") or asked_title or (call.title if call else "") or DEFAULT_QUESTION
        )
        answer = await self._turn.request_permission(
            title,
            options,
            None if call is None else call.id,
            {DIALECT: {"version": self._version, "request": self._client_request(request)}},
        )
        native_id = str(raw_call.get("toolCallId")) if isinstance(raw_call, dict) else ""
        if self._asked.get(native_id) is not None:
            self._asked[native_id] = _result_fields(answer)
        if answer.option is None or (answer.allowed and answer.input is not None):
            return None  # the protocol cannot send a changed input to the agent, so refuse
        if answer.allowed and call is not None:
            self.allowed_paths |= call.paths
        response: dict[str, Any] | None = answer.extra.get(DIALECT, {}).get("response")
        return response or answer.option.id

    def _announce_asked(self, update: dict[str, Any]) -> None:
        """Announce a tool call of a permission request that the agent has not announced itself."""
        kind = "tool_call" if self._version == 1 else "tool_call_update"
        title = text_of(update.get("title")) or DEFAULT_QUESTION
        self._meta = None
        self._forward({**update, "sessionUpdate": kind, "title": title})
        self._asked[str(update["toolCallId"])] = {}

    async def _end_asked(self) -> None:
        """End the tool calls that only permission requests have named, with their answers."""
        self._meta = None
        for id, result in self._asked.items():
            if result:
                update = {"sessionUpdate": "tool_call_update", "toolCallId": id, **result}
                self._forward(update)
                await self._update_call(update)

    def _client_request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return a permission request as segue's clients get it: with segue's ids."""

        def with_own_id(fields: Any) -> Any:
            if not isinstance(fields, dict) or not isinstance(fields.get("toolCallId"), str):
                return fields
            return {**fields, "toolCallId": call_id_of(self._turn.id, fields["toolCallId"])}

        forwarded = {name: value for name, value in request.items() if name != "sessionId"}
        if isinstance(subject := forwarded.get("subject"), dict):
            subject = with_own_id(subject)
            if "toolCall" in subject:
                subject = {**subject, "toolCall": with_own_id(subject["toolCall"])}
            forwarded["subject"] = subject
        if "toolCall" in forwarded:
            forwarded["toolCall"] = with_own_id(forwarded["toolCall"])
        return forwarded

    def on_terminal_output(self, terminal: str, output: str) -> None:
        """Record the current output of a terminal."""
        self._terminals[terminal] = output.encode("utf-8", "replace")[-MAX_OUTPUT_CHARACTERS:]

    # Plans and usage.

    async def _store_plan(self, id: str, entries: Any) -> None:
        plan = [
            PlanEntry(
                content=str(entry.get("content", "")),
                priority=one_of(entry.get("priority"), ("high", "medium", "low"), "medium"),
                status=one_of(
                    entry.get("status"),
                    ("pending", "in_progress", "completed", "cancelled"),
                    "pending",
                ),
            )
            for entry in entries or ()
            if isinstance(entry, dict)
        ]
        self._current = None
        await self._turn.emit(PlanChanged(entries=tuple(plan), plan_id=id, extra=protocol_fields()))

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
                extra=protocol_fields(),
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
        await self._end_asked()


def meaningful_title(value: Any) -> str:
    """Return a title, or "" if it does not describe the conversation.

    Some agents use the time of creation as the title, others the beginning of segue's introduction.
    """
    title = text_of(value).strip()
    is_placeholder = _PLACEHOLDER_TITLE.match(title) or title.startswith(INTRODUCTION)
    return "" if is_placeholder else title


def stop_reason(result: Any) -> Any:
    """Return the stop reason in the result of a turn. Raises AgentFailed if the turn failed."""
    reason = result.get("stopReason") if isinstance(result, dict) else None
    if reason == "error":
        error = RpcError.from_wire(result.get("error") or {})
        extra = {DIALECT: {"error": error.to_wire()}}
        raise AgentFailed(f"the agent failed: {error.message}", extra=extra)
    known = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
    return reason if reason in known else "end_turn"


def _result_fields(answer: Answer) -> dict[str, Any]:
    """Return the fields of the update that ends a tool call that was nothing but a request."""
    if answer.allowed and answer.input is None:
        return {"status": "completed"}
    text = answer.note or "the permission was not given"
    content = {"type": "content", "content": {"type": "text", "text": text}}
    return {"status": "failed", "content": [content]}


def _parse_options(raw: Any) -> list[Option]:
    options = []
    for option in raw or ():
        try:
            options.append(
                Option(
                    id=option["optionId"],
                    name=option.get("name") or option["optionId"],
                    kind=one_of(
                        option.get("kind"),
                        ("allow_once", "allow_always", "reject_once", "reject_always"),
                        "reject_once",  # an unknown kind must not count as approval
                    ),
                )
            )
        except (KeyError, TypeError, AttributeError):
            continue
    return options


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


def _decode_bytes(data: Any) -> bytes:
    try:
        return base64.b64decode(data, validate=True)[-MAX_OUTPUT_CHARACTERS:]
    except (ValueError, TypeError):
        return b""


def _count(value: Any) -> int | None:
    return max(0, value) if isinstance(value, int) else None


def _is_in_dollars(cost: Any) -> bool:
    return str(cost.get("currency", "USD")).upper() == "USD"
