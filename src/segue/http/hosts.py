"""Check the Host and Origin headers of requests.

A browser sends a page's own host name to whatever address that name resolves to. The check keeps
pages of other sites from reaching a server on this machine under a name of their choosing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from .errors import Forbidden

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


class HostCheck:
    """Accept requests for the loopback host names and for `hosts`, and refuse all others."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._hosts = frozenset(name.lower() for name in (*LOOPBACK_HOSTS, *hosts))

    def check(self, headers: Mapping[bytes, bytes], *, origins: Container[bytes] = ()) -> None:
        """Raise Forbidden if a request's Host or Origin header names a host that is not served.

        `origins` are accepted as well: those of programs, which no web page can have.
        """
        host = _host_name("//" + headers.get(b"host", b"").decode("latin-1"))
        if host not in self._hosts:
            raise Forbidden(
                f"host {host!r} is not served here; to serve it, start the server with"
                f" --allow-host {host or 'NAME'}"
            )
        origin = headers.get(b"origin")
        if origin is None or origin in origins:
            return
        if _host_name(origin.decode("latin-1")) not in self._hosts:
            raise Forbidden(
                f"origin {origin.decode('latin-1')!r} is not served here; to serve it, start the"
                " server with --allow-host and its host name"
            )


def is_loopback(host: str) -> bool:
    """Return whether only this computer reaches a server under a host name."""
    return host.lower() in LOOPBACK_HOSTS or host.startswith("127.")


def port_of(host: str) -> int | None:
    """Return the port in a Host header, or None if it has none."""
    try:
        return urlsplit(f"//{host}").port
    except ValueError:
        return None


@lru_cache(256)
def _host_name(url: str) -> str:
    """Return the host name in a URL in lower case, or "" if the URL has none."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
