"""The file tools: read, write and edit."""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated

from msgspec import Meta

from segue.model.content import Image
from segue.model.event import ToolResult
from segue.model.tools.patches import file_change

from .base import Tool, ToolContext, ToolError, ToolInput, completed_result

MAX_FILE_BYTES = 10_000_000
MAX_TEXT_CHARACTERS = 60_000  # of a file that one call shows
MAX_LINE_CHARACTERS = 2_000
_IMAGE_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}

Path = Annotated[str, Meta(min_length=1, description="Absolute, or relative to the cwd.")]


class ReadInput(ToolInput, frozen=True):
    file_path: Path
    view_range: (
        Annotated[
            list[int],
            Meta(
                min_length=2,
                max_length=2,
                description="First and last line, from 1; a last line of -1 is the end.",
            ),
        ]
        | None
    ) = None


class WriteInput(ToolInput, frozen=True):
    file_path: Path
    content: str


class EditInput(ToolInput, frozen=True):
    file_path: Path
    old_string: Annotated[str, Meta(min_length=1, description="Exactly as it is in the file.")]
    new_string: str
    replace_all: bool = False


async def _read(context: ToolContext, arguments: ReadInput) -> ToolResult:
    return await asyncio.to_thread(_read_blocking, context, arguments)


def _read_blocking(context: ToolContext, arguments: ReadInput) -> ToolResult:
    file, data, status = context.paths.read_file(arguments.file_path, MAX_FILE_BYTES)
    if mime := _image_type(data):
        return completed_result(Image(mime=mime, data=base64.b64encode(data).decode()))
    if b"\0" in data[:8192]:
        raise ToolError(f"{file.path} is not a text file ({status.st_size} bytes)")
    lines = data.decode("utf-8", "replace").splitlines()
    first, last = arguments.view_range or (1, -1)
    last = len(lines) if last == -1 else min(last, len(lines))
    if first < 1 or (lines and first > len(lines)) or (lines and last < first):
        raise ToolError(f"view_range: {file.path} has lines 1 to {len(lines)}")
    shown_lines = _numbered(lines, first, last)
    if status.st_size > MAX_FILE_BYTES:
        shown_lines.append(
            f"[… truncated; the file has {status.st_size} bytes, and only the first"
            f" {MAX_FILE_BYTES} can be read]"
        )
    return completed_result("\n".join(shown_lines) or "(the file is empty)")


def _numbered(lines: list[str], first: int, last: int) -> list[str]:
    """Return the lines with their numbers, up to MAX_TEXT_CHARACTERS in all."""
    numbered: list[str] = []
    size = 0
    for number in range(first, last + 1):
        line = lines[number - 1]
        if len(line) > MAX_LINE_CHARACTERS:
            omitted = len(line) - MAX_LINE_CHARACTERS
            line = f"{line[:MAX_LINE_CHARACTERS]} [… {omitted} more characters]"
        size += len(line) + 8
        if size > MAX_TEXT_CHARACTERS:
            numbered.append(f"[… truncated; use view_range for lines {number} to {last}]")
            break
        numbered.append(f"{number:6}\t{line}")
    return numbered


async def _write(context: ToolContext, arguments: WriteInput) -> ToolResult:
    return await asyncio.to_thread(_write_blocking, context, arguments)


def _write_blocking(context: ToolContext, arguments: WriteInput) -> ToolResult:
    try:
        _, data, status = context.paths.read_file(arguments.file_path, MAX_FILE_BYTES)
        before: bytes | None = data
        is_whole = status.st_size <= MAX_FILE_BYTES
    except ToolError:
        # A new or unreadable file; replace_file checks whether it may be written.
        before, is_whole = None, True
    after = _encode(arguments.content)
    file = context.paths.replace_file(arguments.file_path, after)
    verb = "Wrote" if before is None else "Replaced"
    summary = f"{verb} {file.path} ({len(arguments.content.splitlines())} lines)."
    if not is_whole:
        return completed_result(summary)
    return completed_result(summary, file_change(file.path, before, after, arguments.content))


async def _edit(context: ToolContext, arguments: EditInput) -> ToolResult:
    return await asyncio.to_thread(_edit_blocking, context, arguments)


def _edit_blocking(context: ToolContext, arguments: EditInput) -> ToolResult:
    file, data, status = context.paths.read_file(arguments.file_path, MAX_FILE_BYTES)
    if status.st_size > MAX_FILE_BYTES:
        raise ToolError(f"{file.path} is too large to edit ({status.st_size} bytes)")
    try:
        old = data.decode()
    except UnicodeDecodeError:
        raise ToolError(f"{file.path} is not UTF-8 text") from None
    count = old.count(arguments.old_string)
    if count == 0:
        raise ToolError(f"old_string does not occur in {file.path}")
    if count > 1 and not arguments.replace_all:
        raise ToolError(
            f"old_string occurs {count} times in {file.path}; include more of the surrounding"
            " text, or set replace_all"
        )
    new = old.replace(arguments.old_string, arguments.new_string)
    after = _encode(new)
    context.paths.replace_file(arguments.file_path, after, create=False)
    count_text = "once" if count == 1 else f"{count} times"
    change = file_change(file.path, data, after)
    return completed_result(f"Edited {file.path} ({count_text}).", change)


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolError("the text contains characters that UTF-8 cannot encode") from None


def _image_type(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in _IMAGE_SIGNATURES.items() if data.startswith(magic)), None)


READ = Tool(
    "read",
    "read",
    "Read a file: text with numbered lines, or an image. Long files are truncated; view_range"
    " selects any part.",
    ReadInput,
    _read,
    lambda arguments: arguments.file_path,
)
WRITE = Tool(
    "write",
    "edit",
    "Write a whole file, replacing its content. Missing directories are created.",
    WriteInput,
    _write,
    lambda arguments: arguments.file_path,
)
EDIT = Tool(
    "edit",
    "edit",
    "Replace a part of a file. old_string must match the file exactly and occur once,"
    " unless replace_all is true.",
    EditInput,
    _edit,
    lambda arguments: arguments.file_path,
)
