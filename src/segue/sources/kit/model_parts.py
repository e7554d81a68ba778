"""Read and write messages that consist of `parts`, as Google's API and several tools have them.

A part is `{"text"}`, with `"thought": true` for a thought, `{"inlineData"}`, `{"fileData"}`,
`{"functionCall"}` or `{"functionResponse"}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from segue.model.content import (
    Audio,
    Block,
    Diff,
    Image,
    Other,
    Resource,
    ResourceLink,
    Text,
    plain_text,
)
from segue.model.event import ToolResult, Usage

from . import bodies

Part = dict[str, Any]
_EXIT_CODE = re.compile(r"^Exit Code: (-?\d+)\s*$", re.MULTILINE)
_WRAPPER = re.compile(r"\A<untrusted_context>\n?(.*?)\n?</untrusted_context>\s*\Z", re.DOTALL)
_STATUSES: dict[Any, bodies.ToolStatus] = {"error": "failed", "cancelled": "cancelled"}
_MAX_EXIT_TEXT = 1 << 16


def parts_of(content: Any) -> list[Part]:
    """Return content as parts: it may be a text, a part, or a list of both."""
    values = content if isinstance(content, list) else [content]
    parts: list[Part] = []
    for value in values:
        if isinstance(value, str):
            parts.append({"text": value})
        elif isinstance(value, dict):
            parts.append(value)
    return parts


def text_of(parts: Iterable[Part]) -> str:
    """Return the text of parts, without thoughts."""
    return "".join(bodies.text(part.get("text")) for part in parts if not part.get("thought"))


def blocks_of(source: str, parts: Iterable[Part]) -> list[Block]:
    """Return what people see of parts: texts, pictures and files, but no thoughts and calls."""
    blocks: list[Block] = []
    for part in parts:
        if part.get("thought") or "functionCall" in part or "functionResponse" in part:
            continue
        if isinstance(part.get("text"), str):
            text = part["text"]  # a text may be in several parts
            if blocks and isinstance(last := blocks[-1], Text):
                blocks[-1] = Text(text=last.text + text)
            else:
                blocks.append(Text(text=text))
        elif isinstance(data := part.get("inlineData"), dict):
            blocks.append(_data_block(data))
        elif isinstance(file := part.get("fileData"), dict):
            uri, mime = bodies.text(file.get("fileUri")), bodies.text(file.get("mimeType"))
            is_image = mime.startswith("image/")
            link = ResourceLink(uri=uri, name=bodies.text(file.get("displayName")), mime=mime)
            blocks.append(Image(mime=mime, uri=uri) if is_image else link)
        elif part:
            blocks.append(Other(dialect=source, raw=part))
    return blocks


def _data_block(data: Part) -> Block:
    mime, value = bodies.text(data.get("mimeType")), bodies.text(data.get("data"))
    if mime.startswith("audio/"):
        return Audio(mime=mime, data=value)
    if mime.startswith("image/") or not mime:
        return Image(mime=mime or "image/png", data=value)
    return Resource(uri=bodies.text(data.get("displayName")), data=value, mime=mime)


def thoughts_of(parts: Iterable[Part]) -> list[str]:
    """Return the thoughts of parts."""
    texts = (bodies.text(part.get("text")) for part in parts if part.get("thought"))
    return [text for text in texts if text.strip()]


def calls_of(parts: Iterable[Part]) -> list[Part]:
    """Return the calls of tools: `{"id", "name", "args"}`."""
    return [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict)]


def responses_of(parts: Iterable[Part]) -> list[Part]:
    """Return the results of tools: `{"id", "name", "response"}`."""
    responses = (part.get("functionResponse") for part in parts)
    return [response for response in responses if isinstance(response, dict)]


def tool_result(
    source: str, call_id: str, parts: Iterable[Part], status: Any, display: Any
) -> ToolResult:
    """Return the result of a tool: `display` is what the tool shows of it, such as a diff.

    A tool decides itself whether a command with an exit code other than 0 has failed.
    """
    parts = list(parts)
    blocks = blocks_of(source, parts)
    is_error = False
    for response in responses_of(parts):
        value = response.get("response")
        if isinstance(value, dict):
            is_error = is_error or ("error" in value and "output" not in value)
            blocks = [*_response_blocks(value), *blocks]
        nested = response.get("parts")
        blocks += blocks_of(source, parts_of(nested)) if isinstance(nested, list) else []
    if not blocks and isinstance(display, str):
        blocks = [Text(text=display)]
    # Without a status, the response says whether the tool failed.
    outcome = _STATUSES.get(status, "completed")
    if status is None and is_error:
        outcome = "failed"
    result = bodies.tool_result(call_id, blocks, status=outcome, diffs=file_diffs(display))
    code = _exit_code(blocks, display)
    return result if code is None else replace(result, exit_code=code)


def _response_blocks(response: Part) -> list[Block]:
    value = response.get("output", response.get("error", response))
    if isinstance(value, dict) and isinstance(value.get("message"), str):
        value = value["message"]
    if not isinstance(value, str):
        value = msgspec.json.encode(value).decode()
    match = _WRAPPER.match(value)
    return [Text(text=match[1] if match else value)]


def _exit_code(blocks: list[Block], display: Any) -> int | None:
    if isinstance(display, dict) and isinstance(display.get("exitCode"), int):
        code: int = display["exitCode"]
        return code
    for block in blocks:
        if isinstance(block, Text):
            matches = _EXIT_CODE.findall(block.text[-_MAX_EXIT_TEXT:])
            if matches:
                return int(matches[-1])
    return None


def content_parts(content: Iterable[Block]) -> list[Part]:
    """Return texts and images as parts."""
    parts: list[Part] = []
    for block in content:
        match block:
            case Text():
                parts.append({"text": block.text})
            case Image(data=str(data)):
                parts.append({"inlineData": {"mimeType": block.mime, "data": data}})
            case Image():
                parts.append({"fileData": {"mimeType": block.mime, "fileUri": block.uri}})
    return parts


def response_parts(call_id: str, name: str, result: ToolResult) -> list[Part]:
    """Return the result of a tool as parts: its texts, and then its images.

    A command that ran and failed has an output, which says its exit code.
    """
    is_output = result.status == "completed" or result.exit_code is not None
    response = {"output" if is_output else "error": plain_text(result.content)}
    images = (block for block in result.content if isinstance(block, Image))
    return [
        {"functionResponse": {"id": call_id, "name": name, "response": response}},
        *content_parts(images),
    ]


def file_diffs(display: Any) -> list[Diff]:
    """Return the change of a file that a tool shows as its result."""
    if not isinstance(display, dict) or not isinstance(display.get("newContent"), str):
        return []
    path = bodies.text(display.get("filePath")) or bodies.text(display.get("fileName"))
    old = display.get("originalContent")
    is_new = bool(display.get("isNewFile")) or not isinstance(old, str)
    return [Diff(path=path, old=None if is_new else old, new=display["newContent"])]


def usage_of(tokens: Any) -> Usage:
    """Return the tokens of `usageMetadata`.

    The candidates' tokens include those of thoughts if the total says so.
    """
    if not isinstance(tokens, dict):
        return Usage()
    input = bodies.count(tokens.get("promptTokenCount"))
    input += bodies.count(tokens.get("toolUsePromptTokenCount"))
    output = bodies.count(tokens.get("candidatesTokenCount"))
    thoughts = bodies.count(tokens.get("thoughtsTokenCount"))
    if bodies.count(tokens.get("totalTokenCount")) >= input + output + thoughts:
        output += thoughts
    return bodies.usage(
        input=input,
        output=output,
        cache_read=tokens.get("cachedContentTokenCount"),
        input_includes_cache=True,
    )
