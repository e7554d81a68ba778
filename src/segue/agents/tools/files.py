"""read, write and edit."""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated

from msgspec import Meta

from segue.model.content import Diff, Image
from segue.model.event import ToolResult

from .base import Input, Tool, ToolContext, ToolError, done

MAX_FILE = 10_000_000
MAX_TEXT = 60_000  # characters of a file that one call shows
MAX_LINE = 2_000
MAX_DIFF = 200_000  # beyond this a change is told in words only
_PICTURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}

Path = Annotated[str, Meta(min_length=1, description="Absolute, or relative to the cwd.")]


class Read(Input, frozen=True):
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


class Write(Input, frozen=True):
    file_path: Path
    content: str


class Edit(Input, frozen=True):
    file_path: Path
    old_string: Annotated[str, Meta(min_length=1, description="Exactly as it is in the file.")]
    new_string: str
    replace_all: bool = False


async def _read(context: ToolContext, given: Read) -> ToolResult:
    return await asyncio.to_thread(_read_now, context, given)


def _read_now(context: ToolContext, given: Read) -> ToolResult:
    place, data, status = context.roots.read_file(given.file_path, MAX_FILE)
    if mime := _picture(data):
        return done(Image(mime=mime, data=base64.b64encode(data).decode()))
    if b"\0" in data[:8192]:
        raise ToolError(f"{place.path} is no text: {status.st_size} bytes of something else")
    lines = data.decode("utf-8", "replace").splitlines()
    first, last = given.view_range or (1, -1)
    last = len(lines) if last == -1 else min(last, len(lines))
    if first < 1 or (lines and first > len(lines)) or (lines and last < first):
        raise ToolError(f"view_range: {place.path} has lines 1 to {len(lines)}")
    shown: list[str] = []
    size = 0
    for number in range(first, last + 1):
        line = lines[number - 1]
        if len(line) > MAX_LINE:
            line = f"{line[:MAX_LINE]} [… {len(line) - MAX_LINE} characters more]"
        size += len(line) + 8
        if size > MAX_TEXT:
            shown.append(f"[… cut here; lines {number} to {last} with view_range]")
            break
        shown.append(f"{number:6}\t{line}")
    if status.st_size > MAX_FILE:
        shown.append(f"[… the file has {status.st_size} bytes; this is all that is read of it]")
    return done("\n".join(shown) or "(the file is empty)")


async def _write(context: ToolContext, given: Write) -> ToolResult:
    return await asyncio.to_thread(_write_now, context, given)


def _write_now(context: ToolContext, given: Write) -> ToolResult:
    try:
        _, before, _ = context.roots.read_file(given.file_path, MAX_DIFF)
        old: str | None = before.decode("utf-8", "replace")
    except ToolError:
        old = None  # new, or nothing that can be shown; whether it may be written is seen next
    place = context.roots.replace_file(given.file_path, _encoded(given.content))
    did = "Wrote" if old is None else "Replaced"
    lines = len(given.content.splitlines())
    return _changed(f"{did} {place.path} ({lines} lines).", place.path, old, given.content)


async def _edit(context: ToolContext, given: Edit) -> ToolResult:
    return await asyncio.to_thread(_edit_now, context, given)


def _edit_now(context: ToolContext, given: Edit) -> ToolResult:
    place, data, status = context.roots.read_file(given.file_path, MAX_FILE)
    if status.st_size > MAX_FILE:
        raise ToolError(f"{place.path} is too large to edit ({status.st_size} bytes)")
    try:
        old = data.decode()
    except UnicodeDecodeError:
        raise ToolError(f"{place.path} is not UTF-8 text") from None
    count = old.count(given.old_string)
    if count == 0:
        raise ToolError(f"old_string does not occur in {place.path}")
    if count > 1 and not given.replace_all:
        raise ToolError(
            f"old_string occurs {count} times in {place.path}; give more of what is around it,"
            " or replace_all"
        )
    new = old.replace(given.old_string, given.new_string)
    context.roots.replace_file(given.file_path, _encoded(new), create=False)
    times = "once" if count == 1 else f"{count} times"
    return _changed(f"Edited {place.path} ({times}).", place.path, old, new)


def _changed(told: str, path: str, old: str | None, new: str) -> ToolResult:
    if len(old or "") + len(new) > MAX_DIFF:
        return done(told)
    return done(told, Diff(path=path, old=old, new=new))


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolError("the text holds characters that UTF-8 cannot") from None


def _picture(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in _PICTURES.items() if data.startswith(magic)), None)


READ = Tool(
    "read",
    "read",
    "Read a file: text with numbered lines, or a picture. Long files are cut; view_range shows"
    " any part.",
    Read,
    lambda given: f"Read {given.file_path}",
    _read,
    lambda given: given.file_path,
)
WRITE = Tool(
    "write",
    "edit",
    "Write a whole file, replacing what it held. Directories are made as needed.",
    Write,
    lambda given: f"Write {given.file_path}",
    _write,
    lambda given: given.file_path,
)
EDIT = Tool(
    "edit",
    "edit",
    "Replace a piece of a file. old_string must be exactly what the file holds and occur once,"
    " unless replace_all is true.",
    Edit,
    lambda given: f"Edit {given.file_path}",
    _edit,
    lambda given: given.file_path,
)
