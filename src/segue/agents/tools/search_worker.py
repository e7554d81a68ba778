"""The child process of glob and grep: `python -I -S walker.py FD`, the request on standard input.

A process of its own, so that neither a huge tree nor a pattern that never ends can hold up anybody
else: it is killed when its time is over or its turn is cancelled. It gets one directory as an open
descriptor, goes down from there without following links, and imports nothing of ours.
"""

import json
import os
import re
import stat
import sys
from collections.abc import Iterator

SKIPPED = {".git", ".hg", ".svn"}
MAX_FOUND = 1000
MAX_HITS = 500
MAX_FILE = 20_000_000
MAX_LINE = 500


def walk(handle: int) -> Iterator[tuple[tuple[str, ...], int, list[str]]]:
    """(names of the directory, its descriptor, its files), depth first, by name."""
    for here, below, files, descriptor in os.fwalk(".", dir_fd=handle, follow_symlinks=False):
        below[:] = sorted(name for name in below if name not in SKIPPED)
        parts = () if here == "." else tuple(here.split(os.sep)[1:])
        yield parts, descriptor, sorted(files)


def translated(pattern: str) -> re.Pattern[str]:
    """A glob as an expression over paths: `**` is any number of directories."""
    parts = pattern.strip("/").split("/")
    found = ""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            found += ".*" if last else "(?:[^/]+/)*"
        else:
            found += _name(part) + ("" if last else "/")
    return re.compile(found, re.DOTALL)


def _name(part: str) -> str:
    found, at = "", 0
    while at < len(part):
        char = part[at]
        at += 1
        if char == "*":
            found += "[^/]*"
        elif char == "?":
            found += "[^/]"
        elif char == "[" and (end := part.find("]", at + 1)) > 0:
            inside = part[at:end].replace("\\", r"\\").replace("[", r"\[")
            found += "[" + ("^" + inside[1:] if inside[0] in "!^" else inside) + "]"
            at = end + 1
        elif char == "{" and (end := part.find("}", at)) > 0:
            found += "(?:" + "|".join(_name(each) for each in part[at:end].split(",")) + ")"
            at = end + 1
        else:
            found += re.escape(char)
    return found


def glob(handle: int, pattern: str) -> list[str]:
    wanted = translated(pattern)
    found = []
    for parts, descriptor, files in walk(handle):
        for name in files:
            path = "/".join((*parts, name))
            if wanted.fullmatch(path):
                try:
                    at = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mtime
                except OSError:
                    continue
                found.append((at, path))
    found.sort(key=lambda each: (-each[0], each[1]))
    return [path for _, path in found]


def grep(handle: int, pattern: str, only: str | None, strict: bool) -> list[tuple[str, int, str]]:
    wanted = re.compile(pattern)
    hits: list[tuple[str, int, str]] = []
    for parts, descriptor, files in walk(handle) if only is None else [((), handle, [only])]:
        for name in files:
            path = "/".join((*parts, name))
            for number, line in lines(descriptor, name, strict):
                if wanted.search(line):
                    hits.append((path, number, line[:MAX_LINE]))
                    if len(hits) > MAX_HITS:
                        return hits
    return hits


def lines(descriptor: int, name: str, strict: bool) -> Iterator[tuple[int, str]]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(name, flags, dir_fd=descriptor), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE:
                return
            if strict and status.st_nlink > 1:
                return
            data = file.read(MAX_FILE)
    except OSError:
        return
    if b"\0" in data[:8192]:
        return
    yield from enumerate(data.decode("utf-8", "replace").splitlines(), 1)


def main() -> None:
    handle = int(sys.argv[1])
    request = json.load(sys.stdin)
    answer: dict[str, object]
    try:
        if request["tool"] == "glob":
            found = glob(handle, request["pattern"])
            answer = {"found": found[:MAX_FOUND], "count": len(found)}
        else:
            hits = grep(handle, request["pattern"], request["only"], request["strict"])
            answer = {"found": hits[:MAX_HITS], "count": len(hits)}
    except re.error as error:
        answer = {"error": f"the pattern is no regular expression: {error}"}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
