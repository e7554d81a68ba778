"""Decide whether a value is a secret, once its context says that it can be one."""

from __future__ import annotations

import re

from segue.secrets.randomness import (
    has_letter_and_digit,
    is_varied,
    looks_random,
    ordinary_share,
)

MAX_VALUE_CHARS = 400
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PLACEHOLDERS = re.compile(
    r"\$\{|\$\(|\$[A-Za-z_]\w*$|\$\d|<|\{|%[sdr(]|%\w+%|\*+$|\[[A-Za-z_ ]*\]?$"
    r"|\([A-Za-z_ ]*\)?$|your|my[_-]|xxx|\.\.\.|…|example|placeholder|change_?me|redacted"
    r"|masked|dummy|insert|replace|todo|none$|null$|nil$|true$"
    r"|false$|undefined$|string$|str$|bytes|int$|test[_-]|fake|sample|os\.|process\.|env\.|self\."
    r"|config\.|settings\.|this\.|getpass|x-oauth-basic",
    re.IGNORECASE,
)
# Ids of sessions, messages and their parts, as opencode makes them: a time, then random text.
_RECORD_ID = re.compile(r"(?:ses|msg|prt|evt|per|que|pty|usr|wrk|ent)_[0-9a-f]{12}[A-Za-z0-9]{14}")
_FILE_PATH = re.compile(r"(?:~|\.{1,2})?(?:/[\w.@ -]+){2,}\.[a-z][a-z0-9]{1,5}")
# What a sentence says about a password: how it is stored or which version reads it.
_ALGORITHMS = re.compile(
    r"(?:sha|md\d|base\d|utf|argon|aes|rsa|[by]?crypt|pbkdf|hmac|http|oauth|ed25|x\.?509|blake|ntlm"
    r"|v\d|windows|(?:step|version|python|php|win|line)(?![a-z])|\d+[a-z-]*$)",
    re.IGNORECASE,
)
# Passwords that examples and local databases have; they protect nothing.
_TRIVIAL = frozenset(
    [
        "password",
        "passwd",
        "pass",
        "pwd",
        "secret",
        "postgres",
        "root",
        "admin",
        "user",
        "username",
        "guest",
        "test",
        "token",
        "key",
        "mysecretpassword",
        "example",
        "xxx",
        "changeme",
        "foo",
        "bar",
        "baz",
        "none",
        "null",
        "pw",
        "x",
    ]
)


def is_placeholder(value: str) -> bool:
    """Return whether a value stands for another one: `$TOKEN`, `<key>`, `your-key`, a mask."""
    return _PLACEHOLDERS.match(value) is not None or "…" in value


def is_password(value: str) -> bool:
    """Return whether a value is a password, chosen or generated."""
    if is_placeholder(value) or value.lower() in _TRIVIAL or is_path(value):
        return False
    return count_classes(value) >= 2 or looks_random(value)


def is_generated_password(value: str, max_ordinary: float = 0.6) -> bool:
    """Return whether a text is a password of letters, digits and marks, and no code or path."""
    if len(value) < 8 or count_classes(value) < 3 or not has_letter_and_digit(value):
        return False
    if any(c.isspace() for c in value) or is_path(value) or ordinary_share(value) >= max_ordinary:
        return False
    return len(value) >= 16 or "(" not in value


def is_introduced_password(value: str) -> bool:
    """Return whether a text is a password, if a sentence says that one follows."""
    if len(value) < 6 or not has_letter_and_digit(value) or is_placeholder(value):
        return False
    if is_path(value) or _ALGORITHMS.match(value) or any(c in "()[]{}<>=," for c in value):
        return False
    return count_classes(value) >= 3 or value[-1].isdigit() or ordinary_share(value) < 0.5


def is_url_password(user: str, password: str) -> bool:
    """Return whether the password before the host of a URL is one."""
    if password.lower() in _TRIVIAL or password == user:
        return False
    return len(password) >= 4 and not is_placeholder(password)


def is_header_value(value: str) -> bool:
    """Return whether a value is a credential of an HTTP request."""
    if is_placeholder(value):
        return False
    return has_letter_and_digit(value) or (len(value) >= 16 and looks_random(value))


def is_named_secret(value: str, *, password: bool, literal: bool, certain: bool = False) -> bool:
    """Return whether a value is a secret, if its name is that of one.

    `password` says that the name is that of a password, which may be short. `literal` says that the
    value is no expression of a program. `certain` says that it is a setting of the environment,
    whose value may also be a word.
    """
    length = len(value)
    if length < 6 or length > MAX_VALUE_CHARS or is_placeholder(value) or "://" in value:
        return False
    if is_record_id(value) or is_file_path(value):
        return False
    if certain and value.lower() not in _TRIVIAL and not is_path(value):
        return True
    if not _is_varied_enough(value):
        return False
    if literal and _UUID.fullmatch(value):
        return True
    if length >= 12 and looks_random(value, 0.6 if literal else 0.52):
        return literal or not value.replace(".", "").replace("_", "").isalpha()
    if not literal or (is_path(value) and count_classes(value) < 4):
        return False
    if password:
        if length >= 8 and value.isalpha():
            return ordinary_share(value) < 0.5
        is_word = value.isalpha() and ordinary_share(value) >= 0.6
        return value.lower() not in _TRIVIAL and count_classes(value) >= 2 and not is_word
    return length >= 10 and count_classes(value) >= 3 and ordinary_share(value) < 0.55


def _is_varied_enough(value: str) -> bool:
    return is_varied(value) if len(value) >= 16 else len(set(value)) >= min(5, len(value) - 1)


def is_record_id(value: str) -> bool:
    """Return whether a value is the id that a tool gave to a session or a message."""
    return _RECORD_ID.fullmatch(value) is not None


def is_file_path(value: str) -> bool:
    """Return whether a value is the path of a file: it has a directory and an extension."""
    return _FILE_PATH.fullmatch(value) is not None


def is_path(value: str) -> bool:
    """Return whether a value looks like a path."""
    return value.count("/") >= 2 or value.startswith(("/", "./", "~/"))


def count_classes(value: str) -> int:
    """Return how many of the four classes of characters a value has."""
    return (
        any(c.islower() for c in value)
        + any(c.isupper() for c in value)
        + any(c.isdigit() for c in value)
        + any(not c.isalnum() and c not in "_-." for c in value)
    )
