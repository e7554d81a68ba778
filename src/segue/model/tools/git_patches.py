"""Read patches in git's format: hunks with headers that name their file."""

from __future__ import annotations

from segue.model.content import Diff

_NO_FILE = "/dev/null"


class _Hunk:
    """The two texts of a hunk, which its lines extend. A new file has no text before."""

    def __init__(self, path: str, *, is_new_file: bool) -> None:
        self._path = path
        self._is_new_file = is_new_file
        self._old: list[str] = []
        self._new: list[str] = []
        self._last_texts: tuple[list[str], ...] = ()  # the texts that the last line belongs to

    def add_line(self, line: str) -> None:
        """Add a line with its sign."""
        if line[0] == "\\":  # no newline at the end of the file
            for text in self._last_texts:
                text[-1] = text[-1].removesuffix("\n")
            return
        signs = {" ": (self._old, self._new), "-": (self._old,), "+": (self._new,)}
        self._last_texts = signs.get(line[0], ())
        for text in self._last_texts:
            text.append(line[1:])

    def diff(self) -> Diff:
        """Return the hunk as the change of a file."""
        old = None if self._is_new_file else "".join(self._old)
        return Diff(path=self._path, old=old, new="".join(self._new))


def git_diffs(patch: str) -> list[Diff]:
    """Return a diff for each hunk; a patch does not contain the rest of the file.

    Paths are absolute: git leaves out the slash at their beginning.
    """
    hunks: list[_Hunk] = []
    path, is_new_file, in_hunk = "", False, False
    for line in patch.splitlines(keepends=True):
        if line.startswith("@@"):
            in_hunk = True
            hunks.append(_Hunk(path, is_new_file=is_new_file))
        elif line.startswith("diff --git "):
            path, is_new_file, in_hunk = "", False, False
        elif in_hunk:
            hunks[-1].add_line(line)
        elif line.startswith("--- "):
            is_new_file = line.startswith(f"--- {_NO_FILE}")
            path = _absolute_path(line[4:], "a/")
        elif line.startswith("+++ ") and not line.startswith(f"+++ {_NO_FILE}"):
            path = _absolute_path(line[4:], "b/")
    return [hunk.diff() for hunk in hunks]


def _absolute_path(name: str, prefix: str) -> str:
    return "/" + name.strip().removeprefix(prefix).lstrip("/")
