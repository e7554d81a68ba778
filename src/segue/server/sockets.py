"""Open the socket that a server listens on."""

from __future__ import annotations

import errno
import socket

from segue.model.errors import InvalidInput

MAX_WAITING_CONNECTIONS = 2048


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, so that the port is known before requests are served.

    It listens at once: Linux lets two sockets bind to one port as long as neither listens.
    Raises InvalidInput if the host is not an address of this machine or the port is in use.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InvalidInput(
            f"cannot listen on host {host!r}: {error}; use a host name or address of this machine"
        ) from None
    family, kind, protocol, _, address = addresses[0]
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
        sock.listen(MAX_WAITING_CONNECTIONS)
    except OSError as error:
        sock.close()
        hint = "; --port 0 takes a free one" if error.errno == errno.EADDRINUSE else ""
        raise InvalidInput(f"cannot listen on {host} port {port}: {error.strerror}{hint}") from None
    return sock


def listen_on_default(host: str, default_port: int) -> socket.socket:
    """Return a socket that listens on the default port, or on a free one if that is in use."""
    try:
        return listen(host, default_port)
    except InvalidInput:
        return listen(host, 0)


def is_loopback(sock: socket.socket) -> bool:
    """Return True if only this machine can connect to a socket."""
    from ipaddress import ip_address

    return ip_address(sock.getsockname()[0]).is_loopback


def base_url(sock: socket.socket) -> str:
    """Return the URL of the server that listens on a socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
