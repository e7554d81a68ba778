"""All errors that callers can get, each class with its JSON-RPC code and HTTP status.

Interfaces use these two numbers and decide nothing else about errors.
"""

from __future__ import annotations

from typing import Any, ClassVar


class SegueError(Exception):
    """The base class: catch it to catch every error that segue raises on purpose."""

    rpc_code: ClassVar[int] = -32603
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


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


class ReadOnly(SegueError):
    """The source that owns this session does not support that change; fork or import it."""

    rpc_code = -32602
    http_status = 400


class StoreError(SegueError):
    """The store failed; nothing of the request was kept."""

    http_status = 503


class StoreFull(StoreError):
    """The disk or quota is full; free some space and try again. Nothing was lost."""


class StoreReadOnly(StoreError):
    """The data directory cannot be written; check its permissions or choose another."""


class StoreLocked(StoreError):
    """Another program has held the store's lock for too long; try again or stop that program."""


class StoreTooNew(StoreError):
    """A newer segue wrote this store; upgrade segue to use it."""


class StoreTooOld(StoreError):
    """An unreleased segue made this store; export its sessions there and import them here."""


class StoreCorrupt(StoreError):
    """The store's file is damaged; run `segue doctor`, or restore a copy."""
