"""Turn the events of a session into the ordered conversation that a tool's writer encodes.

Every call has its result, in the order of the calls. A call whose end is not recorded gets a
result that says so. Parts that the target cannot hold are folded into text or left out here, and
counted, so that a writer encodes every item that it gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from segue.model import codec
from segue.model.content import (
    Block,
    Content,
    Diff,
    FileChange,
    Image,
    Resource,
    Text,
    as_content,
    describe_block,
    plain_text,
)
from segue.model.event import (
    AgentMessage,
    AgentThought,
    Compacted,
    Event,
    Failed,
    Interrupted,
    OutcomeDefined,
    PlanChanged,
    SystemMessage,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.requests.spans import without_request
from segue.model.session import Session

from .report import Fate, Losses, Report
from .tool_names import Meaning, NeutralCall, ToolNames, full_name, split_server

UNKNOWN_OUTCOME = "The session ended before this call did. Its outcome is unknown."
_CANCELLED = "The call was cancelled."
_SUMMARY_HEADING = "[Summary of the conversation so far]"


class Message(NamedTuple):
    """A message: texts and images. `system` messages are instructions that no person typed."""

    role: Literal["user", "agent", "system"]
    content: Content
    id: str
    at: int


class Thought(NamedTuple):
    """A thought that the target's own model can read."""

    thought: AgentThought
    id: str
    at: int


class Call(NamedTuple):
    """A tool call with the target's name and arguments, and its result.

    The result's content is texts and images. `meaning` is None if no table knows the tool.
    """

    call: ToolCall
    result: ToolResult
    meaning: Meaning | None
    id: str
    at: int
    ended_at: int

    @property
    def output(self) -> str:
        """The texts of the result."""
        return plain_text(self.result.content)


class Summary(NamedTuple):
    """For the model, this text replaces all items before it."""

    text: str
    id: str
    at: int


class Interruption(NamedTuple):
    """A turn was cut off here."""

    reason: str
    id: str
    at: int


Item = Message | Thought | Call | Summary | Interruption


class Holds(NamedTuple):
    """What a session of a tool can hold.

    `own_thought` returns whether the tool's model can read a thought; `thoughts` is what becomes
    of the others. `system_messages` is None if they are held. Without `compactions`, a session
    begins with the last summary. Without `unknown_tools`, calls of tools that the target does not
    have become text. Without `failures`, only an exit code says that a call failed. With
    `whole_line_edits`, edits are patches, which cannot say that a last line has no end. Without
    `image_links`, the address of an image becomes text. Without `failed_result_images`, the result
    of a call that failed has texts only. Without `adjacent_answers`, messages of the agent with
    nothing but thoughts between them become one message.
    """

    prompt_images: bool = True
    result_images: bool = True
    failed_result_images: bool = True
    thoughts: Fate = "left_out"
    own_thought: Callable[[AgentThought], bool] = lambda thought: False
    system_messages: Fate | None = None
    compactions: bool = True
    unknown_tools: bool = True
    failures: bool = True
    whole_line_edits: bool = False
    interruptions: bool = True
    image_links: bool = True
    adjacent_answers: bool = True


class Conversation(NamedTuple):
    """What a writer gets: the original's row, the items, and the id that the new session may have.

    A tool with ids of another form chooses its own.
    """

    session: Session
    new_id: str
    items: Sequence[Item]


class Converted(NamedTuple):
    """A conversation, and the report on it."""

    conversation: Conversation
    report: Report


def convert(
    session: Session,
    new_id: str,
    events: Iterable[Event],
    *,
    target: str,
    names: ToolNames,
    holds: Holds,
    known_names: Sequence[ToolNames],
    subagents: int = 0,
) -> Converted:
    """Return the events of a session's active branch as a conversation for a target.

    `names` are the target's tools, `known_names` those of the agents that answered in the session.
    `subagents` is the number of its subagents, whose own conversations no target takes over.
    """
    converter = _Converter(names, holds, known_names)
    converted = converter.convert([event for event in events if _is_read(event)])
    losses = converter.losses
    items = tuple(converted if holds.adjacent_answers else _join_answers(converted, losses))
    losses.add("subagents", "left_out", "their calls and results are kept", subagents)
    messages = [item for item in items if isinstance(item, Message)]
    report = Report(
        session=session.id,
        source=session.source,
        target=target,
        prompts=sum(message.role == "user" for message in messages),
        answers=sum(message.role == "agent" for message in messages),
        tool_calls=sum(isinstance(item, Call) for item in items),
        images=sum(isinstance(block, Image) for item in items for block in _blocks(item)),
        losses=tuple(losses),
    )
    return Converted(Conversation(session, new_id, items), report)


def has_text(thought: AgentThought) -> bool:
    """Return whether a thought can be read: not every vendor shows the thoughts of its models."""
    return bool(plain_text(thought.content).strip())


