"""The claude_code agent: the user's own Claude Code answers, and goes on in its own file.

The session has the same id there as here. What Claude Code says is stored under the ids that it
has in its transcript, and a prompt goes there under the id that it has here; so reading the
transcript again later, with what was said there meanwhile, adds nothing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from importlib import import_module
from typing import Any

from segue.model import ids
from segue.model.content import Block, Content, Image, Resource, Text, as_content
from segue.model.errors import NoAgent
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

from .base import Turn
from .permission import MODES

DIALECT = "claude"
MISSING = (
    "Claude Code is answered through claude-agent-sdk, which is not installed:"
    " pip install claude-agent-sdk"
)


class ClaudeCodeAgent:
    """One turn of Claude Code's."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._program = spec.get("config", {}).get("claude.program")

    async def check(self) -> None:
        await _sdk()

    async def run(self, turn: Turn) -> StopReason:
        if not turn.local:
            return await _fail(turn, "Claude Code is run for the local user only")
        try:
            sdk = await _sdk()
        except NoAgent as error:
            return await _fail(turn, error.message)
        begun = await self._begun(turn)
        session = turn.session
        name = (session.extra.get(DIALECT) or {}).get("session") or session.id

        async def allowed(tool: str, given: dict[str, Any], context: Any) -> Any:
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
            can_use_tool=allowed,
            cli_path=self._program,
            **({"resume": name} if begun else {"session_id": name}),
        )
        try:
            async with aclosing(sdk.query(prompt=_prompt(turn), options=options)) as messages:
                return await self._tell(turn, messages)
        except sdk.ClaudeSDKError as error:
            return await _fail(turn, f"Claude Code could not go on: {error}")

    async def _begun(self, turn: Turn) -> bool:
        """Whether Claude Code knows the session: it came from there, or has spoken in it."""
        if DIALECT in turn.session.extra:
            return True
        return any(isinstance(event.body, ModelCalled) for event in await turn.history())

    async def _tell(self, turn: Turn, messages: AsyncIterator[Any]) -> StopReason:
        result = None
        async for message in messages:
            kind = type(message).__name__
            if kind == "ResultMessage":
                result = message  # after which the program ends
            elif getattr(message, "parent_tool_use_id", None) is not None:
                continue  # what a subagent says is in a transcript of its own
            elif kind == "AssistantMessage":
                await turn.emit(*_said(message))
            elif kind == "UserMessage" and isinstance(message.content, list):
                await turn.emit(*_came_back(message))
        if result is None:
            return await _fail(turn, "Claude Code ended before its answer did")
        if result.is_error and result.subtype != "error_max_turns":
            return await _fail(turn, "; ".join(result.errors or [result.result or result.subtype]))
        return "max_turn_requests" if result.is_error else "end_turn"


async def _sdk() -> Any:
    try:
        # Seconds of imports, during which leases must be renewed and others answered.
        return await asyncio.to_thread(import_module, "claude_agent_sdk")
    except ImportError:
        raise NoAgent(MISSING) from None


async def _fail(turn: Turn, why: str) -> StopReason:
    await turn.emit(Failed(message=why, code="claude_code", retry="exhausted"))
    return "error"


async def _prompt(turn: Turn) -> AsyncIterator[dict[str, Any]]:
    words = len(turn.prompt) == 1 and isinstance(turn.prompt[0], Text)
    content = turn.text if words else [_block(block) for block in turn.prompt]
    yield {
        "type": "user",
        "uuid": turn.id,
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": None,
    }


def _block(block: Block) -> dict[str, Any]:
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


def _said(message: Any) -> list[Draft]:
    bodies: list[AnyBody] = []
    for block in message.content:
        match type(block).__name__:
            case "TextBlock":
                bodies.append(AgentMessage(content=as_content(block.text)))
            case "ThinkingBlock":
                extra = {DIALECT: {"signature": block.signature}}
                bodies.append(AgentThought(content=as_content(block.thinking), extra=extra))
            case "ToolUseBlock":
                bodies.append(ToolCall(call_id=block.id, name=block.name, input=block.input))
    drafts = _drafts(message.uuid, bodies)
    if message.usage and message.message_id:
        called = ModelCalled(model=message.model, usage=_usage(message.usage))
        drafts.append(
            Draft(id=ids.derived_id(DIALECT, "response", message.message_id), body=called)
        )
    return drafts


def _came_back(message: Any) -> list[Draft]:
    results: list[AnyBody] = [
        ToolResult(
            call_id=block.tool_use_id,
            status="failed" if block.is_error else "completed",
            content=_content(block.content),
        )
        for block in message.content
        if type(block).__name__ == "ToolResultBlock"
    ]
    return _drafts(message.uuid, results)


def _drafts(uuid: str | None, bodies: list[AnyBody]) -> list[Draft]:
    """The bodies of a line, under the ids that reading it in gives them."""
    drafts = []
    for part, body in enumerate(bodies):
        id = uuid if part == 0 or uuid is None else ids.derived_id(DIALECT, uuid, str(part))
        drafts.append(Draft(id=id, body=body))
    return drafts


def _content(given: Any) -> Content:
    if isinstance(given, str):
        return as_content(given)
    return tuple(
        Text(text=block["text"]) if block.get("type") == "text" else _picture(block)
        for block in given or ()
        if isinstance(block, dict)
    )


def _picture(block: Mapping[str, Any]) -> Block:
    source = block.get("source") or {}
    if block.get("type") == "image" and isinstance(source.get("data"), str):
        return Image(mime=source.get("media_type", "image/png"), data=source["data"])
    return Text(text=f"[{block.get('type')}]")


def _usage(told: Mapping[str, Any]) -> Usage:
    made = told.get("cache_creation") or {}
    written = told.get("cache_creation_input_tokens") or 0
    hour = made.get("ephemeral_1h_input_tokens") or 0
    return Usage(
        input_tokens=told.get("input_tokens") or 0,
        output_tokens=told.get("output_tokens") or 0,
        cache_read_tokens=told.get("cache_read_input_tokens") or 0,
        cache_5m_tokens=max(0, written - hour),
        cache_1h_tokens=hour,
    )
