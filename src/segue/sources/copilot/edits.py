"""The changes of files in Copilot's tool calls and their results."""

from __future__ import annotations

from typing import Any

from segue.model.content import Diff
from segue.model.tools.git_patches import git_diffs
from segue.sources.kit.bodies import text
from segue.sources.kit.patches import parse_patch


def call_diffs(arguments: Any) -> list[Diff]:
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
    return [
        Diff(path=diff.path, old=_without_last_newline(diff.old), new=diff.new.removesuffix("\n"))
        for diff in git_diffs(patch)
    ]


def _without_last_newline(text: str | None) -> str | None:
    """Return a text without the newline that Copilot adds to what follows the last newline."""
    return None if text is None else text.removesuffix("\n")
