"""A session's events as the messages that a model is given.

Messages alternate between the user's side and the model's. What the model said and called gathers
in a response until a result or the user comes; every call has its result in the message that
follows, whatever order the events came in and whichever agent made them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from segue.agents.tools.base import shortened
from segue.model.content import (
    Audio,
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
    Compacted,
    Event,
    Interrupted,
    ModelCalled,
    OutcomeDefined,
    OutcomeEvaluated,
    SystemMessage,
    ToolCall,
    ToolResult,
    UserMessage,
)

# Under this name our events keep what a provider wants back: signatures, ids.
DIALECT = "model"
# Of one result in an old history; ours are shorter to begin with.
MAX_RESULT = 60_000
_NAME = re.compile(r"[^a-zA-Z0-9_-]")
# Characters to a token, on the safe side; and what a picture comes to.
_CHARACTERS, _PICTURE = 3.5, 1600


class Conversation:
    """What the model knows, one event after another."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._turns: list[tuple[bool, list[Any]]] = []  # (whether it is the model's, parts)
        self._open: dict[str, str] = {}  # calls of the last response: id → name
        self._size = 0.0  # estimated tokens since the last that were counted
        self._counted = 0
        self.latest = ""  # the user's newest words
        for event in events:
            self.add(event)

    @property
    def tokens(self) -> int:
        """How much of the context it takes: counted by the provider, then estimated."""
        return self._counted + int(self._size)

    @property
    def empty(self) -> bool:
        return not self._turns

    def add(self, event: Event) -> None:
        body = event.body
        if body.thread is not None:
            return  # another thread's
        match body:
            case UserMessage():
                self.latest = clean(plain_text(body.content)) or self.latest
                self._say(UserPromptPart(content=_prompt(body.content)), body.content)
            case SystemMessage():
                self._say(SystemPromptPart(content=_words(body.content)), body.content)
            case AgentMessage() if not body.extra.get(DIALECT, {}).get("discarded"):
                if text := _words(body.content):
                    self._answer(TextPart(content=text), text)
            case AgentThought() if not body.partial and DIALECT in body.extra:
                part = ThinkingPart(content=clean(plain_text(body.content)), **body.extra[DIALECT])
                self._answer(part, part.content)
            case ToolCall():
                self._call(body)
            case ToolResult():
                self._result(body)
            case Interrupted():
                self._say(UserPromptPart(content=f"[The turn was interrupted: {body.reason}]"))
            case Compacted():
                self._compact(body)
            case OutcomeDefined():
                self.latest = wanted(body)
                self._say(UserPromptPart(content=self.latest))
            case OutcomeEvaluated(result="needs_revision", explanation=str(why)):
                self._say(UserPromptPart(content=f"[A grader looked at it. Not yet there: {why}]"))
            case ModelCalled(context_used=int(used)):
                self._counted, self._size = used, 0.0

    def messages(self, instructions: str | None = None) -> list[ModelMessage]:
        """The messages, every call answered, the user's side first and last."""
        found: list[ModelMessage] = []
        turns = self._turns
        if turns and turns[0][0]:
            turns = [(False, [UserPromptPart(content="[The conversation begins.]")]), *turns]
        for is_model, parts in turns:
            if is_model:
                found.append(ModelResponse(parts=list[ModelResponsePart](parts)))
            else:
                ordered = sorted(parts, key=lambda part: not isinstance(part, ToolReturnPart))
                found.append(
                    ModelRequest(parts=list[ModelRequestPart](ordered), instructions=instructions)
                )
        if self._open:
            last = found[-1]
            missing = [
                ToolReturnPart(tool_name=name, content="[no result]", tool_call_id=id)
                for id, name in self._open.items()
            ]
            if isinstance(last, ModelRequest):
                found[-1] = ModelRequest(parts=[*missing, *last.parts], instructions=instructions)
            else:
                found.append(ModelRequest(parts=missing, instructions=instructions))
        return found

    def _side(self, is_model: bool) -> list[Any]:
        if not self._turns or self._turns[-1][0] != is_model:
            self._turns.append((is_model, []))
        return self._turns[-1][1]

    def _say(self, part: ModelRequestPart, content: Content = ()) -> None:
        self._side(False).append(part)
        text = getattr(part, "content", None)
        alone = len(text) / _CHARACTERS if isinstance(text, str) else 0.0
        self._size += alone or _weight(content)

    def _answer(self, part: ModelResponsePart, text: str) -> None:
        self._size += len(text) / _CHARACTERS
        if self._open and not self._turns[-1][0]:
            # Some results are still to come: this belongs to the response that they answer.
            self._turns[-2][1].append(part)
        else:
            self._side(True).append(part)

    def _call(self, body: ToolCall) -> None:
        if body.call_id in self._open:
            return
        kept = body.extra.get(DIALECT, {})
        name = tool_name(body.name, body.server)
        given = body.input if isinstance(body.input, dict) else {}
        if body.input is not None and not isinstance(body.input, dict):
            given = {"input": body.input}
        text = json.dumps(given, default=str)  # escapes whatever cannot be sent
        if "\\ud" in text:
            given = json.loads(clean(json.dumps(given, ensure_ascii=False, default=str)))
        part = ToolCallPart(tool_name=name, args=given, tool_call_id=body.call_id, **kept)
        self._answer(part, text)
        self._open[body.call_id] = name

    def _result(self, body: ToolResult) -> None:
        name = self._open.pop(body.call_id, None)
        if name is None:
            return  # its call was compacted away, or it is a second one
        told = _returned(body)
        part = ToolReturnPart(
            tool_name=name,
            content=told,
            tool_call_id=body.call_id,
            outcome="success" if body.status == "completed" else "failed",
        )
        self._say(part)
        self._size += sum(
            len(each) / _CHARACTERS if isinstance(each, str) else _PICTURE for each in told
        )

    def _compact(self, body: Compacted) -> None:
        self._turns, self._open = [], {}
        self._counted, self._size = 0, 0.0
        summary = plain_text(body.summary)
        self._say(UserPromptPart(content=f"[What happened so far]\n\n{summary}"), body.summary)


