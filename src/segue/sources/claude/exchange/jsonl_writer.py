"""Events of any session as lines that Claude Code resumes from.

The same events always give the same lines, ids included: what is written out, continued there and
read in again is known by them. A model's interface takes a conversation only when every call is
answered right after the message that makes it, so results move up to their calls, and a call that
nothing answered is closed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import UNSET

from segue.model import clock, codec, ids
from segue.model.content import (
    Block,
    Content,
    Diff,
    Image,
    Other,
    Resource,
    ResourceLink,
    Text,
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
from segue.sources.claude.conversation.entry_table import KINDS
from segue.sources.claude.format.jsonl import Entry

DIALECT = "claude"
UNANSWERED = "The session ended before this call did."
INTERRUPTED = "[Request interrupted by user]"
_ODD = re.compile(r"[^a-zA-Z0-9_-]")
_MADE_UP = "<synthetic>"  # the model of messages that no model wrote


class Composer:
    """Writes the events of one session as entries, each behind the one before.

    They can be sent to a model, unless they are only `read`.
    """

    def __init__(
        self, session: str, cwd: str, git_branch: str | None = None, *, read: bool = False
    ) -> None:
        self._session = session
        self._cwd = cwd
        self._branch = git_branch
        self._read = read
        self.last: str | None = None  # the entry that the next one stands behind
        self._run: list[Event] = []  # what the agent said and called since somebody else spoke
        self._results: dict[str, Event] = {}
        self._called: set[str] = set()
        self._open: dict[str, str] = {}  # calls of entries that stand there, by the entries' ids

    def passed(self, entry: Entry) -> None:
        """Go on behind an entry that stands there already."""
        uuid, message = entry.get("uuid"), entry.get("message")
        if entry.get("type") not in KINDS or entry.get("isSidechain") or not isinstance(uuid, str):
            return
        self.last = uuid
        content = message.get("content") if isinstance(message, dict) else None
        for block in content if isinstance(content, list) else ():
            match block:
                case {"type": "tool_use", "id": str(id)}:
                    self._open[id] = uuid
                case {"type": "tool_result", "tool_use_id": str(id)}:
                    self._open.pop(id, None)

    def entries(self, events: Sequence[Event]) -> Iterator[Entry]:
        """The entries of some events, up to which the history is told."""
        for event in events:
            if isinstance(event.body, ToolResult):
                self._results.setdefault(event.body.call_id, event)
        for event in events:
            if event.body.thread is None:
                yield from self._entries(event)
        yield from self._end_of_run()

    def _entries(self, event: Event) -> Iterator[Entry]:
        body = event.body
        if isinstance(body, AgentMessage | AgentThought | ToolCall | ModelCalled):
            self._run.append(event)
            return
        if (step := _STEPS.get(type(body))) is None:
            return
        yield from self._end_of_run()
        yield from step(self, event, body)

    def _end_of_run(self) -> Iterator[Entry]:
        run, self._run = self._run, []
        spoken = [event for event in run if not isinstance(event.body, ModelCalled)]
        if not spoken:
            return
        told = [event.body for event in run if isinstance(event.body, ModelCalled)]
        spent, model = Usage(), None
        for each in told:
            spent, model = spent + each.usage, each.model or model
        calls: dict[str, Event] = {}
        message = _message(spoken[0], model or _MADE_UP)
        for event in spoken:
            if isinstance(event.body, ToolCall):
                if event.body.call_id in self._called:
                    continue  # the interface takes an id once
                self._called.add(event.body.call_id)
                calls[event.body.call_id] = event
            for number, block in enumerate(agent_blocks(event.body, read=self._read)):
                said = {**message, "content": [block]}
                said |= {"stop_reason": None, "stop_sequence": None, "usage": usage(spent)}
                yield self._entry(event, "assistant", number, message=said)
                spent = Usage()  # told once
        for id, event in calls.items():
            closed = ToolResult(call_id=id, status="failed", output=UNANSWERED)
            if found := self._results.get(id):
                yield self._answer(found, 0, found.body, event.id)
            else:
                yield self._answer(event, 1, closed, event.id)

    def _late(self, event: Event, body: ToolResult) -> Iterator[Entry]:
        """A result stands behind its call already, unless that is of an entry before."""
        if source := self._open.pop(body.call_id, None):
            yield self._answer(event, 0, body, source)

    def _answer(self, event: Event, number: int, body: Body, source: str) -> Entry:
        assert isinstance(body, ToolResult)
        said = {"role": "user", "content": [result_block(body)]}
        return self._entry(event, "user", number, message=said, sourceToolAssistantUUID=source)

    def _user(self, event: Event, body: UserMessage | SystemMessage) -> Iterator[Entry]:
        blocks = _blocks(body.content)
        if blocks:
            plain_text = len(blocks) == 1 and set(blocks[0]) == {"type", "text"}
            content = blocks[0]["text"] if plain_text else blocks
            more = {"isMeta": True} if isinstance(body, SystemMessage) else {}
            said = {"role": "user", "content": content}
            yield self._entry(event, "user", 0, message=said, **more)

    def _interrupted(self, event: Event, body: Interrupted) -> Iterator[Entry]:
        said = {"role": "user", "content": [{"type": "text", "text": INTERRUPTED}]}
        yield self._entry(event, "user", 0, message=said)

    def _failed(self, event: Event, body: Failed) -> Iterator[Entry]:
        said: Entry = {"id": f"msg_{event.id.replace('-', '')}", "model": _MADE_UP}
        said |= {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": body.message}],
        }
        yield self._entry(
            event, "assistant", 0, message=said, isApiErrorMessage=True, error=body.code
        )

    def _compacted(self, event: Event, body: Compacted) -> Iterator[Entry]:
        before, self.last = self.last, None
        told: Entry = {"trigger": body.trigger}
        if body.tokens_before is not None:
            told["preTokens"] = body.tokens_before
        yield self._entry(
            event,
            "system",
            0,
            logicalParentUuid=before,
            subtype="compact_boundary",
            content="Conversation compacted",
            level="info",
            compactMetadata=told,
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

    def _info(self, event: Event, body: InfoChanged) -> Iterator[Entry]:
        if body.title is not UNSET:
            kind, field = ("custom-title", "customTitle")
            if body.by != "person":
                kind, field = ("ai-title", "aiTitle")
            yield {"type": kind, field: body.title or "", "sessionId": self._session}
        if body.tag is not UNSET:
            yield {"type": "tag", "tag": body.tag or "", "sessionId": self._session}

    def _entry(self, event: Event, kind: str, number: int, **fields: Any) -> Entry:
        uuid = event.id if number == 0 else ids.derived_id(DIALECT, event.id, str(number))
        entry = {
            "parentUuid": self.last,
            "isSidechain": False,
            "type": kind,
            **fields,
            "uuid": uuid,
            "timestamp": clock.to_rfc3339(event.at)[:-4] + "Z",
            "userType": "external",
            "cwd": self._cwd,
            "sessionId": self._session,
        }
        if self._branch is not None:
            entry["gitBranch"] = self._branch
        self.last = uuid
        return entry


_STEPS: dict[type[Body], Callable[[Composer, Event, Any], Iterable[Entry]]] = {
    UserMessage: Composer._user,
    SystemMessage: Composer._user,
    Interrupted: Composer._interrupted,
    Failed: Composer._failed,
    Compacted: Composer._compacted,
    InfoChanged: Composer._info,
    ToolResult: Composer._late,
}


def _message(event: Event, model: str) -> Entry:
    id = f"msg_{event.id.replace('-', '')}"
    return {"id": id, "type": "message", "role": "assistant", "model": model}


def agent_blocks(body: Body, *, read: bool = False) -> list[Entry]:
    """What an agent said, thought or called, as blocks of its message."""
    match body:
        case AgentMessage():
            return _blocks(body.content)
        case AgentThought():
            return _thought(body, read)
        case ToolCall():
            given = body.input if isinstance(body.input, dict) else {"input": body.input}
            name = body.name if body.server is None else f"mcp__{body.server}__{body.name}"
            call = {"type": "tool_use", "id": _name(body.call_id), "name": _name(name)[:128]}
            return [{**call, "input": {} if body.input is None else given}]
    return []


def result_block(body: ToolResult) -> Entry:
    """The result of a tool, as it goes back to the model."""
    return {
        "tool_use_id": _name(body.call_id),
        "type": "tool_result",
        "content": _blocks(body.content) or _text(body.output),
        "is_error": body.status != "completed",
    }


def _thought(body: AgentThought, read: bool) -> list[Entry]:
    # A thought that carries no signature of the model's maker is refused when it comes back.
    signature = (body.extra.get(DIALECT) or {}).get("signature")
    signed = isinstance(signature, str) and signature
    if signed or read:
        made = {"type": "thinking", "thinking": plain_text(body.content)}
        return [{**made, "signature": signature} if signed else made]
    return [{"type": "text", "text": f"<thinking>\n{plain_text(body.content)}\n</thinking>"}]


def _name(text: str) -> str:
    """An id or a tool's name, in the letters that the interface takes."""
    return _ODD.sub("_", text) or "_"


