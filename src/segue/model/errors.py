"""All errors that callers can get, each class with its JSON-RPC code and HTTP status.

Interfaces use these two numbers and decide nothing else about errors. Messages for callers other
than the local user name no locations on the server.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, ClassVar

_PATH, _ADDRESS = "(path)", "(address)"


class SegueError(Exception):
    """The base class: catch it to catch every error that segue raises on purpose."""

    rpc_code: ClassVar[int] = -32603
    http_status: ClassVar[int] = 500
    # For classes whose messages name paths, hosts or databases of the server.
    default_remote_message: ClassVar[str | None] = None

    def __init__(self, message: str, *, remote_message: str | None = None, **data: Any) -> None:
        """Create an error.

        `remote_message` is for callers other than the local user. It is needed if `message` names
        paths, hosts or databases of the server.
        """
        super().__init__(message)
        self.message = message
        self.remote_message = remote_message or self.default_remote_message or message
        self.data = data

    def message_for(self, *, local: bool) -> str:
        """Return the message for the local user, or for any other caller."""
        return self.message if local else self.remote_message


class InvalidInput(SegueError):
    """The request cannot be understood; correct it and send it again."""

    rpc_code = -32602
    http_status = 400


class InvalidCursor(InvalidInput):
    """The cursor is not one of this list in this store; start again from the first page."""


class NotFound(SegueError):
    """Your workspace has nothing with that name; list to see what it has."""

    rpc_code = -32002
    http_status = 404


class Unauthorized(SegueError):
    """The request has no valid key; make one with `segue keys create`."""

    rpc_code = -32000
    http_status = 401


class NotPermitted(SegueError):
    """Another principal of the workspace must do this, such as the local user."""

    rpc_code = -32602
    http_status = 403


class QuotaExceeded(SegueError):
    """The workspace may not store more of this; delete something or ask for a higher limit."""

    rpc_code = -32602
    http_status = 403


class QuotaInUse(QuotaExceeded):
    """The workspace may not run more of this at the same time; try again later."""

    http_status = 429


class Conflict(SegueError):
    """The object has changed or exists already; read it again and decide."""

    rpc_code = -32602
    http_status = 409


class Busy(Conflict):
    """The session is in the middle of a turn; cancel the turn or wait for it to end."""

    http_status = 400


class LeaseLost(Conflict):
    """Another process has the session's lease now; stop writing to it."""


class IllegalTransition(Conflict):
    """The session's lifecycle does not allow that step; see `segue.model.lifecycle`."""


class NoAgent(SegueError):
    """This process cannot run the session's agent; open the session where its agent runs."""

    rpc_code = -32603
    http_status = 400


class AgentFailed(SegueError):
    """The agent of this session failed; its message says why."""

    rpc_code = -32603
    http_status = 502

    def __init__(self, message: str, **data: Any) -> None:
        # The message contains an agent's own words, and often the path of its program.
        super().__init__(message, remote_message=without_locations(message), **data)


class AgentRefused(AgentFailed):
    """The server of an agent elsewhere refused the connection, for example because of the key."""


class ClientFailed(SegueError):
    """The client does not support a request of the agent, or answered it with an error."""


class ReadOnly(SegueError):
    """The source that owns this session does not support that change; fork or import it."""

    rpc_code = -32602
    http_status = 400


class Overloaded(SegueError):
    """The server has too much work of this kind; nothing was kept. Try again later."""

    http_status = 503


class StoreError(SegueError):
    """The store failed; nothing of the request was kept."""

    http_status = 503
    default_remote_message = "the store failed; the server's log has the details"


class StoreFull(StoreError):
    """The disk or quota is full; free some space and try again. Nothing was lost."""

    default_remote_message = "the disk is full, or a quota; nothing of this request was kept"


class StoreReadOnly(StoreError):
    """The data directory cannot be written; check its permissions or choose another."""

    default_remote_message = "the store is read-only"


class StoreLocked(StoreError):
    """Another program has held the store's lock for too long; try again or stop that program."""

    default_remote_message = "the store is locked by another program; try again"


class StoreUnreachable(StoreError):
    """The database server does not answer; try again later. The store logs when that changes."""


class StoreTooNew(StoreError):
    """A newer segue wrote this store; upgrade segue to use it."""

    default_remote_message = "a newer segue wrote the store; the server must be upgraded"


class StoreTooOld(StoreError):
    """An unreleased segue made this store; export its sessions there and import them here."""

    default_remote_message = "an unreleased segue made the store; the server's log has the details"


class StoreCorrupt(StoreError):
    """The store's file is damaged; run `segue doctor`, or restore a copy."""

    default_remote_message = "the store is damaged; the server's log has the details"


def without_locations(text: str) -> str | None:
    """Return a message without paths, URLs, addresses, and host names with a port.

    Returns None if it has none of them.
    """
    redacted = text
    for pattern, replacement in _patterns():
        redacted = pattern.sub(replacement, redacted)
    return None if redacted == text else redacted


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Return the patterns, compiled on first use. Host names alone look like other words."""
    patterns = [
        (r"\b[a-zA-Z][a-zA-Z0-9+.-]{0,20}://[^\s'\"<>)\]},;]+", _ADDRESS),
        (r"""(['"`])~?/[^'"`\n]*\1""", _PATH),
        (r"(?<![\w:/.@~-])~?/[^\s'\"`:;,)\]}>]+", _PATH),
        (r"\[[0-9a-fA-F]{0,4}:[0-9a-fA-F:.]+(?:%\w+)?\](?::\d+)?", _ADDRESS),
        (r"(?<![\w:.])(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F.]{1,15}(?![\w:])", _ADDRESS),
        (r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?![\w.])", _ADDRESS),
        (r"(?<![\w.-])[a-zA-Z][a-zA-Z0-9_.-]{0,252}:\d{2,5}(?![\w:])", _ADDRESS),
    ]
    return [(re.compile(pattern), replacement) for pattern, replacement in patterns]
