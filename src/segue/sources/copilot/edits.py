"""The changes of files in Copilot's tool calls and their results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from segue.model.content import Diff
from segue.sources.kit.bodies import text
from segue.sources.kit.patches import parse_patch


def call_diffs(name: str, arguments: Any) -> list[Diff]:
    """Return the changes that a tool call asks for."""
    if isinstance(arguments, str):
        return parse_patch(arguments)
    if not isinstance(arguments, dict):
        return []
    path = text(arguments.get("path")) or text(arguments.get("filePath"))
    if not path:
        return parse_patch(text(arguments.get("input")) or text(arguments.get("patch")))
    if isinstance(content := arguments.get("file_text"), str):
        return [Diff(path=path, new=content)]
    if isinstance(new := arguments.get("new_str"), str):
        return [Diff(path=path, old=text(arguments.get("old_str")), new=new)]
    return []


def result_diffs(patch: str) -> list[Diff]:
    """Return the changes of a unified diff; none if the text is not one."""
    if not patch.lstrip().startswith("diff --git "):
        return []
    return list(_file_changes(patch.split("\n")))


def _file_changes(lines: list[str]) -> Iterator[Diff]:
    path, is_new, in_hunk = "", False, False
    old: list[str] = []
    new: list[str] = []

    def finish() -> Iterator[Diff]:
        if path and old != new:
            before = None if is_new else "\n".join(old)
            yield Diff(path=path, old=before, new="\n".join(new))
        old.clear()
        new.clear()

    for line in lines:
        if line.startswith("diff --git "):
            yield from finish()
            path, is_new, in_hunk = "", False, False
        elif not in_hunk and line.startswith("--- "):
            is_new = line.endswith("/dev/null")
            path = line.removeprefix("--- a")
        elif not in_hunk and line.startswith("+++ "):
            if not line.endswith("/dev/null"):
                path = line.removeprefix("+++ b")
        elif line.startswith("@@"):
            if in_hunk:
                yield from finish()
            in_hunk = True
        elif in_hunk and line.startswith("+"):
            new.append(line[1:])
        elif in_hunk and line.startswith("-"):
            old.append(line[1:])
        elif in_hunk and line.startswith(" "):
            old.append(line[1:])
            new.append(line[1:])
    yield from finish()
