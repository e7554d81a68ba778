"""What a child tells of a turn, as events of ours: both protocol versions, and careless agents."""

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
from segue.agents.permission import READ_ONLY_KINDS
from segue.agents.tools.base import MAX_OUTPUT_CHARACTERS
from segue.model import ids
from segue.model.content import Block, Content, Diff, Text
from segue.model.errors import AgentFailed
from segue.model.event import (
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

from .history_prompt import LEAD
from .patches import hunks

log = logging.getLogger("segue.agents.acp")

_PLACEHOLDER = re.compile(r"New session - \d{4}-\d\d-\d\dT")
_KINDS = frozenset(get_args(ToolKind))
_ENDS: dict[str, Any] = {"completed": "completed", "failed": "failed", "cancelled": "cancelled"}
_SPOKEN: dict[str, StreamKind] = {"agent_message": "message", "agent_thought": "thought"}
_BODIES: dict[StreamKind, type[AgentMessage | AgentThought]] = {
    "message": AgentMessage,
    "thought": AgentThought,
}


class Told(Protocol):
    """Who is told what a child says: a Turn, or a Recorder."""

    @property
    def id(self) -> str: ...
    @property
    def session(self) -> Session: ...
    async def emit(self, *bodies: AnyBody) -> object: ...
    async def delta(self, text: str, kind: StreamKind = "message") -> None: ...
    async def request_permission(
        self, title: str, options: Sequence[Option] = ..., call_id: str | None = None
    ) -> Answer: ...


class Hearing:
    """One turn, as its child tells it; or, `replaying`, a whole conversation.

    One that is `titled` keeps its title: the child's would be of what it has heard alone.
    """

    def __init__(self, turn: Told, *, replaying: bool = False, titled: bool = False) -> None:
        self._turn = turn
        self._replaying = replaying
        self._titled = titled
        self._asked: tuple[str, list[Block]] | None = None  # the user's words, while they come
        self._speaking: tuple[StreamKind, str] | None = None  # the message that is being streamed
        self._said: dict[tuple[StreamKind, str], str] = {}
        self._calls: dict[str, _Call] = {}
        self._terminals: dict[str, bytes] = {}  # what is to be seen in each
        self._over = False
        self.allowed: set[str] = set()  # the files of calls that somebody allowed
        self.rest: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def update(self, update: dict[str, Any]) -> None:
        """Hear a `session/update`; what makes no sense is passed over."""
        try:
            if not self._over:
                await self._hear(update.get("sessionUpdate"), update)
            if update.get("state") == "idle" and update.get("stopReason") and not self.rest.done():
                self.rest.set_result(update)
        except msgspec.ValidationError as error:
            log.info("an update is passed over: %s in %r", error, update)

    async def _hear(self, kind: Any, update: dict[str, Any]) -> None:
        if kind in ("user_message", "user_message_chunk"):
            if self._replaying:  # of a live turn we know them
                await self._user(update, kind.endswith("_chunk"))
            return
        await self._heard_user()
        match kind:
            case "agent_message_chunk" | "agent_thought_chunk":
                await self._chunk(_SPOKEN[kind.removesuffix("_chunk")], update)
            case "agent_message" | "agent_thought":
                await self._message(_SPOKEN[kind], update)
            case "tool_call" | "tool_call_update":
                await self._call(update)
            case "tool_call_content_chunk":
                if call := self._calls.get(str(update.get("toolCallId"))):
                    call.told.append(update.get("content"))
            case "terminal_update" if isinstance(output := update.get("output"), dict):
                self._terminals[str(update.get("terminalId"))] = _bytes(output.get("data"))
            case "terminal_output_chunk":
                id = str(update.get("terminalId"))
                seen = self._terminals.get(id, b"") + _bytes(update.get("data"))
                self._terminals[id] = seen[-MAX_OUTPUT_CHARACTERS:]
            case "plan":
                await self._plan("plan", update.get("entries"))
            case "plan_update":
                plan = update.get("plan")
                if isinstance(plan, dict):
                    await self._plan(str(plan.get("planId", "plan")), plan.get("entries"))
            case "session_info_update":
                title = title_of(update.get("title"))
                if title and not self._titled and title != self._turn.session.title:
                    await self._turn.emit(InfoChanged(title=title, by="agent"))
            case "usage_update":
                await self._usage(update)
            case "compaction_update" if update.get("status") == "completed":
                await self._turn.emit(Compacted(summary=_blocks(update.get("summary"))))

    def close(self) -> None:
        """Our turn is over, and the child's may not be: only its end is heard from here on."""
        self._over = True

    # Words.

    async def _user(self, update: dict[str, Any], chunk: bool) -> None:
        id, content = str(update.get("messageId") or ""), update.get("content")
        if self._asked is None or not chunk or self._asked[0] != id:
            await self._heard_user()
            await self._turn.emit()
            self._speaking, self._asked = None, (id, [])
        self._asked[1].extend(_blocks([content] if chunk else content))

    async def _heard_user(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None and asked[1]:
            await self._turn.emit(UserMessage(content=_joined(asked[1])))

    async def _chunk(self, kind: StreamKind, update: dict[str, Any]) -> None:
        block = read_block(update.get("content"))
        await self._begin(kind, str(update.get("messageId") or ""))
        if isinstance(block, Text):
            await self._say(block.text)
        else:
            self._speaking = None
            await self._turn.emit(_BODIES[kind](content=(block,)))

    async def _message(self, kind: StreamKind, update: dict[str, Any]) -> None:
        """A whole message: new, or the end of one that was streamed."""
        if not update.get("content"):
            return
        content = _blocks(update["content"])
        name = (kind, str(update.get("messageId") or ids.new_id()))
        text = "".join(block.text for block in content if isinstance(block, Text))
        heard = self._said.get(name, "")
        if not text.startswith(heard):
            log.info("a message that changed after it was told stays as it was: %s", name[1])
            return
        new = name not in self._said
        await self._begin(*name)
        self._said.setdefault(name, "")
        await self._say(text[len(heard) :])
        for block in content:
            if new and not isinstance(block, Text):
                await self._turn.emit(_BODIES[kind](content=(block,)))

    async def _begin(self, kind: StreamKind, message: str) -> None:
        if self._speaking != (kind, message):
            await self._turn.emit()  # what was said before is another message
            self._speaking = (kind, message)

    async def _say(self, text: str) -> None:
        assert self._speaking is not None
        if text:
            await self._turn.delta(text, self._speaking[0])
            if self._speaking[1]:
                self._said[self._speaking] = self._said.get(self._speaking, "") + text

    # Tools.

    async def _call(self, update: dict[str, Any]) -> None:
        id = str(update.get("toolCallId"))
        self._speaking = None
        own = ids.derived_id("acp", self._turn.id, id)
        call = self._calls.setdefault(id, _Call(own, self._terminals))
        call.learn(update)
        if call.ripe:
            await self._begun(call)
        if call.ended and not call.over:
            call.over = True
            await self._turn.emit(call.result())

    async def _begun(self, call: _Call) -> None:
        if not call.begun:
            call.begun = True
            await self._turn.emit(call.event())

    async def permission(self, request: dict[str, Any]) -> str | None:
        """Put a child's question to whoever is at our doors; the id of the option chosen."""
        if self._over:
            return None
        subject = request.get("subject")
        told = request.get("toolCall")
        if isinstance(subject, dict) and subject.get("type") == "tool_call":
            told = subject.get("toolCall")
        call: _Call | None = None
        if isinstance(told, dict) and told.get("toolCallId") is not None:
            await self._call({"status": "pending", **told})
            call = self._calls[str(told["toolCallId"])]
            await self._begun(call)
        options = _options(request.get("options"))
        named = request.get("title") or (call.title if call else "")
        title = str(named or "May it go on?")
        answer = await self._turn.request_permission(title, options, call.id if call else None)
        if answer.option is None or (answer.allowed and answer.input is not None):
            return None  # with another input, which cannot be told to a child, it is not to be done
        if answer.allowed and call is not None:
            self.allowed |= call.paths
        return answer.option.id

    def seen(self, terminal: str, output: str) -> None:
        """What a terminal shows now."""
        self._terminals[terminal] = output.encode("utf-8", "replace")[-MAX_OUTPUT_CHARACTERS:]

    # The rest.

    async def _plan(self, id: str, entries: Any) -> None:
        found = [
            PlanEntry(
                content=str(entry.get("content", "")),
                priority=_among(entry.get("priority"), ("high", "medium", "low"), "medium"),
                status=_among(
                    entry.get("status"),
                    ("pending", "in_progress", "completed", "cancelled"),
                    "pending",
                ),
            )
            for entry in entries or ()
            if isinstance(entry, dict)
        ]
        self._speaking = None
        await self._turn.emit(PlanChanged(entries=tuple(found), plan_id=id))

    async def _usage(self, update: dict[str, Any]) -> None:
        cost = update.get("cost")
        amount = cost.get("amount") if isinstance(cost, dict) else None
        spent = 0
        if isinstance(amount, int | float) and _dollars(cost):
            # The child tells what the whole session has cost so far.
            spent = max(0, round(amount * 1_000_000) - self._turn.session.usage.cost)
        used, size = update.get("used"), update.get("size")
        await self._turn.emit(
            ModelCalled(
                usage=Usage(cost=spent),
                context_used=used if isinstance(used, int) else None,
                context_size=size if isinstance(size, int) else None,
            )
        )

    async def spent(self, usage: Any) -> None:
        """The tokens that an answer to a prompt counts."""
        if not isinstance(usage, dict):
            return
        found = Usage(
            input_tokens=_count(usage.get("inputTokens")),
            output_tokens=_count(usage.get("outputTokens")),
            cache_read_tokens=_count(usage.get("cachedReadTokens")),
            cache_5m_tokens=_count(usage.get("cachedWriteTokens")),
        )
        if found != Usage():
            await self._turn.emit(ModelCalled(usage=found))

    async def finish(self) -> None:
        """The child has ended its turn: store what it streamed, and calls that it only named."""
        await self._heard_user()
        self._speaking = None
        await self._turn.emit()
        for call in self._calls.values():
            await self._begun(call)


class Recorder:
    """Keeps what a child tells of a session that it has had for long."""

    def __init__(self, session: Session) -> None:
        self.id = session.id
        self.session = session
        self.bodies: list[AnyBody] = []
        self._stream: tuple[StreamKind, list[str]] | None = None

    async def emit(self, *bodies: AnyBody) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            self.bodies.append(_BODIES[stream[0]](content=(Text(text="".join(stream[1])),)))
        self.bodies += bodies

    async def delta(self, text: str, kind: StreamKind = "message") -> None:
        if self._stream is None or self._stream[0] != kind:
            await self.emit()
            self._stream = (kind, [])
        self._stream[1].append(text)

    async def request_permission(
        self, title: str, options: Sequence[Option] = (), call_id: str | None = None
    ) -> Answer:
        return Answer()  # what is over cannot be allowed


class _Call:
    """A tool call, as told so far: every update says only what changed."""

    def __init__(self, id: str, terminals: Mapping[str, bytes]) -> None:
        self.id = id
        self.begun = False
        self.over = False
        self.title = ""
        self.told: list[Any] = []  # its content, as the child has it
        self._terminals = terminals
        self._name = ""
        self._kind: Any = "other"
        self._status = ""
        self._input: Any = None
        self._output: Any = None
        self._locations: tuple[Location, ...] = ()

    def learn(self, update: Mapping[str, Any]) -> None:
        self.title = _text(update.get("title")) or self.title
        self._name = _text(update.get("name")) or self._name
        self._kind = _among(update.get("kind"), tuple(_KINDS), self._kind)
        self._status = _text(update.get("status")) or self._status
        self._input = self._input if update.get("rawInput") is None else update["rawInput"]
        self._output = self._output if update.get("rawOutput") is None else update["rawOutput"]
        if isinstance(update.get("content"), list):
            self.told = [*update["content"]]
        if isinstance(update.get("locations"), list):
            self._locations = _locations(update["locations"])

    @property
    def ripe(self) -> bool:
        """Whether it can be shown: many are first named, and described a moment later."""
        return bool(self.title) and (self._input is not None or self._status not in ("", "pending"))

    @property
    def ended(self) -> bool:
        return self._status in _ENDS

    @property
    def paths(self) -> set[str]:
        """The files that it would change, as it says."""
        if self._kind in READ_ONLY_KINDS:
            return set()
        diffs = {block.path for block in self.content if isinstance(block, Diff)}
        named = diffs | {at.path for at in self._locations}
        return {os.path.realpath(path) for path in named if "\0" not in path}

    @property
    def content(self) -> Content:
        return _tool_content(self.told, self._terminals)

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
            status=_ENDS[self._status],
            content=self.content,
            output=self._output,
        )


def title_of(given: Any) -> str:
    """A title that says something of what the user said.

    Some name every session after the time it was made, others after what we told them.
    """
    title = _text(given).strip()
    return "" if _PLACEHOLDER.match(title) or title.startswith(LEAD) else title


def stopped(result: Any) -> Any:
    """How a turn ended, from what the child says of it; AgentFailed if it failed."""
    reason = result.get("stopReason") if isinstance(result, dict) else None
    if reason == "error":
        error = RpcError.from_wire(result.get("error") or {})
        raise AgentFailed(f"the agent failed: {error.message}")
    known = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
    return reason if reason in known else "end_turn"


def _options(given: Any) -> list[Option]:
    found = []
    for option in given or ():
        try:
            found.append(
                Option(
                    id=option["optionId"],
                    name=option.get("name") or option["optionId"],
                    kind=_among(
                        option.get("kind"),
                        ("allow_once", "allow_always", "reject_once", "reject_always"),
                        "reject_once",  # what is not known is no approval
                    ),
                )
            )
        except (KeyError, TypeError, AttributeError):
            continue
    return found


def _blocks(given: Any) -> Content:
    found: list[Block] = []
    for block in given if isinstance(given, list) else ():
        try:
            found.append(read_block(block))
        except msgspec.ValidationError as error:
            log.info("a block is passed over: %s", error)
    return tuple(found)


def _joined(blocks: Sequence[Block]) -> Content:
    """Blocks, with neighbouring pieces of text as one."""
    found: list[Block] = []
    for block in blocks:
        last = found[-1] if found else None
        if isinstance(block, Text) and isinstance(last, Text):
            found[-1] = Text(text=last.text + block.text)
        else:
            found.append(block)
    return tuple(found)


def _tool_content(given: Sequence[Any], terminals: Mapping[str, bytes]) -> Content:
    found: list[Block] = []
    for item in given:
        match item:
            case {"type": "content", "content": block}:
                found += _blocks([block])
            case {"type": "terminal", "terminalId": str(id)}:
                if seen := terminals.get(id):
                    found.append(Text(text=seen.decode("utf-8", "replace")))
            case {"type": "diff", "path": str(path), "newText": str(new)}:
                old = item.get("oldText")
                found.append(Diff(path=path, new=new, old=old if isinstance(old, str) else None))
            case {"type": "diff", "patch": {"text": str(patch)}}:
                found += hunks(patch)
            case {"type": "diff", "changes": list(changes)}:
                paths = [change.get("path") for change in changes if isinstance(change, dict)]
                found.append(Text(text="\n".join(path for path in paths if isinstance(path, str))))
    return tuple(found)


def _locations(given: Sequence[Any]) -> tuple[Location, ...]:
    return tuple(
        Location(path=place["path"], line=line if isinstance(line, int) else None)
        for place in given
        if isinstance(place, dict) and isinstance(place.get("path"), str)
        for line in (place.get("line"),)
    )


def _bytes(data: Any) -> bytes:
    try:
        return base64.b64decode(data, validate=True)[-MAX_OUTPUT_CHARACTERS:]
    except (ValueError, TypeError):
        return b""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _among(value: Any, known: Sequence[str], otherwise: Any) -> Any:
    return value if value in known else otherwise


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _dollars(cost: Any) -> bool:
    return str(cost.get("currency", "USD")).upper() == "USD"
