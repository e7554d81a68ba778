"""The search tools glob and grep. A child process walks the directory for each call."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from segue.model.event import ToolResult

from .base import Tool, ToolContext, ToolError, ToolInput, completed_result, truncate
from .path_guard import ResolvedPath

_WORKER = str(Path(__file__).with_name("search_worker.py"))
TIMEOUT_SECONDS = 30.0


class GlobInput(ToolInput, frozen=True):
    pattern: Annotated[str, Meta(min_length=1, description="Such as **/*.py or src/*.{c,h}")]
    path: str | None = None


class GrepInput(ToolInput, frozen=True):
    pattern: Annotated[str, Meta(min_length=1, description="A Python regular expression.")]
    path: str | None = None


async def _glob(context: ToolContext, arguments: GlobInput) -> ToolResult:
    directory = context.paths.resolve(arguments.path or ".")
    answer = await _search(context, directory, {"tool": "glob", "pattern": arguments.pattern})
    paths = [os.path.join(directory.path, path) for path in answer["matches"]]
    return _matches_result(paths, answer["count"], "No file matches.")


async def _grep(context: ToolContext, arguments: GrepInput) -> ToolResult:
    directory = context.paths.resolve(arguments.path or ".")
    file_name = None
    paths = context.paths
    if directory.names and paths.exists(directory.path) and not paths.is_directory(directory.path):
        directory, file_name = directory.parent, directory.names[-1]
    request = {
        "tool": "grep",
        "pattern": arguments.pattern,
        "file_name": file_name,
        "strict": paths.strict,
    }
    answer = await _search(context, directory, request)
    lines = [
        f"{os.path.join(directory.path, path)}:{number}:{text}"
        for path, number, text in answer["matches"]
    ]
    return _matches_result(lines, answer["count"], "Nothing matches.")


def _matches_result(matches: list[str], count: int, empty_message: str) -> ToolResult:
    if not matches:
        return completed_result(empty_message)
    note = ["[… there are more matches; narrow the search]"] if count > len(matches) else []
    return completed_result(truncate("\n".join(matches + note)))


async def _search(
    context: ToolContext, directory: ResolvedPath, request: dict[str, Any]
) -> dict[str, Any]:
    """Run the search worker on a directory, and return its answer.

    Raises ToolError if the search fails or takes too long.
    """
    request["private"] = [file_id for path in context.paths.private for file_id in _file_ids(path)]
    with context.paths.open_directory(directory) as descriptor:
        # The descriptor may be O_PATH, which cannot list the directory.
        listable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=descriptor)
    try:
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", _WORKER, str(listable)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            pass_fds=(listable,),
            env={"PYTHONUTF8": "1"},
        )
    finally:
        os.close(listable)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            output, _ = await worker.communicate(json.dumps(request).encode())
    except TimeoutError:
        raise ToolError(
            f"the search took longer than {TIMEOUT_SECONDS:.0f} s; narrow the search"
        ) from None
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
    try:
        answer: dict[str, Any] = json.loads(output)
    except ValueError:
        raise ToolError("the search failed; try a narrower one") from None
    if "error" in answer:
        raise ToolError(answer["error"])
    return answer


def _file_ids(path: str) -> list[list[int]]:
    """Return the device and inode of a path, or nothing if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return []
    return [[status.st_dev, status.st_ino]]


GLOB = Tool(
    "glob",
    "search",
    "Find files by name, the most recently changed first. Links are not followed.",
    GlobInput,
    _glob,
    lambda arguments: arguments.path,
)
GREP = Tool(
    "grep",
    "search",
    "Find lines that match a regular expression, in a file or in all files below a directory.",
    GrepInput,
    _grep,
    lambda arguments: arguments.path,
)
