"""Patches in the format of `apply_patch`, as changes of files."""

from __future__ import annotations

from collections.abc import Iterator

from segue.model.content import Diff

_BEGIN = "*** Begin Patch"
_END = "*** End Patch"
_ADD, _UPDATE, _DELETE = "*** Add File: ", "*** Update File: ", "*** Delete File: "
_MOVE = "*** Move to: "


def parse_patch(patch: str) -> list[Diff]:
    """Return the changes of a patch, one for each hunk; none if this is not a patch."""
    start = patch.find(_BEGIN)
    if start < 0:
        return []
    body = patch[start + len(_BEGIN) :].split(_END, 1)[0]
    return list(_changes(body.split("\n")))


def _changes(lines: list[str]) -> Iterator[Diff]:
    path, is_new = "", False
    old: list[str] = []
    new: list[str] = []

    def finish() -> Iterator[Diff]:
        if path and (old or new):
            yield Diff(
                path=path,
                old=None if is_new else "\n".join(old) + "\n",
                new="\n".join(new) + "\n" if new else "",
            )
        old.clear()
        new.clear()

    for line in lines:
        if line.startswith((_ADD, _UPDATE, _DELETE)):
            yield from finish()
            path, is_new = line.partition(": ")[2].strip(), line.startswith(_ADD)
            if line.startswith(_DELETE):
                yield Diff(path=path, old="", new="")
        elif line.startswith(_MOVE):
            path = line.removeprefix(_MOVE).strip()
        elif line.startswith("@@"):
            yield from finish()
        elif line.startswith("+"):
            new.append(line[1:])
        elif line.startswith("-"):
            old.append(line[1:])
        elif line.startswith(" "):
            old.append(line[1:])
            new.append(line[1:])
    yield from finish()
