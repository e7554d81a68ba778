"""Errors as the REST API sends them: one envelope, and an error type for each status."""

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

# Clients retry after a 409 or 5xx by default. After these errors a retry fails again.
_NOT_RETRYABLE = (Conflict, StoreFull, StoreReadOnly, StoreTooNew, StoreCorrupt)


def envelope(error: SegueError, request_id: str, *, local: bool) -> dict[str, object]:
    """Return the body of an error response for the local user, or for any other caller."""
    body: dict[str, object] = {
        "type": _TYPES.get(error.http_status, "api_error"),
        "message": _message(error, local=local),
    }
    if details := error.data.get("details"):
        body["details"] = details
    return {"type": "error", "error": body, "request_id": request_id}


def retry_headers(error: SegueError) -> list[tuple[bytes, bytes]]:
    """Return the headers that say whether, and when, a client should retry."""
    headers: list[tuple[bytes, bytes]] = list(error.data.get("headers", ()))
    if isinstance(error, _NOT_RETRYABLE) and not isinstance(error, LeaseLost):
        headers.append((b"x-should-retry", b"false"))
    elif error.http_status == 503:
        headers.append((b"retry-after", b"1"))
    return headers


def _message(error: SegueError, *, local: bool) -> str:
    """Return the error's message, with a session's id in this API's notation."""
    message = error.message_for(local=local)
    session = str(error.data.get("session", ""))
    session_id = ids.parse(session)
    if session_id is None:
        return message
    return message.replace(session, ids.format_id("sesn", session_id))
