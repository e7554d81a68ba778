"""Find passwords in command lines: options of one letter, by program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from segue.secrets.randomness import has_letter_and_digit
from segue.secrets.values import is_password

_VALUE = r"\\*[\"']?(?P<value>[^\s\"'`\\]{4,200})"
_USER = r"[ \t=]*\\*[\"']?[^\s:\"']{1,100}:"
_MAX_LINE_CHARS = 400
# The programs, and the options whose value is a password.
_PROGRAMS = {
    "sshpass": r"-p[ \t]*",
    "mysql": r"-p",
    "mariadb": r"-p",
    "login": r"-p[ \t]*",  # of docker, podman, helm registry, oc, az
    "redis-cli": r"-a[ \t]*",
    "curl": rf"(?:-u|--user|--proxy-user){_USER}",
    "skopeo": rf"--(?:src-|dest-)?creds{_USER}",
    "mongo": r"-p[ \t]+",
    "ldap": r"-w[ \t]+",
    "sqlcmd": r"-P[ \t]*",
    "smbclient": r"-U[ \t]*\\*[\"']?[^\s%\"']{1,100}%",
    "useradd": r"(?:-p|--password)[ \t]+",
    "usermod": r"(?:-p|--password)[ \t]+",
    "openssl": r"(?:-pass(?:in|out)?[ \t]+\\*[\"']?pass:|-k[ \t]+)",
    "zip -r": r"-P[ \t]*",
    "7z": r"-p",
    "rar a": r"-h?p",
    "keytool": r"-(?:src|dest|new)?(?:store|key)?pass(?:word)?[ \t]+",
    "jarsigner": r"-(?:store|key)pass[ \t]+",
    "plink": r"-pw[ \t]+",
    "pscp": r"-pw[ \t]+",
    "xfreerdp": r"/p:",
    "cmdkey": r"/pass:",
    "unzip": r"-P[ \t]*",
    "ssh-keygen": r"-[NP][ \t]+",
    "schtasks": r"/RP[ \t]+",
    "signtool": r"/p[ \t]+",
    "etcdctl": rf"--user{_USER}",
    "lftp": r"-u[ \t]*\\*[\"']?[^\s,\"']{1,100},",
    "secret set": r"(?:-b|--body)[ \t=]+",  # of gh
    "htpasswd": r"-[a-zA-Z]*b[a-zA-Z]*[ \t]+(?:\S+[ \t]+){1,2}",
}
# Commands, statements of SQL and settings, after which a password follows without an option.
_STATEMENTS = {
    "http -a": r"(?<=[ \t])\\*[\"']?[^\s:\"']{1,100}:",
    "zip -P": r"(?<=[ \t])",
    "net user": r"\S+[ \t]+(?!/)",
    "rabbitmqctl": r"(?:add_user|change_password)[ \t]+\S+[ \t]+",
    "ConvertTo-SecureString": r"(?:-String[ \t]+)?(?=\\*[\"'])",
    "net use": r"(?:\S+[ \t]+){1,2}(?!/)",
    "ACL SETUSER": r"[^\n>]{1,100}>",
    "wpa_passphrase": r"\S+[ \t]+",
    "wifi-sec.psk": r"(?<=[ \t])",
    "bw unlock": r"(?<=[ \t])(?!-)",
    "wifi connect": r"\S+[ \t]+password[ \t]+",
    "sqlplus": r"(?<=[ \t])\\*[\"']?\w+/",
    "IDENTIFIED": r"(?:WITH[ \t]+\S+[ \t]+)?BY[ \t]+(?=\\*[\"'])",
    "identified": r"(?:with[ \t]+\S+[ \t]+)?by[ \t]+(?=\\*[\"'])",
    "requirepass": r"(?<=[ \t])",
    "masterauth": r"(?<=[ \t])",
    "bindpw": r"(?<=[ \t])",
    "rootpw": r"(?<=[ \t])",
}
# A line of PostgreSQL's file of passwords: host, port, database, user, password.
_PORT = ":5432:"
_PASSWORD_LINE = re.compile(
    rf"(?<![\w.*-])[\w.*-]{{1,100}}{_PORT}[\w*-]{{1,60}}:[\w*.-]{{1,60}}:{_VALUE}"
)
_ALL = _PROGRAMS | _STATEMENTS
_MAX_NAME_CHARS = max(map(len, _PROGRAMS))
# One of these is in each text with a password that follows no option, in lower case.
SIGNS = (_PORT, "echo ", *{name.lower() for name in _STATEMENTS})
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
    return re.compile(rf"(?<![\w-])(?:{_ALL[program]}){_VALUE}")


@cache
def _dash() -> re.Pattern[str]:
    """Return the pattern of what every option of a program begins with."""
    return re.compile(r"[-/](?<![\w-].)-?[a-zA-Z]")


@cache
def _user_and_password() -> re.Pattern[str]:
    """Return the pattern of the options of any program that name a user and then a password."""
    options = r"(?:-{1,2}[\w-]{1,40}[ \t=]{1,4}(?:[^\s-]\S{0,80}[ \t]{1,4})?){0,3}?"
    return re.compile(
        r"[-/](?<![\w-].)(?:[uUl]|-user(?:name)?|-login)[ \t=:]{1,4}\S{1,80}[ \t]{1,4}"
        rf"{options}-(?:p|P|pw|w)[ \t]{{1,4}}{_VALUE}"
    )


def has_options(text: str) -> bool:
    """Return whether a text has an option; without one, no password follows a program's option."""
    return _dash().search(text) is not None


def find_in_options(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start, end and kind of passwords in options: `mysql -p…`, `curl -u user:…`."""
    for start, end in _before_options(text):
        for program in _PROGRAMS:
            yield from _find_after(text, program, start, end)
        for match in _user_and_password().finditer(text, start, end + _MAX_LINE_CHARS):
            if is_password(match["value"]) and has_letter_and_digit(match["value"]):
                yield *match.span("value"), "password"
    for statement in _STATEMENTS:
        yield from _find_after(text, statement, 0, len(text))
    if _PORT in text:
        for match in _PASSWORD_LINE.finditer(text):
            if is_password(match["value"]):
                yield *match.span("value"), "password"
    position = text.find("echo ")
    while position >= 0:
        echoed = _ECHOED.match(text, position + 4)
        if echoed and _READERS.match(text, echoed.end()) and is_password(echoed["value"]):
            yield *echoed.span("value"), "password"
        position = text.find("echo ", position + 4)


def _before_options(text: str) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text in which a program may have an option after its name."""
    start = end = 0
    for option in _dash().finditer(text):
        first = option.start() - _MAX_LINE_CHARS - _MAX_NAME_CHARS
        if first > end:
            if end:
                yield start, end
            start = first
        end = option.start()
    if end:
        yield start, end


def _find_after(text: str, name: str, start: int, limit: int) -> Iterator[tuple[int, int, str]]:
    """Yield the passwords after the names of a program or statement in a part of a text."""
    position = text.find(name, start, limit)
    while position >= 0:
        end = position + len(name)
        if _is_command(text, position, end):
            for match in _option(name).finditer(text, end, _line_end(text, end)):
                if is_password(match["value"]):
                    yield *match.span("value"), "password"
        position = text.find(name, end, limit)


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
