"""Read patches in git's format: hunks with headers that name their file."""

from __future__ import annotations

import re

from segue.model.content import Diff

from .patches import split_lines

_NO_FILE = "/dev/null"
_HEADER = re.compile(r"@@ -[0-9]+(?:,([0-9]{1,9}))? \+[0-9]+(?:,([0-9]{1,9}))? @@")
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = dict(zip(b"abfnrtv", b"\a\b\f\n\r\t\v", strict=True))


class _Hunk:
    """The two texts of a hunk, which its lines extend. A new file has no text before."""

    def __init__(self, path: str, header: str, *, is_new_file: bool) -> None:
        self._path = path
        self._is_new_file = is_new_file
        self._old: list[str] = []
        self._new: list[str] = []
        self._last_texts: tuple[list[str], ...] = ()  # the texts that the last line belongs to
        counts = _HEADER.match(header)
        self._sizes = counts and [int(count or 1) for count in counts.groups()]

    def is_complete(self) -> bool:
        """Return whether the hunk has all lines that its header counts."""
        sizes = self._sizes
        return sizes is not None and len(self._old) >= sizes[0] and len(self._new) >= sizes[1]

    def add_line(self, line: str) -> None:
        """Add a line with its sign."""
        if line[0] == "\\":  # no newline at the end of the file
            for text in self._last_texts:
                text[-1] = text[-1].removesuffix("\n")
            return
        if self._sizes and line in ("\n", "\r\n") and not self.is_complete():
            line = f" {line}"  # an editor has removed the space at the end of the line
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
    for line in split_lines(patch):
        if line.startswith("@@"):
            in_hunk = True
            hunks.append(_Hunk(path, line, is_new_file=is_new_file))
        elif line.startswith("diff --git "):
            path, is_new_file, in_hunk = "", False, False
        elif in_hunk and not (line.startswith("--- ") and hunks[-1].is_complete()):
            hunks[-1].add_line(line)
        elif line.startswith("--- "):
            in_hunk = False
            is_new_file = line.startswith(f"--- {_NO_FILE}")
            path = _absolute_path(line[4:], "a/")
        elif line.startswith("+++ ") and not line.startswith(f"+++ {_NO_FILE}"):
            path = _absolute_path(line[4:], "b/")
    return [hunk.diff() for hunk in hunks]


def _absolute_path(name: str, prefix: str) -> str:
    name = name.strip()
    if len(name) > 1 and name[0] == name[-1] == '"':
        data = _ESCAPE.sub(_unescaped, name[1:-1].encode("utf-8", "surrogatepass"))
        name = data.decode("utf-8", "replace")
    else:
        name = name.partition("\t")[0]  # without a time
    return "/" + name.removeprefix(prefix).lstrip("/")


def _unescaped(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    number = int(code, 8) & 0xFF if len(code) == 3 else _ESCAPES.get(code[0], code[0])
    return bytes([number])
