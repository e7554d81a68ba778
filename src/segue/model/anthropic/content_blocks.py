"""Messages, tool calls and results as the content blocks of the Messages API."""

from __future__ import annotations

import re
from typing import Any

from segue.model import codec
from segue.model.content import (
    Block,
    Content,
    Diff,
    FileChange,
    Image,
    Other,
    Resource,
    ResourceLink,
    Text,
    plain_text,
)
from segue.model.event import AgentMessage, AgentThought, Body, ToolCall, ToolResult, Usage

# The name of these blocks in events: of blocks that only this API has, and of signatures.
DIALECT = "claude"
Fields = dict[str, Any]
_INVALID_NAME_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_TOOL_NAME_LENGTH = 128


def agent_blocks(body: Body, *, resumable: bool = True) -> list[Fields]:
    """Return the content blocks of an agent's message, thought or tool call."""
    match body:
        case AgentMessage():
            return content_blocks(body.content)
        case AgentThought():
            return _thought_blocks(body, resumable=resumable)
        case ToolCall():
            arguments = body.input if isinstance(body.input, dict) else {"input": body.input}
            name = body.name if body.server is None else f"mcp__{body.server}__{body.name}"
            return [
                {
                    "type": "tool_use",
                    "id": _valid_name(body.call_id),
                    "name": _valid_name(name)[:_MAX_TOOL_NAME_LENGTH],
                    "input": {} if body.input is None else arguments,
                }
            ]
    return []


def result_block(body: ToolResult) -> Fields:
    """Return the content block of a tool's result."""
    return {
        "tool_use_id": _valid_name(body.call_id),
        "type": "tool_result",
        "content": content_blocks(body.content) or _output_text(body.output),
        "is_error": body.status != "completed",
    }


def content_blocks(content: Content) -> list[Fields]:
    """Return the content blocks of a message; blocks without content are left out."""
    return [encoded for block in content if (encoded := _block(block))]


def exit_code(result: Content, *, is_error: bool) -> int | None:
    """Return the exit code with which the text of a failed command's result begins."""
    match = re.match(r"Exit code (\d{1,3})\b", plain_text(result)) if is_error else None
    return int(match[1]) if match else None


def usage(tokens: Usage) -> Fields:
    """Return token counts as the API reports them."""
    return {
        "input_tokens": tokens.input_tokens or 0,
        "cache_creation_input_tokens": tokens.cache_write_tokens or 0,
        "cache_read_input_tokens": tokens.cache_read_tokens or 0,
        "output_tokens": tokens.output_tokens or 0,
    }


def _thought_blocks(body: AgentThought, *, resumable: bool) -> list[Fields]:
    # The API refuses a thought without the signature of the model's vendor.
    signature = (body.extra.get(DIALECT) or {}).get("signature")
    is_signed = isinstance(signature, str) and signature
    if is_signed or not resumable:
        block = {"type": "thinking", "thinking": plain_text(body.content)}
        return [{**block, "signature": signature} if is_signed else block]
    return [{"type": "text", "text": f"<thinking>\n{plain_text(body.content)}\n</thinking>"}]


def _block(block: Block) -> Fields | None:
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
        case FileChange(path=path, patch=patch):
            return {"type": "text", "text": f"{path}\n{patch or ''}"}
        case Other(dialect=dialect, raw=dict(raw)) if dialect == DIALECT:
            return raw
    return {"type": "text", "text": f"[{type(block).__name__.lower()}]"}


def _valid_name(text: str) -> str:
    """Return an id or a tool's name with only the characters that the API accepts."""
    return _INVALID_NAME_CHARACTER.sub("_", text) or "_"


def _output_text(output: Any) -> str:
    if output is None:
        return ""
    return output if isinstance(output, str) else codec.encode(output).decode()
