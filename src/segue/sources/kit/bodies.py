"""Make event bodies from a tool's values: the one place that knows their fields.

A reader calls these functions and never constructs Usage, ToolCall or ToolResult itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from segue.model import clock
from segue.model.content import Block, Content, Diff, Image, Text, as_content, truncate_prompt
from segue.model.event import (
    REMOVED,
    STARTS_TURN,
    AgentMessage,
    AgentThought,
    AnyBody,
    Compacted,
    Failed,
    Foreign,
    InfoChanged,
    Interrupted,
    Location,
    ModelCalled,
    ToolCall,
    ToolKind,
    ToolResult,
    Usage,
    UserMessage,
)

MAX_COUNT = 1 << 40  # sums of counts must fit into a store's integers
ToolStatus = Literal["completed", "failed", "cancelled"]

# What a tool does, by the words in its name. The first match counts.
_KINDS: tuple[tuple[tuple[str, ...], ToolKind], ...] = (
    (("apply_patch", "edit", "write", "replace", "create", "patch", "insert"), "edit"),
    (("delete", "remove"), "delete"),
    (("grep", "glob", "search", "find", "list", "ls"), "search"),
    (("fetch", "web", "http"), "fetch"),
    (("read", "view", "cat", "open"), "read"),
    (("shell", "exec", "bash", "command", "run", "terminal"), "execute"),
    (("think", "todo", "plan"), "think"),
)
_PATH_FIELDS = ("file_path", "filePath", "path", "absolute_path", "filename")
_TITLE_FIELDS = ("command", "cmd", "pattern", "query", "url", "prompt", "description")
_MAX_TITLE_CHARS = 200
_MAX_PROMPT_CHARS = 4096


def count(value: Any) -> int:
    """Return a count of tokens; 0 if the value is none."""
    is_count = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_count and 0 <= value < MAX_COUNT else 0


def usage(
    *,
    input: Any = None,
    output: Any = None,
    cache_read: Any = None,
    cache_write: Any = None,
    cost: float | None = None,
    input_includes_cache: bool,
) -> Usage:
    """Return the tokens of a model call.

    `input_includes_cache` says whether the tool's input tokens include those read from and written
    to the cache; segue's do not. `cost` is in US dollars, if the tool records it. A number that the
    tool does not record is None.
    """
    fresh = _recorded(input)
    if input_includes_cache and fresh is not None:
        fresh = max(0, fresh - count(cache_read) - count(cache_write))
    return Usage(
        input_tokens=fresh,
        output_tokens=_recorded(output),
        cache_read_tokens=_recorded(cache_read),
        cache_write_tokens=_recorded(cache_write),
        cost=round(cost * 1_000_000) if cost and 0 < cost < MAX_COUNT else None,
    )


def _recorded(value: Any) -> int | None:
    return None if value is None else count(value)


def model_called(tokens: Usage, model: str | None, **fields: Any) -> ModelCalled:
    """Return the end of a request to a model."""
    return ModelCalled(usage=tokens, model=model or None, **fields)


def content_of(parts: str | Iterable[Block]) -> Content:
    """Return content without empty texts."""
    blocks = as_content(parts)
    return tuple(block for block in blocks if not isinstance(block, Text) or block.text)


def prompt(parts: str | Iterable[Block], **extra: Any) -> UserMessage:
    """Return a message that a person typed, or that a client sent as a prompt."""
    return UserMessage(content=content_of(parts), extra={**STARTS_TURN, **extra})


def answer(parts: str | Iterable[Block], *, partial: bool = False) -> AgentMessage:
    """Return a message of the agent."""
    return AgentMessage(content=content_of(parts), partial=partial)


def thought(text: str) -> AgentThought:
    """Return a thought of the agent."""
    return AgentThought(content=as_content(text))


def injected(source: str, record: Any) -> Foreign:
    """Return an event for text that the tool added, such as context; no person typed it."""
    return Foreign(dialect=source, raw=record)


def tool_call(
    call_id: str,
    name: str,
    input: Any = None,
    *,
    kind: ToolKind | None = None,
    title: str | None = None,
    diffs: Sequence[Diff] = (),
    server: str | None = None,
) -> ToolCall:
    """Return the beginning of a tool call; the kind, title and files are guessed if not given."""
    fields = input if isinstance(input, Mapping) else {}
    return ToolCall(
        call_id=call_id,
        name=name,
        kind=kind or tool_kind(name),
        title=title or _tool_title(fields),
        input=input,
        content=tuple(diffs),
        locations=tuple(_locations(fields, diffs)),
        server=server,
    )


def tool_kind(name: str) -> ToolKind:
    """Return what a tool does, by its name."""
    folded = name.lower()
    return next((kind for words, kind in _KINDS if any(word in folded for word in words)), "other")


def _tool_title(fields: Mapping[str, Any]) -> str | None:
    for name in _TITLE_FIELDS:
        value = fields.get(name)
        if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
            value = " ".join(value)
        if isinstance(value, str) and value.strip():
            return value.strip().splitlines()[0][:_MAX_TITLE_CHARS]
    return None


def _locations(fields: Mapping[str, Any], diffs: Sequence[Diff]) -> list[Location]:
    paths = [value for name in _PATH_FIELDS if isinstance(value := fields.get(name), str) and value]
    return [Location(path=path) for path in dict.fromkeys([*paths, *(diff.path for diff in diffs)])]


def tool_result(
    call_id: str,
    parts: str | Iterable[Block],
    *,
    status: ToolStatus = "completed",
    exit_code: int | None = None,
    diffs: Sequence[Diff] = (),
) -> ToolResult:
    """Return the end of a tool call; a command with an exit code other than 0 has failed."""
    if status == "completed" and exit_code:
        status = "failed"
    content = (*content_of(parts), *diffs)
    return ToolResult(call_id=call_id, status=status, content=content, exit_code=exit_code)


def titled(title: str | None, by: Literal["person", "agent", "auto"] = "person") -> InfoChanged:
    """Return a change of the title; None removes it."""
    return InfoChanged(title=title, by=by)


def interrupted(reason: str = "cancelled") -> Interrupted:
    """Return the end of a turn that was cut off."""
    return Interrupted(reason=reason)


def failed(message: str, code: str = "unknown") -> Failed:
    """Return an error that ended a turn."""
    return Failed(message=message, code=code)


def compacted(summary: str, trigger: Literal["auto", "manual"] = "auto") -> Compacted:
    """Return a compaction: for the model, the summary replaces all earlier events."""
    return Compacted(summary=content_of(summary), trigger=trigger)


def off_branch(body: AnyBody) -> AnyBody:
    """Return an event that the tool removed from the conversation."""
    return msgspec.structs.replace(body, extra={**body.extra, **REMOVED})


def in_thread(body: AnyBody, thread: str) -> AnyBody:
    """Return an event of a subagent."""
    return msgspec.structs.replace(body, thread=thread)


def image(url: str, mime: str | None = None) -> Image:
    """Return a picture by its address; the data of a `data:` URL is included."""
    if url.startswith("data:") and "," in url:
        head, data = url[5:].split(",", 1)
        return Image(mime=head.split(";")[0] or mime or "image/png", data=data)
    return Image(mime=mime or "image/png", uri=url)


def text(value: Any) -> str:
    """Return a string; empty if the value is none."""
    return value if isinstance(value, str) else ""


def prompt_title(text: str) -> str | None:
    """Return the beginning of a prompt on one line, as a title; None if there is no text."""
    lines = (line.strip() for line in text[:_MAX_PROMPT_CHARS].splitlines())
    return truncate_prompt(" ".join(line for line in lines if line)) or None


def time_of(value: Any) -> int | None:
    """Return a time in microseconds, of RFC 3339 text or a number of milliseconds or seconds."""
    try:
        if isinstance(value, str):
            return clock.from_rfc3339(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            scale = 1000 if value > 1e11 else clock.SECOND  # before 1973 in milliseconds
            micros = int(value * scale)
            return micros if micros < 1 << 53 else None
    except (ValueError, OverflowError):
        pass
    return None