def _blocks(content: Content) -> list[Entry]:
    return [made for block in content if (made := _block(block))]


def _block(block: Block) -> Entry | None:
    match block:
        case Text(text=text):
            return {"type": "text", "text": text} if text.strip() else None
        case Image(data=str(data), mime=mime):
            source = {"type": "base64", "media_type": mime, "data": data}
            return {"type": "image", "source": source}
        case Image(uri=str(uri)) if uri.startswith(("http://", "https://")):
            return {"type": "image", "source": {"type": "url", "url": uri}}
        case Resource(data=str(data), mime="application/pdf"):
            source = {"type": "base64", "media_type": "application/pdf", "data": data}
            return {"type": "document", "source": source}
        case Resource(text=str(text), uri=uri):
            return {"type": "text", "text": f"{uri}\n\n{text}"}
        case ResourceLink(uri=uri) | Resource(uri=uri) | Image(uri=str(uri)):
            return {"type": "text", "text": f"[{uri}]"}
        case Diff(path=path, old=old, new=new):
            removed = "".join(f"-{line}\n" for line in (old or "").splitlines())
            added = "".join(f"+{line}\n" for line in new.splitlines())
            return {"type": "text", "text": f"{path}\n{removed}{added}"}
        case Other(dialect="claude", raw=dict(raw)):
            return raw
    return {"type": "text", "text": f"[{type(block).__name__.lower()}]"}


def _text(output: Any) -> str:
    if output is None:
        return ""
    return output if isinstance(output, str) else codec.encode(output).decode()


def usage(spent: Usage) -> Entry:
    return {
        "input_tokens": spent.input_tokens,
        "cache_creation_input_tokens": spent.cache_5m_tokens + spent.cache_1h_tokens,
        "cache_read_input_tokens": spent.cache_read_tokens,
        "output_tokens": spent.output_tokens,
    }
