"""Read prompts, and encode the parts of updates that both protocol versions share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from segue.acp import wire
from segue.acp.content import read_block, write_blocks
from segue.acp.rpc import INVALID_PARAMS, RpcError
from segue.interfaces.acp.errors import DIALECT, invalid_params
from segue.interfaces.acp.meta import info_meta, turn_meta
from segue.model import clock
from segue.model.content import Content, Diff, FileChange
from segue.model.event import (
    Compacted,
    ConfigChanged,
    Failed,
    InfoChanged,
    Location,
    ModelCalled,
    PermissionAsked,
    PlanEntry,
    StatusChanged,
    ThreadChanged,
    ThreadStarted,
    ToolCall,
    ToolCallChanged,
)
from segue.model.session import Session
from segue.model.tools.patches import with_texts
from segue.model.tools.titles import call_title

from .forwarding import meta_of
from .options import OFFERED

VersionedDiff = TypeVar("VersionedDiff")

# A replay ends with the session's current title and settings, and notices are sent live only.
NOT_REPLAYED = (InfoChanged, ConfigChanged, StatusChanged, Failed)


# The prompt capability that a type of block needs.
_NEEDED_CAPABILITIES = {"image": "image", "audio": "audio", "resource": "embeddedContext"}


def read_prompt(
    blocks: Sequence[dict[str, Any]], declared: frozenset[str] | None = None
) -> Content:
    """Return the content of a prompt.

    `declared` are the prompt capabilities of an agent that declares them. Raises RpcError if the
    prompt is empty or contains a type of block that is unknown or not declared.
    """
    if not blocks:
        raise RpcError(INVALID_PARAMS, "prompt: at least one content block is required")
    content = []
    for index, block in enumerate(blocks):
        needed = _NEEDED_CAPABILITIES.get(str(block.get("type")))
        if declared is not None and needed is not None and needed not in declared:
            message = f"prompt[{index}]: this agent does not accept {block['type']} content"
            raise RpcError(INVALID_PARAMS, message)
        try:
            content.append(read_block(block))
        except msgspec.ValidationError as error:
            raise invalid_params(error, f"prompt[{index}]") from None
    return tuple(content)


def locations(call: ToolCall) -> list[wire.Location]:
    """Return the file locations of a tool call; the protocol requires absolute paths."""
    return absolute_locations(call.locations)


def absolute_locations(locations: Iterable[Location]) -> list[wire.Location]:
    """Return the locations with absolute paths."""
    return [
        wire.Location(path=location.path, line=location.line)
        for location in locations
        if os.path.isabs(location.path)
    ]


def total_cost(session: Session | None) -> wire.Cost | None:
    """Return the cost of a session up to now, or None if it is unknown."""
    if session is None or not session.usage.cost:
        return None
    return wire.Cost(amount=session.usage.cost / 1_000_000, currency="USD")


def text_block(text: str) -> wire.TextBlock:
    """Return a content block with text."""
    return wire.TextBlock(text=text)


def encode_info(body: InfoChanged, session: Session | None) -> Iterator[wire.SessionInfoUpdate]:
    """Encode a change of a session's title, tag or state.

    A title that did not become the session's title is left out: a title that a user chose takes
    precedence over an automatic one.
    """
    has_title = body.title is not UNSET and (session is None or session.title == body.title)
    meta = info_meta(body)
    if has_title or meta:
        yield wire.SessionInfoUpdate(title=body.title if has_title else UNSET, meta=meta or None)


def encode_current_info(session: Session) -> wire.SessionInfoUpdate:
    """Encode the title and time of a session that was opened."""
    return wire.SessionInfoUpdate(
        title=session.title, updated_at=clock.to_rfc3339(session.active_at)
    )


def encode_turn_end(session: Session) -> wire.SessionInfoUpdate:
    """Encode the time and the metadata of a session whose turn has ended."""
    active_at = clock.to_rfc3339(session.active_at)
    return wire.SessionInfoUpdate(updated_at=active_at, meta=turn_meta(session))


def encode_tokens(session: Session) -> wire.TokenUsage | UnsetType:
    """Return the tokens of all turns of a session, unset if no model has reported them."""
    usage = session.usage
    if usage.input_tokens is None or usage.output_tokens is None or not usage.tokens:
        return UNSET
    return wire.TokenUsage(
        total_tokens=usage.tokens,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_read_tokens=usage.cache_read_tokens,
        cached_write_tokens=usage.cache_write_tokens,
    )


def encode_usage(body: ModelCalled, session: Session | None) -> Iterator[wire.UsageUpdate]:
    """Encode how full the model's context is, if that is known."""
    if body.context_used and body.context_size:
        yield wire.UsageUpdate(
            used=body.context_used, size=body.context_size, cost=total_cost(session)
        )


