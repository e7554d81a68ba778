"""Find passwords in command lines: options of one letter, by program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from segue.secrets.values import is_password

_VALUE = r"\\*[\"']?(?P<value>[^\s\"'`\\]{4,200})"
_GAP = r"\b[^\n|;]{0,300}?[ \t]"
# The programs, and the option whose value is a password.
_PROGRAMS = {
    "sshpass": r"[ \t]+-p[ \t]*",
    "mysql": rf"(?:dump|admin|import)?{_GAP}-p",
    "mariadb": rf"(?:-dump|-admin)?{_GAP}-p",
    "redis-cli": rf"{_GAP}-a[ \t]*",
    "docker login": rf"{_GAP}-p[ \t]*",
    "podman login": rf"{_GAP}-p[ \t]*",
    "curl": rf"{_GAP}(?:-u|--user|--proxy-user)[ \t=]*\\*[\"']?[^\s:\"']{{1,100}}:",
    "mongosh": rf"{_GAP}-p[ \t]+",
    "mongodump": rf"{_GAP}-p[ \t]+",
    "ldapsearch": rf"{_GAP}-w[ \t]+",
    "az login": rf"{_GAP}-p[ \t]+",
    "sqlcmd": rf"{_GAP}-P[ \t]*",
}


@cache
def _pattern(program: str) -> re.Pattern[str]:
    return re.compile(_PROGRAMS[program] + _VALUE)


def find_in_options(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start, end and kind of passwords in options: `mysql -p…`, `curl -u user:…`."""
    for program in _PROGRAMS:
        position = text.find(program)
        while position >= 0:
            after = position + len(program)
            match = _pattern(program).match(text, after)
            if match is not None and is_password(match["value"]):
                yield *match.span("value"), "password"
                after = match.end()
            position = text.find(program, after)
