"""Names and numbers of the protocol: versions, channels, status bits, errors."""

from __future__ import annotations

import base64
import binascii
import functools
import re
import time
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from segue.acp.rpc import INVALID_PARAMS, RpcError
from segue.model import clock, ids

# The newest first. A later minor or patch version of one is compatible, as the protocol defines.
VERSIONS = ("1.0.0", "0.9.0", "0.8.0", "0.7.0", "0.6.0", "0.5.1")
PROVIDER = "segue"  # also the scheme of session addresses, by which VS Code finds the provider
ROOT = "ahp-root://"
DEFAULT_CHAT = "default"
_CHAT_SCHEME = "ahp-chat"

# Bits of a session's status.
IDLE = 1
ERROR = 1 << 1
IN_PROGRESS = 1 << 3
INPUT_NEEDED = 1 << 3 | 1 << 4
IS_READ = 1 << 5
IS_ARCHIVED = 1 << 6

# Error codes.
SESSION_NOT_FOUND = -32001
PROVIDER_NOT_FOUND = -32002
SESSION_EXISTS = -32003
UNSUPPORTED_VERSION = -32005
NOT_FOUND = -32008

MAX_SEQUENCE = 1 << 53  # the largest whole number that every client can represent

Action = dict[str, Any]
_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})")


class Channel(NamedTuple):
    """The session that a channel belongs to, and the chat in it; None for the session itself."""

    session_id: str
    chat: str | None = None


def choose_version(offered: Iterable[Any]) -> str | None:
    """Return the first of the offered versions that is compatible with one of ours, or None."""
    return next((version for version in offered if _is_compatible(version)), None)


def _is_compatible(version: Any) -> bool:
    numbers = _version_numbers(version)
    if numbers is None:
        return False
    significant = 1 if numbers[0] else 2
    ours = filter(None, map(_version_numbers, VERSIONS))
    return any(numbers[:significant] == base[:significant] and numbers >= base for base in ours)


def _version_numbers(version: Any) -> tuple[int, ...] | None:
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    return None if match is None else tuple(map(int, match.groups()))


def session_uri(session_id: str) -> str:
    """Return the address of a session."""
    return f"{PROVIDER}:/{session_id}"


def chat_uri(session_id: str, chat: str = DEFAULT_CHAT) -> str:
    """Return the address of a chat, in the form that VS Code expects."""
    name = chat if chat == DEFAULT_CHAT else quote(chat, safe="")
    return f"{_CHAT_SCHEME}://{name}/{_encode(session_uri(session_id))}"


def parse_channel(uri: str) -> Channel:
    """Return the session and the chat of an address. Raises RpcError if it is not one of ours."""
    try:
        parts = urlsplit(uri)
        chat: str | None = None
        if parts.scheme == _CHAT_SCHEME:
            chat = unquote(parts.netloc)
            parts = urlsplit(_decode(parts.path.lstrip("/")))
    except (ValueError, binascii.Error):
        raise RpcError(INVALID_PARAMS, f"{uri!r} is not an address of a session") from None
    session_id = ids.parse(parts.path.strip("/"))
    if parts.scheme != PROVIDER or session_id is None:
        raise RpcError(SESSION_NOT_FOUND, f"there is no session {uri!r}")
    return Channel(session_id, chat)


def _encode(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode(text: str) -> str:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


def event_id_of(client_id: str) -> str:
    """Return the id of the event for a turn or message to which a client gave an id of its own.

    VS Code's ids are `request_` and a UUID.
    """
    return ids.parse(client_id) or ids.derived_id("ahp", client_id)


def time_text(at: int) -> str:
    """Return a time in microseconds as ISO 8601 with milliseconds."""
    return clock.to_rfc3339(at)[:23] + "Z"


@functools.lru_cache(1024)  # most sessions of a list are in few directories
def directory_uri(directory: str) -> str:
    """Return the address of a directory."""
    return "file://" + quote(directory)


def directory_of(uri: str) -> str:
    """Return the directory of an address. Raises RpcError if it is not a file's address."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or not parts.path:
        raise RpcError(INVALID_PARAMS, f"{uri!r} is not the address of a directory")
    return unquote(parts.path)


class ServerSequence:
    """Number what is sent to one client, with numbers that are also times in milliseconds.

    A client that reconnects names the last number that it received, also to another process or
    after a restart. So the server knows since when the client has missed changes.
    """

    def __init__(self, last: int = 0) -> None:
        self.last = max(last, time.time_ns() // 1_000_000)

    def next(self) -> int:
        self.last = max(self.last + 1, time.time_ns() // 1_000_000)
        return self.last
