"""Patches, as git writes them, as changes to files."""

from __future__ import annotations

from segue.model.content import Diff


def hunks(patch: str) -> list[Diff]:
    """Each hunk as a change to its file: more of the file than that, a patch does not tell."""
    found: list[tuple[str, bool, list[str], list[str]]] = []
    path, made, inside = "", False, False
    sides: list[list[str]] = []  # that the last line belongs to
    for line in patch.splitlines(keepends=True):
        if line.startswith("@@"):
            inside = True
            found.append((path, made, [], []))
        elif line.startswith("diff --git "):
            inside = False
        elif not inside:
            if line.startswith("--- "):
                made = line.startswith("--- /dev/null")
            elif line.startswith("+++ "):
                path = "/" + line[4:].strip().removeprefix("b/").lstrip("/")
        elif line[0] in " -+":
            old, new = found[-1][2:]
            sides = [side for side, marks in ((old, " -"), (new, " +")) if line[0] in marks]
            for side in sides:
                side.append(line[1:])
        elif line[0] == "\\":
            for side in sides:
                side[-1] = side[-1].removesuffix("\n")
    return [
        Diff(path=path, new="".join(new), old=None if made else "".join(old))
        for path, made, old, new in found
    ]
