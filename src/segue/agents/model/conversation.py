"""Convert a session's events to the messages of a request to a model.

Messages alternate between requests (the user's side) and responses (the model's side). Consecutive
texts and tool calls of the model form one response. Each tool call has its result in the next
request, in whatever order the events came and whichever agent made them.
"""

from __future__ import annotations

import base64
import json
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

from segue.agents.base.spec import tool_name
from segue.agents.tools.base import truncate
from segue.model.content import (
    Audio,
    Block,
    Content,
    Diff,
    FileChange,
    Image,
    Other,
    Resource,
    ResourceLink,
    Text,
    describe_block,
    plain_text,
)
from segue.model.event import (
    AgentMessage,
    AgentThought,
    Compacted,
    Event,
    Interrupted,
    OutcomeDefined,
    OutcomeEvaluated,
    SystemMessage,
    ThreadMessage,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.requests.spans import request_end

# The key in an event's `extra` for the fields that a provider needs back: signatures, ids.
DIALECT = "model"
# The `extra` of a tool call that the model did not make and does not see.
HIDDEN_CALL = {DIALECT: {"hidden": True}}
REST_DIALECT = "rest"  # the key, in a block's `extra`, of fields that only REST has
# Results of other agents may be longer; segue's own tools truncate their output earlier.
MAX_RESULT_CHARACTERS = 60_000
# Estimates for counting tokens; the first is deliberately low.
_CHARACTERS_PER_TOKEN = 3.5
_TOKENS_PER_IMAGE = 1600


class Conversation:
    """The conversation as the model sees it, built from one event after another."""

    def __init__(self, events: Iterable[Event] = (), *, thread: str | None = None) -> None:
        self._thread = thread  # the conversation of this thread; None of the session's own agent
        self._sides: list[tuple[bool, list[Any]]] = []  # (whether it is the model's, parts)
        self._open_calls: dict[str, str] = {}  # tool calls without a result: id → name
        self._counted_tokens = 0  # by the provider, up to its last response
        self._estimated_tokens = 0.0  # since then
        self.latest_prompt = ""
        for event in events:
            self.add(event)

    @property
    def tokens(self) -> int:
        """The size of the conversation: counted by the provider, then estimated."""
        return self._counted_tokens + int(self._estimated_tokens)

    @property
    def empty(self) -> bool:
        """True if the conversation has no messages."""
        return not self._sides

    def add(self, event: Event) -> None:
        """Add an event, unless it belongs to another thread."""
        body = event.body
        if body.thread != self._thread:
            return
        match body:
            case UserMessage():
                self.latest_prompt = clean(plain_text(body.content)) or self.latest_prompt
                self._add_to_request(UserPromptPart(content=_prompt(body.content)), body.content)
            case ThreadMessage(reply=False):
                self._add_to_request(UserPromptPart(content=_prompt(body.content)), body.content)
            case SystemMessage():
                self._add_to_request(SystemPromptPart(content=_text(body.content)), body.content)
            case AgentMessage() if not body.extra.get(DIALECT, {}).get("discarded"):
                if text := _text(body.content):
                    self._add_to_response(TextPart(content=text), text)
            case AgentThought() if not body.partial and DIALECT in body.extra:
                part = ThinkingPart(content=clean(plain_text(body.content)), **body.extra[DIALECT])
                self._add_to_response(part, part.content)
            case ToolCall() if not body.extra.get(DIALECT, {}).get("hidden"):
                self._add_call(body)
            case ToolResult():
                self._add_result(body)
            case Interrupted():
                self._add_to_request(
                    UserPromptPart(content=f"[The turn was interrupted: {body.reason}]")
                )
            case Compacted():
                self._replace_by_summary(body)
            case OutcomeDefined():
                self.latest_prompt = outcome_prompt(body)
                self._add_to_request(UserPromptPart(content=self.latest_prompt))
            case OutcomeEvaluated(result="needs_revision", explanation=str(explanation)):
                self._add_to_request(
                    UserPromptPart(content=f"[A grader requires a revision: {explanation}]")
                )
        end = request_end(body)
        if end is not None and end.context_used is not None:
            self._counted_tokens, self._estimated_tokens = end.context_used, 0.0

    def messages(self, instructions: str | None = None) -> list[ModelMessage]:
        """Return the messages. Every call has a result; the first and last are requests."""
        messages: list[ModelMessage] = []
        sides = self._sides
        if sides and sides[0][0]:
            sides = [(False, [UserPromptPart(content="[The conversation begins.]")]), *sides]
        for is_model, parts in sides:
            if is_model:
                messages.append(ModelResponse(parts=list[ModelResponsePart](parts)))
            else:
                ordered = sorted(parts, key=lambda part: not isinstance(part, ToolReturnPart))
                messages.append(
                    ModelRequest(parts=list[ModelRequestPart](ordered), instructions=instructions)
                )
        if self._open_calls:
            self._add_missing_results(messages, instructions)
        return messages

    def _add_missing_results(self, messages: list[ModelMessage], instructions: str | None) -> None:
        last = messages[-1]
        missing = [
            ToolReturnPart(tool_name=name, content="[no result]", tool_call_id=id)
            for id, name in self._open_calls.items()
        ]
        if isinstance(last, ModelRequest):
            messages[-1] = ModelRequest(parts=[*missing, *last.parts], instructions=instructions)
        else:
            messages.append(ModelRequest(parts=missing, instructions=instructions))

    def _parts_of(self, *, is_model: bool) -> list[Any]:
        """Return the parts of the last side, after starting a new one if necessary."""
        if not self._sides or self._sides[-1][0] != is_model:
            self._sides.append((is_model, []))
        return self._sides[-1][1]

    def _add_to_request(self, part: ModelRequestPart, content: Content = ()) -> None:
        self._parts_of(is_model=False).append(part)
        text = getattr(part, "content", None)
        tokens = len(text) / _CHARACTERS_PER_TOKEN if isinstance(text, str) else 0.0
        self._estimated_tokens += tokens or _estimate_tokens(content)

    def _add_to_response(self, part: ModelResponsePart, text: str) -> None:
        self._estimated_tokens += len(text) / _CHARACTERS_PER_TOKEN
        if self._open_calls and not self._sides[-1][0]:
            # Some calls have results and others not yet: the part belongs to the same response.
            self._sides[-2][1].append(part)
        else:
            self._parts_of(is_model=True).append(part)

    def _add_call(self, body: ToolCall) -> None:
        if body.call_id in self._open_calls:
            return
        name = tool_name(body.name, body.server)
        arguments = body.input if isinstance(body.input, dict) else {}
        if body.input is not None and not isinstance(body.input, dict):
            arguments = {"input": body.input}
        text = json.dumps(arguments, default=str)  # escapes lone surrogates
        if "\\ud" in text:
            arguments = json.loads(clean(json.dumps(arguments, ensure_ascii=False, default=str)))
        part = ToolCallPart(
            tool_name=name,
            args=arguments,
            tool_call_id=body.call_id,
            **body.extra.get(DIALECT, {}),
        )
        self._add_to_response(part, text)
        self._open_calls[body.call_id] = name

    def _add_result(self, body: ToolResult) -> None:
        name = self._open_calls.pop(body.call_id, None)
        if name is None:
            return  # the call was compacted, or this is its second result
        content = _result_content(body)
        part = ToolReturnPart(
            tool_name=name,
            content=content,
            tool_call_id=body.call_id,
            outcome="success" if body.status == "completed" else "failed",
        )
        self._add_to_request(part)
        self._estimated_tokens += sum(
            len(item) / _CHARACTERS_PER_TOKEN if isinstance(item, str) else _TOKENS_PER_IMAGE
            for item in content
        )

    def _replace_by_summary(self, body: Compacted) -> None:
        self._sides, self._open_calls = [], {}
        self._counted_tokens, self._estimated_tokens = 0, 0.0
        summary = UserPromptPart(content=f"[What happened so far]\n\n{plain_text(body.summary)}")
        self._add_to_request(summary, body.summary)


def clean(text: str) -> str:
    """Return text without lone surrogates, which cannot be encoded as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def provider_extra(part: object, names: Sequence[str]) -> dict[str, Any]:
    """Return an event's `extra` with those attributes of a message part that are set."""
    fields = {name: value for name in names if (value := getattr(part, name)) is not None}
    return {DIALECT: fields} if fields else {}


def outcome_prompt(outcome: OutcomeDefined) -> str:
    """Return the prompt that asks the model for an outcome."""
    rubric = outcome.rubric.get("content")
    grading = f"\n\nIt will be graded by this rubric:\n\n{rubric}" if rubric else ""
    return clean(f"{outcome.description}{grading}")


def _prompt(content: Content) -> str | Sequence[Any]:
    parts = [part for block in content for part in _prompt_parts(block)]
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    return parts or "[nothing]"


def _prompt_parts(block: Block) -> list[Any]:
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
            content = BinaryContent(data=raw, media_type=mime)
            return [*_document_notes(block), content]
        case Image(uri=str(uri)) if uri.startswith(("http://", "https://")):
            return [ImageUrl(url=uri)]
    return [_block_text(block)]


def _document_notes(block: Block) -> list[str]:
    """Return the title and the context that a client gave with a document."""
    if not isinstance(block, Resource | ResourceLink):
        return []
    fields = block.extra.get(REST_DIALECT, {})
    notes = (("title", fields.get("title")), ("context", fields.get("context")))
    return [clean(f"[document {name}: {text}]") for name, text in notes if text]


def _block_text(block: Block) -> str:
    return clean(_describe(block))


def _describe(block: Block) -> str:
    """Return the text of a block, or a description of other content."""
    match block:
        case Text():
            return block.text
        case Resource(text=str(text)):
            notes = "".join(f"{note}\n" for note in _document_notes(block))
            return f"{notes}<resource uri={block.uri!r}>\n{text}\n</resource>"
        case ResourceLink():
            notes = "".join(f"{note}\n" for note in _document_notes(block))
            return f"{notes}[{block.name or 'resource'}: {block.uri}]"
        case Diff() | FileChange():
            return f"[{describe_block(block)}]"
        case Image() | Audio():
            return f"[{block.mime}]"
        case Other(raw=raw):
            return json.dumps(raw, ensure_ascii=False, default=str)[:MAX_RESULT_CHARACTERS]
    return f"[{block.uri or 'resource'}]"


def _text(content: Content) -> str:
    return "\n\n".join(filter(None, map(_block_text, content)))


def _result_content(body: ToolResult) -> list[Any]:
    """Return the text of a result, truncated, and its images."""
    blocks = body.content
    if any(isinstance(block, Text) for block in blocks):
        blocks = tuple(block for block in blocks if not isinstance(block, Diff | FileChange))
    parts = [part for block in blocks for part in _prompt_parts(block)]
    if not parts and body.output is not None:
        output = body.output
        if not isinstance(output, str):
            output = json.dumps(output, ensure_ascii=False, default=str)
        parts = [output]
    return [
        truncate(clean(part), MAX_RESULT_CHARACTERS) if isinstance(part, str) else part
        for part in parts or ["(no output)"]
    ]


def _estimate_tokens(content: Content) -> float:
    return sum(
        _TOKENS_PER_IMAGE
        if isinstance(block, Image | Audio)
        else len(_block_text(block)) / _CHARACTERS_PER_TOKEN
        for block in content
    )
