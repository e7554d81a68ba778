"""A model that cannot be reached: where it was looked for, why not, and what to check."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from urllib.parse import urlsplit

from pydantic_ai import exceptions as errors


def told(error: Exception, address: str | None) -> str | None:
    """What to tell a person of it; None if the model was reached."""
    if not isinstance(error, errors.ModelConnectionError):
        return None
    why = _reason(error)
    where = _shown(address) if address else "its address"
    if error.phase in ("read", "write"):
        return f"the connection to the model at {where} broke: {why}"
    if _here(address):
        check = "is its server running, and is model.base_url right?"
    else:
        check = "is the network up, and is model.base_url right, if it is set?"
    return f"the model at {where} cannot be reached: {why}; {check}"


def nobody_there(error: Exception, address: str | None) -> bool:
    """Whether this very machine says that nothing listens there, which waiting seldom changes."""
    return _here(address) and any(isinstance(e, ConnectionRefusedError) for e in _causes(error))


def _shown(address: str) -> str:
    """An address without a password or a key in it."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _reason(error: Exception) -> str:
    """What the system said, which the clients wrap in layers that say less."""
    *_, last = _causes(error)
    if isinstance(last, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(last, OSError) and last.strerror:
        return last.strerror
    return str(last) or type(last).__name__


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        if isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]  # one for each address of a name
        else:
            found = found.__cause__ or found.__context__


def _here(address: str | None) -> bool:
    host = urlsplit(address or "").hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
