"""The claude_code agent: the user's Claude Code answers, and continues its own transcript.

The session has the same id in segue and in Claude Code. segue stores each message of Claude Code
under its id in the transcript, and sends each prompt with its id in segue. So a later import of the
transcript adds no message twice.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from msgspec import UNSET

from segue.model import clock, ids
from segue.model.anthropic.content_blocks import exit_code
from segue.model.content import Block, Content, Image, Resource, Text, as_content
from segue.model.errors import NoAgent, without_locations
from segue.model.event import (
    AgentMessage,
    AgentThought,
    AnyBody,
    Draft,
    Failed,
    ModelCalled,
    ToolCall,
    ToolResult,
    Usage,
)
from segue.model.lifecycle import StopReason
from segue.model.requests.spans import request_end
from segue.prices.estimate import with_cost

from .base import Turn
from .base.spec import MODES

DIALECT = "claude"
_END = object()
_SDK = "claude-agent-sdk"  # no extra has it, because it contains a large program


class ClaudeCodeAgent:
    """Answers prompts with Claude Code."""

    directory_settings = "Claude Code"

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._program = spec.get("config", {}).get("claude.program")

    async def check(self) -> None:
        """Raise NoAgent if claude-agent-sdk is not installed."""
        await _import_sdk()

    async def run(self, turn: Turn) -> StopReason:
        if not turn.local:
            return await _fail(
                turn, "Claude Code runs for the local user only; start segue as that user"
            )
        try:
            sdk = await _import_sdk()
        except NoAgent as error:
            return await _fail(turn, error.message)
        resumes = await self._knows_session(turn)
        session = turn.session
        native_id = (session.extra.get(DIALECT) or {}).get("session") or session.id
        if not isinstance(native_id, str) or ids.parse(native_id) is None:
            # An imported file may have any value, also an option of the program.
            return await _fail(turn, "the session names no valid id of a Claude Code session")

        async def can_use_tool(tool: str, arguments: dict[str, Any], context: Any) -> Any:
            answer = await turn.request_permission(
                context.title or tool, call_id=context.tool_use_id
            )
            if answer.allowed:
                return sdk.PermissionResultAllow(updated_input=answer.input)
            return sdk.PermissionResultDeny(message=answer.note or "the user refused")

        options = sdk.ClaudeAgentOptions(
            cwd=session.cwd,
            add_dirs=list(session.roots),
            permission_mode=session.mode if session.mode in MODES else None,
            can_use_tool=can_use_tool,
            cli_path=self._program,
            **({"resume": native_id} if resumes else {"session_id": native_id}),
        )
        try:
            async with _reading(sdk.query(prompt=_prompt(turn), options=options)) as messages:
                return await self._store_messages(turn, messages)
        except sdk.ClaudeSDKError as error:
            return await _fail(turn, f"Claude Code failed: {error}")

    async def _knows_session(self, turn: Turn) -> bool:
        """Return True if Claude Code has the session: as its origin, or from an earlier turn."""
        if DIALECT in turn.session.extra:
            return True
        return any(request_end(event.body) for event in await turn.history())

    async def _store_messages(self, turn: Turn, messages: AsyncIterator[Any]) -> StopReason:
        result = None
        async for message in messages:
            kind = type(message).__name__
            if kind == "ResultMessage":
                result = message  # the last message
            elif getattr(message, "parent_tool_use_id", None) is not None:
                continue  # subagents have their own transcripts
            elif kind == "AssistantMessage":
                await turn.emit(*_assistant_drafts(message))
            elif kind == "UserMessage" and isinstance(message.content, list):
                await turn.emit(*_tool_result_drafts(message))
        if result is None:
            return await _fail(turn, "Claude Code ended without a result")
        if result.is_error and result.subtype != "error_max_turns":
            return await _fail(turn, "; ".join(result.errors or [result.result or result.subtype]))
        return "max_turn_requests" if result.is_error else "end_turn"


@asynccontextmanager
async def _reading(query: AsyncIterator[Any]) -> AsyncGenerator[AsyncIterator[Any]]:
    """Yield the messages of a query; at the end, wait until its program has ended.

    A query consists of nested generators, and closing it closes only the outer one at once. A
    cancellation reaches the inner ones if the task waits for a message, so a task of its own does
    nothing else.
    """
    queue: asyncio.Queue[Any] = asyncio.Queue()
    reader = asyncio.create_task(_enqueue(query, queue))

    async def messages() -> AsyncIterator[Any]:
        while (message := await queue.get()) is not _END:
            yield message
        await reader  # raises the error of the query

    try:
        yield messages()
    finally:
        reader.cancel()
        await asyncio.wait([reader])
        if not reader.cancelled():
            reader.exception()  # `messages` has raised it, or the turn was cancelled


async def _enqueue(query: AsyncIterator[Any], queue: asyncio.Queue[Any]) -> None:
    try:
        async for message in query:
            queue.put_nowait(message)
    finally:
        queue.put_nowait(_END)


async def _import_sdk() -> Any:
    try:
        # The import takes seconds; in a thread it does not block lease renewals and other turns.
        return await asyncio.to_thread(import_module, "claude_agent_sdk")
    except ImportError:
        from segue.extras import command_for

        command = command_for((_SDK,), sys.prefix)
        message = f"the claude_code agent needs {_SDK}, which is not installed; run: {command}"
        raise NoAgent(message) from None


async def _fail(turn: Turn, message: str) -> StopReason:
    await turn.emit(
        Failed(
            message=message,
            remote_message=without_locations(message),
            code="claude_code",
            retry="exhausted",
        )
    )
    return "error"


async def _prompt(turn: Turn) -> AsyncIterator[dict[str, Any]]:
    text_only = len(turn.prompt) == 1 and isinstance(turn.prompt[0], Text)
    content = turn.text if text_only else [_encode_block(block) for block in turn.prompt]
    yield {
        "type": "user",
        "uuid": turn.id,
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": None,
    }


def _encode_block(block: Block) -> dict[str, Any]:
    match block:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image(data=str(data), mime=mime):
            source = {"type": "base64", "media_type": mime, "data": data}
            return {"type": "image", "source": source}
        case Resource(text=str(text), uri=uri):
            return {"type": "text", "text": f"{uri}\n\n{text}"}
    return {
        "type": "text",
        "text": f"[{getattr(block, 'uri', None) or block.__struct_config__.tag}]",
    }


def _assistant_drafts(message: Any) -> list[Draft]:
    request: str | None = None
    if message.usage and message.message_id:
        request = ids.derived_id(DIALECT, "response", message.message_id)
    bodies: list[AnyBody] = []
    for block in message.content:
        match type(block).__name__:
            case "TextBlock":
                text = as_content(block.text)
                bodies.append(AgentMessage(content=text, request=request, model=message.model))
            case "ThinkingBlock":
                extra = {DIALECT: {"signature": block.signature}}
                thought = as_content(block.thinking)
                bodies.append(AgentThought(content=thought, request=request, extra=extra))
            case "ToolUseBlock":
                call = ToolCall(
                    call_id=block.id, name=block.name, input=block.input, request=request
                )
                bodies.append(call)
    drafts = _drafts(message.uuid, bodies)
    if request is not None:
        usage = with_cost(_usage(message.usage), message.model, clock.now())
        called = ModelCalled(model=message.model, usage=usage)
        drafts.append(Draft(id=request, body=called))
    return drafts


def _tool_result_drafts(message: Any) -> list[Draft]:
    results: list[AnyBody] = [
        _tool_result(block)
        for block in message.content
        if type(block).__name__ == "ToolResultBlock"
    ]
    return _drafts(message.uuid, results)


def _tool_result(block: Any) -> ToolResult:
    content, is_error = _decode_content(block.content), bool(block.is_error)
    return ToolResult(
        call_id=block.tool_use_id,
        status="failed" if is_error else "completed",
        content=content,
        exit_code=exit_code(content, is_error=is_error),
    )


def _drafts(uuid: str | None, bodies: list[AnyBody]) -> list[Draft]:
    """Return the events of a transcript line, with the ids that an import gives them."""
    drafts = []
    for part, body in enumerate(bodies):
        id = uuid if part == 0 or uuid is None else ids.derived_id(DIALECT, uuid, str(part))
        drafts.append(Draft(id=id, body=body))
    return drafts


def _decode_content(content: Any) -> Content:
    if isinstance(content, str):
        return as_content(content)
    return tuple(
        Text(text=block["text"]) if block.get("type") == "text" else _decode_image(block)
        for block in content or ()
        if isinstance(block, dict)
    )


def _decode_image(block: Mapping[str, Any]) -> Block:
    source = block.get("source") or {}
    if block.get("type") == "image" and isinstance(source.get("data"), str):
        return Image(mime=source.get("media_type", "image/png"), data=source["data"])
    return Text(text=f"[{block.get('type')}]")


def _usage(counts: Mapping[str, Any]) -> Usage:
    by_lifetime = counts.get("cache_creation") or {}
    return Usage(
        input_tokens=counts.get("input_tokens"),
        output_tokens=counts.get("output_tokens"),
        cache_read_tokens=counts.get("cache_read_input_tokens"),
        cache_write_tokens=counts.get("cache_creation_input_tokens"),
        cache_1h_tokens=by_lifetime.get("ephemeral_1h_input_tokens") or UNSET,
    )
