"""Errors that only the HTTP interfaces raise."""

from __future__ import annotations

from segue.model.errors import SegueError


class Forbidden(SegueError):
    """The request's host, origin or form token is not accepted."""

    http_status = 403


class MethodNotAllowed(SegueError):
    """The path exists, but not for this method."""

    http_status = 405


class BodyTooLarge(SegueError):
    """The request body exceeds the limit; send less at a time."""

    http_status = 413


class RateLimited(SegueError):
    """The caller has no requests left; wait for the number of seconds in `retry-after`."""

    http_status = 429
