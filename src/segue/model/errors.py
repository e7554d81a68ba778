"""Every error a caller can meet: one small tree, each class with its JSON-RPC code and HTTP status.

Doors map a class to their dialect with these two numbers; nothing else is decided there.
"""

from __future__ import annotations

from typing import Any, ClassVar


class SegueError(Exception):
    """The root: catch this to catch everything segue raises on purpose."""

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
    """The cursor was not made by this store for this list; start again from the first page."""


class NotFound(SegueError):
    """Nothing of that name exists in your workspace; list to see what does."""

    rpc_code = -32002
    http_status = 404


class Unauthorized(SegueError):
    """No valid key was given; make one with `segue keys create`."""

    rpc_code = -32000
    http_status = 401


class Conflict(SegueError):
    """The thing changed, or exists already; read it again and decide."""

    rpc_code = -32602
    http_status = 409


class Busy(Conflict):
    """The session is in the middle of a turn; cancel the turn or wait for it to end."""

    http_status = 400


class LeaseLost(Conflict):
    """Another process took the session over; stop writing to it."""


class IllegalTransition(Conflict):
    """The session's lifecycle does not allow that step; see `segue.model.lifecycle`."""


class NoAgent(SegueError):
    """Nothing here can answer for this session's agent; open it where its agent runs."""

    rpc_code = -32603
    http_status = 400


class AgentFailed(SegueError):
    """The program that answers for this session could not; its message says why."""

    rpc_code = -32603
    http_status = 502


class ReadOnly(SegueError):
    """The source that keeps this session cannot take that change; fork or import the session."""

    rpc_code = -32602
    http_status = 400


class StoreError(SegueError):
    """The store could not do it; nothing of the request was kept."""

    http_status = 503


class StoreFull(StoreError):
    """The disk or quota is full; free some space and try again. Nothing was lost."""


class StoreReadOnly(StoreError):
    """The data directory cannot be written; check its permissions or choose another."""


class StoreLocked(StoreError):
    """Another program holds the store's lock for too long; try again, or find what holds it."""


class StoreTooNew(StoreError):
    """A newer segue wrote this store; upgrade segue to use it."""


class StoreTooOld(StoreError):
    """An unreleased segue made this store; export its sessions there and import them here."""


class StoreCorrupt(StoreError):
    """The store's file is damaged; run `segue doctor`, or restore a copy."""
