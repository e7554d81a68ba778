"""Find passwords in command lines: options of one letter, by program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from segue.secrets.values import is_password

_VALUE = r"\\*[\"']?(?P<value>[^\s\"'`\\]{4,200})"
_USER = r"[ \t=]*\\*[\"']?[^\s:\"']{1,100}:"
_MAX_LINE_CHARS = 400
# The programs, and the options whose value is a password. Statements of SQL and settings are here
# too, if a password follows their name without a sign.
_PROGRAMS = {
    "sshpass": r"-p[ \t]*",
    "mysql": r"-p",
    "mariadb": r"-p",
    "login": r"-p[ \t]*",  # of docker, podman, helm registry, oc, az
    "redis-cli": r"-a[ \t]*",
    "curl": rf"(?:-u|--user|--proxy-user){_USER}",
    "http -a": r"(?<=[ \t])\\*[\"']?[^\s:\"']{1,100}:",
    "skopeo": rf"--(?:src-|dest-)?creds{_USER}",
    "mongo": r"-p[ \t]+",
    "ldap": r"-w[ \t]+",
    "sqlcmd": r"-P[ \t]*",
    "smbclient": r"-U[ \t]*\\*[\"']?[^\s%\"']{1,100}%",
    "useradd": r"(?:-p|--password)[ \t]+",
    "usermod": r"(?:-p|--password)[ \t]+",
    "openssl": r"(?:-pass(?:in|out)?[ \t]+\\*[\"']?pass:|-k[ \t]+)",
    "zip -P": r"(?<=[ \t])",
    "zip -r": r"-P[ \t]*",
    "7z": r"-p",
    "rar a": r"-h?p",
    "keytool": r"-(?:src|dest|new)?(?:store|key)?pass(?:word)?[ \t]+",
    "jarsigner": r"-(?:store|key)pass[ \t]+",
    "plink": r"-pw[ \t]+",
    "pscp": r"-pw[ \t]+",
    "xfreerdp": r"/p:",
    "cmdkey": r"/pass:",
    "net user": r"\S+[ \t]+(?!/)",
    "htpasswd": r"-[a-zA-Z]*b[a-zA-Z]*[ \t]+(?:\S+[ \t]+){1,2}",
    "rabbitmqctl": r"(?:add_user|change_password)[ \t]+\S+[ \t]+",
    "sqlplus": r"(?<=[ \t])\\*[\"']?\w+/",
    "IDENTIFIED": r"(?:WITH[ \t]+\S+[ \t]+)?BY[ \t]+(?=\\*[\"'])",
    "identified": r"(?:with[ \t]+\S+[ \t]+)?by[ \t]+(?=\\*[\"'])",
    "requirepass": r"(?<=[ \t])",
    "masterauth": r"(?<=[ \t])",
    "bindpw": r"(?<=[ \t])",
    "rootpw": r"(?<=[ \t])",
}
# Commands that read the password from another one: `echo PASSWORD | sudo -S`.
_READERS = re.compile(
    r"[\"']?[ \t]*\|[ \t]*(?:sudo\b[^\n|;]{0,80}[ \t]-\w*S|[^\n|;]{0,200}--(?:password-)?stdin\b"
    r"|(?:sudo[ \t]+)?(?:chpasswd|passwd)\b)"
)
_ECHOED = re.compile(
    r"[ \t]+(?:-[en]+[ \t]+)?\\*[\"']?(?:[\w.@-]{1,60}:)?(?P<value>[^\s\"'`\\|:]{4,200})\\*"
)


_AFTER_NAME = re.compile(r"[\w.-]*[ \t]")


@cache
def _option(program: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{_PROGRAMS[program]}){_VALUE}")


def find_in_options(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start, end and kind of passwords in options: `mysql -p…`, `curl -u user:…`."""
    for program in _PROGRAMS:
        position = text.find(program)
        while position >= 0:
            end = position + len(program)
            if _is_command(text, position, end):
                for match in _option(program).finditer(text, end, _line_end(text, end)):
                    if is_password(match["value"]):
                        yield *match.span("value"), "password"
            position = text.find(program, end)
    position = text.find("echo ")
    while position >= 0:
        echoed = _ECHOED.match(text, position + 4)
        if echoed and _READERS.match(text, echoed.end()) and is_password(echoed["value"]):
            yield *echoed.span("value"), "password"
        position = text.find("echo ", position + 4)


def _is_command(text: str, start: int, end: int) -> bool:
    """Return whether the name of a program is a word, with options after it."""
    before = text[start - 1 : start]
    return not (before.isalnum() or before in ("_", ".", "-")) and bool(
        _AFTER_NAME.match(text, end)
    )


def _line_end(text: str, start: int) -> int:
    """Return where a command ends that begins in a text: at a line break or another command."""
    end = _COMMAND_END.search(text, start, start + _MAX_LINE_CHARS)
    return end.start() if end else start + _MAX_LINE_CHARS


_COMMAND_END = re.compile(r"(?<!\\)\n|[|;]|&&")
