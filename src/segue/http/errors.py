"""Errors that only an HTTP interface raises."""

from __future__ import annotations

from segue.model.errors import SegueError


class Refused(SegueError):
    """The request came from a place that is not served; see `segue serve --allow-host`."""

    http_status = 403


class NotAllowed(SegueError):
    """The address exists, but not for this method."""

    http_status = 405


class TooLarge(SegueError):
    """The request's body is larger than is accepted; send less at a time."""

    http_status = 413


class RateLimited(SegueError):
    """The key has used up its requests for now; wait as long as `retry-after` says."""

    http_status = 429