def clean(text: str) -> str:
    """Text as it can be sent: a lone surrogate, say half an emoji, cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def tool_name(name: str, server: str | None) -> str:
    """A tool's name as every provider takes it; one of an MCP server has that before it."""
    whole = name if server is None else f"{server}__{name}"
    return _NAME.sub("_", whole)[:64] or "tool"


def wanted(outcome: OutcomeDefined) -> str:
    """An outcome as it is put to the model."""
    rubric = outcome.rubric.get("content")
    graded = f"\n\nIt will be graded by this:\n\n{rubric}" if rubric else ""
    return clean(f"{outcome.description}{graded}")


def _prompt(content: Content) -> str | Sequence[Any]:
    parts = [part for block in content for part in _part(block)]
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    return parts or "[nothing]"


def _part(block: Block) -> list[Any]:
    match block:
        case Text():
            return [clean(block.text)] if block.text else []
        case (
            Image(data=str(data), mime=str(mime))
            | Audio(data=data, mime=mime)
            | Resource(data=str(data), mime="application/pdf" as mime)
        ):
            try:
                raw = base64.b64decode(data, validate=True)
            except ValueError:
                return [f"[{mime} that cannot be read]"]
            return [BinaryContent(data=raw, media_type=mime)]
        case Image(uri=str(uri)) if uri.startswith(("http://", "https://")):
            return [ImageUrl(url=uri)]
    return [_told(block)]


def _told(block: Block) -> str:
    """A block in words."""
    return clean(_described(block))


def _described(block: Block) -> str:
    match block:
        case Text():
            return block.text
        case Resource(text=str(text)):
            return f"<resource uri={block.uri!r}>\n{text}\n</resource>"
        case ResourceLink():
            return f"[{block.name or 'resource'}: {block.uri}]"
        case Diff():
            return f"[{'new file' if block.old is None else 'changed'}: {block.path}]"
        case Image() | Audio():
            return f"[{block.mime}]"
        case Other(raw=raw):
            return json.dumps(raw, ensure_ascii=False, default=str)[:MAX_RESULT]
    return f"[{block.uri or 'resource'}]"


def _words(content: Content) -> str:
    return "\n\n".join(filter(None, map(_told, content)))


def _returned(body: ToolResult) -> list[Any]:
    """A result's parts: words, and pictures as they are."""
    blocks = body.content
    if any(isinstance(block, Text) for block in blocks):
        blocks = tuple(block for block in blocks if not isinstance(block, Diff))
    parts = [part for block in blocks for part in _part(block)]
    if not parts and body.output is not None:
        raw = body.output
        parts = [raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False, default=str)]
    return [
        shortened(clean(part), MAX_RESULT) if isinstance(part, str) else part
        for part in parts or ["(no output)"]
    ]


def _weight(content: Content) -> float:
    """What content weighs, in tokens."""
    return sum(
        _PICTURE if isinstance(block, Image | Audio) else len(_told(block)) / _CHARACTERS
        for block in content
    )