def encode_thread(
    body: ThreadStarted | ThreadChanged, session: Session | None
) -> Iterator[wire.SubagentUpdate]:
    """Encode a thread that has started or whose status has changed, as a subagent."""
    if session is None:
        return  # a replay shows the tool calls that started threads
    if isinstance(body, ThreadStarted):
        title, description = body.title or body.name, body.name
        yield wire.SubagentUpdate(
            session_id=f"{session.id}.{body.id}", title=title, description=description
        )
        return
    state: dict[str, Any] = {"state": "running"}
    if body.stop_reason == "requires_action":
        state = {"state": "requires_action"}
    elif body.status in ("idle", "terminated"):
        reason = None if body.stop_reason == "budget_reached" else body.stop_reason
        state = {"state": "idle", "stopReason": reason}
    yield wire.SubagentUpdate(session_id=f"{session.id}.{body.thread}", state=state)


def encode_compaction(event_id: str, body: Compacted) -> wire.CompactionUpdate:
    """Encode the summary that replaced the first part of a conversation."""
    summary = write_blocks(body.summary) or UNSET
    return wire.CompactionUpdate(compaction_id=event_id, status="completed", summary=summary)


def encode_plan_entry(entry: PlanEntry) -> wire.PlanEntry:
    """Encode one step of a plan."""
    return wire.PlanEntry(content=entry.content, priority=entry.priority, status=entry.status)


def offers_changed(body: ConfigChanged) -> bool:
    """Return whether the agent offers other options or commands than before."""
    return body.options is not UNSET and OFFERED in body.options


def tool_call_fields(call: ToolCall, content: list[Any]) -> dict[str, Any]:
    """Return the fields that announce a tool call in both versions."""
    return {
        "tool_call_id": call.call_id,
        "title": call_title(call),
        "name": call.name,
        "kind": call.kind,
        "status": "in_progress",
        "content": content or UNSET,
        "locations": locations(call) or UNSET,
        "raw_input": UNSET if call.input is None else call.input,
        "meta": meta_of(call),
    }


def changed_call_fields(
    change: ToolCallChanged,
    encode_diff: Callable[[Diff | FileChange], Iterable[VersionedDiff]],
) -> dict[str, Any]:
    """Return the fields of an update of a tool call in both versions."""
    content, locations = change.content, change.locations
    return {
        "tool_call_id": change.call_id,
        "title": change.title,
        "name": change.name,
        "kind": change.kind,
        "content": UNSET if content is UNSET else encode_tool_content(content, encode_diff),
        "locations": UNSET if locations is UNSET else absolute_locations(locations),
        "raw_input": change.input,
        "meta": meta_of(change),
    }


def shown_terminal(change: ToolCallChanged) -> wire.ToolTerminal | None:
    """Return the terminal of the client that a tool call shows while the terminal exists."""
    terminal = change.extra.get(DIALECT, {}).get("terminal")
    return wire.ToolTerminal(terminal_id=terminal) if isinstance(terminal, str) else None


def encode_tool_content(
    content: Content,
    encode_diff: Callable[[Diff | FileChange], Iterable[VersionedDiff]],
    call: ToolCall | None = None,
) -> list[wire.ToolContent | VersionedDiff]:
    """Return the content of a tool call, or of the result of `call`."""
    encoded: list[wire.ToolContent | VersionedDiff] = []
    for block in with_texts(content, call):
        if isinstance(block, Diff | FileChange):
            encoded += encode_diff(block)
        else:
            encoded += [
                wire.ToolContent(content=wire_block) for wire_block in write_blocks([block])
            ]
    return encoded


def permission_options(body: PermissionAsked) -> list[wire.PermissionOption]:
    """Return the options of a permission request."""
    return [
        wire.PermissionOption(option_id=option.id, name=option.name, kind=option.kind)
        for option in body.options
    ]
