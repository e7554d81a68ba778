"""Explain why a model cannot be reached, and what to check."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from pydantic_ai import exceptions as errors


def connection_message(error: Exception, address: str | None) -> str | None:
    """Return a message for the user, or None if the error is not a connection error.

    The message names the address, which only the local user may see.
    """
    if not isinstance(error, errors.ModelConnectionError):
        return None
    reason = _reason(error)
    location = _without_secrets(address) if address else "its address"
    if error.phase in ("read", "write"):
        return f"the connection to the model at {location} broke: {reason}"
    if _is_loopback(address):
        check = "is its server running, and is model.base_url right?"
    else:
        check = "is the network up, and is model.base_url right, if it is set?"
    return f"the model at {location} cannot be reached: {reason}; {check}"


def is_unlikely_to_recover(error: Exception, address: str | None) -> bool:
    """Return True if no server listens on this machine, or if a host name cannot be resolved."""
    causes = list(_causes(error))
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return True
    return _is_loopback(address) and any(
        isinstance(cause, ConnectionRefusedError) for cause in causes
    )


def _without_secrets(address: str) -> str:
    """Return an address without user name, password, query and fragment."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _reason(error: Exception) -> str:
    """Return the operating system's message, which client libraries wrap in other errors."""
    *_, last = _causes(error)
    if isinstance(last, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(last, OSError) and last.strerror:
        return last.strerror
    return str(last) or type(last).__name__


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, its cause, the cause of that, and so on."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]  # there is one for each address of a host name
        else:
            cause = cause.__cause__ or cause.__context__


def _is_loopback(address: str | None) -> bool:
    host = urlsplit(address or "").hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
