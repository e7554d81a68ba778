"""glob and grep, each a child process that goes through a directory."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from segue.model.event import ToolResult

from .base import Input, Tool, ToolContext, ToolError, done, shortened
from .path_guard import ResolvedPath

_WORKER = str(Path(__file__).with_name("search_worker.py"))
SECONDS = 30.0


class Glob(Input, frozen=True):
    pattern: Annotated[str, Meta(min_length=1, description="Such as **/*.py or src/*.{c,h}")]
    path: str | None = None


class Grep(Input, frozen=True):
    pattern: Annotated[str, Meta(min_length=1, description="A Python regular expression.")]
    path: str | None = None


async def _glob(context: ToolContext, given: Glob) -> ToolResult:
    place = context.roots.resolve(given.path or ".")
    answer = await _ask(context, place, {"tool": "glob", "pattern": given.pattern})
    found = [os.path.join(place.path, path) for path in answer["found"]]
    return _told(found, answer["count"], "No file matches.")


async def _grep(context: ToolContext, given: Grep) -> ToolResult:
    place = context.roots.resolve(given.path or ".")
    only = None
    if place.names and os.path.isfile(place.path):
        place, only = ResolvedPath(place.root, place.names[:-1]), place.names[-1]
    request = {
        "tool": "grep",
        "pattern": given.pattern,
        "only": only,
        "strict": context.roots.strict,
    }
    answer = await _ask(context, place, request)
    found = [f"{os.path.join(place.path, p)}:{line}:{text}" for p, line, text in answer["found"]]
    return _told(found, answer["count"], "Nothing matches.")


def _told(found: list[str], count: int, nothing: str) -> ToolResult:
    if not found:
        return done(nothing)
    more = ["[… there is more; narrow the search]"] if count > len(found) else []
    return done(shortened("\n".join(found + more)))


async def _ask(
    context: ToolContext, place: ResolvedPath, request: dict[str, Any]
) -> dict[str, Any]:
    with context.roots.open_directory(place) as handle:
        # The walk needs a descriptor that can be listed, which one for going down need not be.
        listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=handle)
    try:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", _WORKER, str(listed)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            pass_fds=(listed,),
            env={"PYTHONUTF8": "1"},
        )
    finally:
        os.close(listed)
    try:
        async with asyncio.timeout(SECONDS):
            told, _ = await child.communicate(json.dumps(request).encode())
    except TimeoutError:
        raise ToolError(f"not done after {SECONDS:.0f} s; narrow the search") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    try:
        answer: dict[str, Any] = json.loads(told)
    except ValueError:
        raise ToolError("the search did not come to an end") from None
    if "error" in answer:
        raise ToolError(answer["error"])
    return answer


GLOB = Tool(
    "glob",
    "search",
    "Find files by name, the most recently changed first. Links are not followed.",
    Glob,
    lambda given: f"Find {given.pattern}",
    _glob,
    lambda given: given.path,
)
GREP = Tool(
    "grep",
    "search",
    "Find lines that match a regular expression, in a file or in all files below a directory.",
    Grep,
    lambda given: f"Search for {given.pattern}",
    _grep,
    lambda given: given.path,
)
