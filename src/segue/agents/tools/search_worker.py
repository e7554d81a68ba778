"""The child process of glob and grep: `python -I -S search_worker.py FD`, request on stdin.

A separate process can be killed, so a huge tree or a pattern with exponential backtracking cannot
block segue. The worker receives one directory as an open file descriptor, does not follow links,
and imports no other module of segue.
"""

import contextlib
import json
import os
import re
import resource
import stat
import sys
from collections.abc import Iterator, Sequence

SKIPPED_DIRECTORIES = {".git", ".hg", ".svn"}
MAX_GLOB_MATCHES = 1000
MAX_GREP_MATCHES = 500
MAX_FILE_BYTES = 20_000_000
MAX_LINE_CHARACTERS = 500
CPU_SECONDS = 30
MEMORY_BYTES = 1 << 30

FileId = list[int]  # the device and the inode of a file


def walk(
    directory: int, private: Sequence[FileId]
) -> Iterator[tuple[tuple[str, ...], int, list[str]]]:
    """Yield (path parts, descriptor, file names) of each directory, depth first, sorted by name.

    Directories in `private` are left out.
    """
    for path, directories, files, descriptor in os.fwalk(
        ".", dir_fd=directory, follow_symlinks=False
    ):
        directories[:] = sorted(
            name
            for name in directories
            if name not in SKIPPED_DIRECTORIES and not _is_private(descriptor, name, private)
        )
        parts = () if path == "." else tuple(path.split(os.sep)[1:])
        yield parts, descriptor, sorted(files)


def _is_private(directory: int, name: str, private: Sequence[FileId]) -> bool:
    if not private:
        return False
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return True  # it was deleted
    return [status.st_dev, status.st_ino] in private


def glob_regex(pattern: str) -> re.Pattern[str]:
    """Translate a glob to a regular expression for paths; `**` is any number of directories."""
    parts = pattern.strip("/").split("/")
    regex = ""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            regex += ".*" if last else "(?:[^/]+/)*"
        else:
            regex += _name_regex(part) + ("" if last else "/")
    return re.compile(regex, re.DOTALL)


def _name_regex(part: str) -> str:
    regex, position = "", 0
    while position < len(part):
        char = part[position]
        position += 1
        if char == "*":
            regex += "[^/]*"
        elif char == "?":
            regex += "[^/]"
        elif char == "[" and (end := part.find("]", position + 1)) > 0:
            inside = part[position:end].replace("\\", r"\\").replace("[", r"\[")
            regex += "[" + ("^" + inside[1:] if inside[0] in "!^" else inside) + "]"
            position = end + 1
        elif char == "{" and (end := part.find("}", position)) > 0:
            alternatives = part[position:end].split(",")
            regex += "(?:" + "|".join(_name_regex(name) for name in alternatives) + ")"
            position = end + 1
        else:
            regex += re.escape(char)
    return regex


def glob(directory: int, pattern: str, private: Sequence[FileId] = ()) -> list[str]:
    """Return the paths of the files that match, the most recently changed first."""
    regex = glob_regex(pattern)
    matches = []
    for parts, descriptor, files in walk(directory, private):
        for name in files:
            path = "/".join((*parts, name))
            if regex.fullmatch(path):
                try:
                    modified = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mtime
                except OSError:
                    continue
                matches.append((-modified, path))
    return [path for _, path in sorted(matches)]


def grep(
    directory: int,
    pattern: str,
    file_name: str | None,
    private: Sequence[FileId] = (),
    *,
    strict: bool,
) -> list[tuple[str, int, str]]:
    """Return (path, line number, line) of matching lines, in one file or in all files."""
    regex = re.compile(pattern)
    matches: list[tuple[str, int, str]] = []
    whole = walk(directory, private)
    directories = whole if file_name is None else [((), directory, [file_name])]
    for parts, descriptor, files in directories:
        for name in files:
            path = "/".join((*parts, name))
            for number, line in read_lines(descriptor, name, strict=strict):
                if regex.search(line):
                    matches.append((path, number, line[:MAX_LINE_CHARACTERS]))
                    if len(matches) > MAX_GREP_MATCHES:
                        return matches
    return matches


def read_lines(directory: int, name: str, *, strict: bool) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a text file; none of a file that is binary, large or special.

    `strict` also skips files with several hard links.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(name, flags, dir_fd=directory), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
                return
            if strict and status.st_nlink > 1:
                return
            data = file.read(MAX_FILE_BYTES)
    except OSError:
        return
    if b"\0" in data[:8192]:
        return
    yield from enumerate(data.decode("utf-8", "replace").splitlines(), 1)


def _limit_resources() -> None:
    """Limit time and memory, also for the case that segue ends and cannot kill this process."""
    limits = {resource.RLIMIT_CPU: CPU_SECONDS, resource.RLIMIT_AS: MEMORY_BYTES}
    for limit, value in limits.items():
        with contextlib.suppress(OSError, ValueError):  # macOS does not limit the address space
            resource.setrlimit(limit, (value, value))


def main() -> None:
    """Answer the request on standard input with JSON on standard output."""
    _limit_resources()
    directory = int(sys.argv[1])
    request = json.load(sys.stdin)
    answer: dict[str, object]
    try:
        if request["tool"] == "glob":
            paths = glob(directory, request["pattern"], request["private"])
            answer = {"matches": paths[:MAX_GLOB_MATCHES], "count": len(paths)}
        else:
            lines = grep(
                directory,
                request["pattern"],
                request["file_name"],
                request["private"],
                strict=request["strict"],
            )
            answer = {"matches": lines[:MAX_GREP_MATCHES], "count": len(lines)}
    except (re.error, RecursionError, OverflowError) as error:
        answer = {"error": f"the pattern is not a valid regular expression: {error}"}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
