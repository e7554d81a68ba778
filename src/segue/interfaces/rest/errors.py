"""Errors as this dialect says them: one envelope, a type for each status."""

from __future__ import annotations

from segue.model import ids
from segue.model.errors import (
    Conflict,
    LeaseLost,
    SegueError,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
)

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "conflict_error",
    412: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


# Clients send again what met a 409 or a failure of ours. With these that helps nobody.
_FINAL = (Conflict, StoreFull, StoreReadOnly, StoreTooNew, StoreCorrupt)


def envelope(error: SegueError, request_id: str) -> dict[str, object]:
    """The body of an error response. `details`, where an error has them, tell programs more."""
    told: dict[str, object] = {
        "type": _TYPES.get(error.http_status, "api_error"),
        "message": _spelt(error),
    }
    if details := error.data.get("details"):
        told["details"] = details
    return {"type": "error", "error": told, "request_id": request_id}


def hints(error: SegueError) -> list[tuple[bytes, bytes]]:
    """The headers that tell a client whether, and when, to try again."""
    found: list[tuple[bytes, bytes]] = list(error.data.get("headers", ()))
    if isinstance(error, _FINAL) and not isinstance(error, LeaseLost):
        found.append((b"x-should-retry", b"false"))
    elif error.http_status == 503:
        found.append((b"retry-after", b"1"))
    return found


def _spelt(error: SegueError) -> str:
    """The message, with the session named as this dialect spells it."""
    session = str(error.data.get("session", ""))
    known = ids.parse(session)
    return error.message.replace(session, ids.format_id("sesn", known)) if known else error.message
