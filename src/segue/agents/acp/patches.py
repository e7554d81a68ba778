"""Parse patches in git's format."""

from __future__ import annotations

from typing import NamedTuple

from segue.model.content import Diff


class _Hunk(NamedTuple):
    path: str
    is_new_file: bool
    old_lines: list[str]
    new_lines: list[str]


def parse_patch(patch: str) -> list[Diff]:
    """Return a diff for each hunk; a patch does not contain the rest of the file."""
    hunks: list[_Hunk] = []
    path, is_new_file, in_hunk = "", False, False
    sides: list[list[str]] = []  # the sides that the last line belongs to
    for line in patch.splitlines(keepends=True):
        if line.startswith("@@"):
            in_hunk = True
            hunks.append(_Hunk(path, is_new_file, [], []))
        elif line.startswith("diff --git "):
            in_hunk = False
        elif not in_hunk:
            if line.startswith("--- "):
                is_new_file = line.startswith("--- /dev/null")
            elif line.startswith("+++ "):
                path = "/" + line[4:].strip().removeprefix("b/").lstrip("/")
        elif line[0] in " -+":
            hunk = hunks[-1]
            sides = [
                side
                for side, marks in ((hunk.old_lines, " -"), (hunk.new_lines, " +"))
                if line[0] in marks
            ]
            for side in sides:
                side.append(line[1:])
        elif line[0] == "\\":  # no newline at the end of the file
            for side in sides:
                side[-1] = side[-1].removesuffix("\n")
    return [
        Diff(
            path=hunk.path,
            new="".join(hunk.new_lines),
            old=None if hunk.is_new_file else "".join(hunk.old_lines),
        )
        for hunk in hunks
    ]