def _join_answers(items: Iterable[Item], losses: Losses) -> Iterator[Item]:
    """Yield items with one message for adjacent ones of the agent, after their thoughts."""
    answer: Message | None = None
    for item in items:
        if isinstance(item, Message) and item.role == "agent":
            if answer is not None:
                why = "the target has one message between two calls"
                losses.add("adjacent messages of the agent", "adapted", why)
                joined = f"{plain_text(answer.content)}\n\n{plain_text(item.content)}"
                item = answer._replace(content=as_content(joined))
            answer = item
            continue
        if answer is not None and isinstance(item, Thought):
            losses.add("order of thoughts", "adapted", "the target has them before the message")
        elif answer is not None:
            yield answer
            answer = None
        yield item
    if answer is not None:
        yield answer


def _is_read(event: Event) -> bool:
    return event.body.thread is None and not event.body.is_off_branch


def _blocks(item: Item) -> Content:
    match item:
        case Message():
            return item.content
        case Call():
            return item.result.content
    return ()


class _Converter:
    """Converts the events of one session."""

    def __init__(self, names: ToolNames, holds: Holds, known_names: Sequence[ToolNames]) -> None:
        self.losses = Losses()
        self._names = names
        self._holds = holds
        self._known_names = known_names
        self._results: dict[str, list[Event]] = {}
        self._call_ids: set[str] = set()
        self._has_todos = False

    def convert(self, events: Sequence[Event]) -> Iterator[Item]:
        """Yield the items of all events."""
        if not self._holds.compactions:
            events = self._after_last_compaction(events)
        for event in events:
            if isinstance(event.body, ToolResult):
                self._results.setdefault(event.body.call_id, []).append(event)
        for event in events:
            yield from self._items(event)
        if not self._has_todos:
            plans = sum(isinstance(event.body, PlanChanged) for event in events)
            self.losses.add("plans", "left_out", "no call of a tool made them", plans)

    def _after_last_compaction(self, events: Sequence[Event]) -> Sequence[Event]:
        last = max(
            (number for number, event in enumerate(events) if isinstance(event.body, Compacted)),
            default=0,
        )
        replaced = sum(
            isinstance(event.body, UserMessage | AgentMessage) for event in events[:last]
        )
        why = "the summary of the last compaction replaces them"
        self.losses.add("messages before the compaction", "summary", why, replaced)
        return events[last:]

    def _items(self, event: Event) -> Iterator[Item]:
        body, id, at = event.body, event.id, event.at
        match body:
            case UserMessage():
                yield from self._message("user", body.content, id, at)
            case OutcomeDefined():
                yield from self._message("user", as_content(body.description), id, at)
            case SystemMessage():
                becomes = self._holds.system_messages
                if becomes is not None:
                    self.losses.add("system messages", becomes, "no person typed them")
                if becomes != "left_out":
                    yield from self._message("system", body.content, id, at)
            case AgentMessage():
                yield from self._message("agent", body.content, id, at)
            case AgentThought():
                yield from self._thought(body, id, at)
            case ToolCall():
                yield from self._call(body, id, at)
            case Interrupted():
                if self._holds.interruptions:
                    yield Interruption(body.reason, id, at)
                else:
                    self.losses.add("interruptions", "left_out", "the target does not record them")
            case Compacted():
                summary = plain_text(body.summary)
                if self._holds.compactions:
                    yield Summary(summary, id, at)
                elif summary:
                    text = f"{_SUMMARY_HEADING}\n\n{summary}"
                    yield Message("user", as_content(text), id, at)
            case Failed():
                self.losses.add("errors", "left_out", "they are not part of the conversation")

    def _message(
        self, role: Literal["user", "agent", "system"], content: Content, id: str, at: int
    ) -> Iterator[Item]:
        images = self._holds.prompt_images and role == "user"
        if blocks := self._accepted_blocks(content, images=images):
            yield Message(role, blocks, id, at)

    def _accepted_blocks(self, content: Content, *, images: bool) -> Content:
        """Return texts, and images if the target accepts them; other blocks become text."""
        blocks: list[Block] = []
        for block in content:
            if isinstance(block, Text):
                if block.text.strip():
                    blocks.append(Text(text=block.text))
                continue
            if isinstance(block, Image) and self._can_be_sent(block):
                if images:
                    blocks.append(_with_inline_data(block))
                    continue
                self.losses.add("images", "left_out", "the target has no place for them")
            else:
                self.losses.add("attachments", "text", "only texts and images are taken over")
            blocks.append(Text(text=_described(block)))
        return tuple(blocks)

    def _can_be_sent(self, image: Image) -> bool:
        """Return whether an image can be sent: its data or its public address is known."""
        if image.data or (image.uri or "").startswith("data:"):
            return True
        is_public = (image.uri or "").startswith(("http://", "https://"))
        return is_public and self._holds.image_links

    def _thought(self, body: AgentThought, id: str, at: int) -> Iterator[Item]:
        text = plain_text(body.content)
        if self._holds.own_thought(body):
            yield Thought(without_request(body), id, at)
        elif text.strip():
            becomes = self._holds.thoughts
            self.losses.add("thoughts", becomes, "only the model that had them can read them")
            if becomes == "text":
                yield Message("agent", as_content(f"<thinking>\n{text}\n</thinking>"), id, at)

    def _call(self, call: ToolCall, id: str, at: int) -> Iterator[Item]:
        event = self._next_result(call.call_id)
        if event is None:
            self.losses.add("unfinished calls", "text", "their result says that it is unknown")
        call = replace(without_request(call), call_id=self._unique_id(call.call_id or id))
        call = split_server(call)
        result, ended_at = self._result(call, event, at)
        neutral, table = self._meaning(call)
        translated = None if neutral is None else self._names.translate(call, neutral)
        if translated is not None and neutral is not None:
            if neutral.meaning == "shell" and table is not None:
                result = self._names.native_result(table.plain_result(result))
            self._has_todos |= neutral.meaning == "todo"
            if self._holds.whole_line_edits and _changes_part_of_line(neutral):
                why = "the target changes whole lines"
                self.losses.add("edits of parts of lines", "adapted", why)
            call = translated
        elif not self._holds.unknown_tools:
            self.losses.add("calls of other tools", "text", "the target has no such tool")
            yield Message("agent", as_content(_call_text(call, result)), id, at)
            return
        elif neutral is not None:
            why = "they keep the names of the tools that were called"
            self.losses.add("calls of tools that the target lacks", "adapted", why)
        if result.status == "failed" and result.exit_code is None and not self._holds.failures:
            why = "only the texts of the results say it"
            self.losses.add("marks of failed calls", "left_out", why)
        meaning = None if neutral is None else neutral.meaning
        yield Call(call, result, meaning, id, at, max(at, ended_at))

    def _next_result(self, call_id: str) -> Event | None:
        results = self._results.get(call_id)
        return results.pop(0) if results else None

    def _unique_id(self, call_id: str) -> str:
        unique, number = call_id, 1
        while unique in self._call_ids:
            number += 1
            unique = f"{call_id}-{number}"
        self._call_ids.add(unique)
        return unique

    def _meaning(self, call: ToolCall) -> tuple[NeutralCall | None, ToolNames | None]:
        for table in self._known_names:
            if neutral := table.meaning(call):
                return neutral, table
        return None, None

    def _result(self, call: ToolCall, event: Event | None, at: int) -> tuple[ToolResult, int]:
        """Return the result of a call with texts and images only, and when the call ended."""
        if event is None:
            content = as_content(UNKNOWN_OUTCOME)
            return ToolResult(call_id=call.call_id, status="failed", content=content), at
        body = event.body
        assert isinstance(body, ToolResult)
        changes = sum(isinstance(block, Diff | FileChange) for block in body.content)
        why = "the call says what it changed"
        self.losses.add("recorded file changes", "left_out", why, changes)
        others = tuple(block for block in body.content if not isinstance(block, Diff | FileChange))
        has_images = body.status == "completed" or self._holds.failed_result_images
        blocks = self._accepted_blocks(others, images=self._holds.result_images and has_images)
        if not blocks and body.output is not None:
            blocks = as_content(_json_text(body.output))
        if not blocks and body.status == "cancelled":
            blocks = as_content(_CANCELLED)
        result = ToolResult(
            call_id=call.call_id,
            status="completed" if body.status == "completed" else "failed",
            content=blocks,
            exit_code=body.exit_code,
        )
        return result, event.at


def _changes_part_of_line(neutral: NeutralCall) -> bool:
    texts = [neutral.arguments.get(name) for name in ("old", "new", "content")]
    is_change = neutral.meaning in ("edit", "write")
    return is_change and any(text and not str(text).endswith("\n") for text in texts)


def _with_inline_data(image: Image) -> Image:
    """Return an image whose data is in the address with the data in its field."""
    uri = image.uri or ""
    if image.data or not uri.startswith("data:"):
        return Image(mime=image.mime, data=image.data, uri=image.uri)
    head, _, data = uri.removeprefix("data:").partition(",")
    return Image(mime=head.partition(";")[0] or image.mime, data=data)


def _described(block: Block) -> str:
    match block:
        case Resource(text=str(text), uri=uri):
            return f"{uri}\n\n{text}"
        case Image(uri=str(uri)) if not block.data and not uri.startswith("data:"):
            return f"[{uri}]"
    return describe_block(block)


def _call_text(call: ToolCall, result: ToolResult) -> str:
    output = plain_text(result.content) or "(no output)"
    return f"[Called {full_name(call)} with {_json_text(call.input)}]\n\n{output}"


def _json_text(value: Any) -> str:
    return value if isinstance(value, str) else codec.encode(value).decode()
