"""Connect the sockets of sandboxed programs to the session's egress proxy, and to nothing else.

The filter of system calls passes each `connect` to the supervisor. It copies the address from the
program's memory once, compares it with the proxy's, and connects a copy of the socket itself. So a
program that changes the address meanwhile changes nothing.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import sys
from contextlib import suppress

from .system_calls import libc

_AF_INET, _AF_INET6 = 2, 10
_LOOPBACK = bytes((127, 0, 0, 1))
_MAX_ADDRESS_BYTES = 128  # sizeof(struct sockaddr_storage)
_SOL_SOCKET, _SO_ERROR = 1, 4
_CONNECT_MILLISECONDS = 5_000
_REPORT_SECONDS = 1.0
_MAX_REPORTS = 5


class ProxyConnector:
    """Carries out `connect` for the proxy's port, and refuses it for every other address."""

    def __init__(self, port: int) -> None:
        self._address = struct.pack("=H", _AF_INET) + struct.pack("!H", port) + _LOOPBACK
        self._reported: set[str] = set()

    def connect(self, descriptor: int, address: bytes) -> None:
        """Connect a socket. Raises OSError if the address is not the proxy's, or it fails."""
        if address[:8] != self._address:
            self._report(_describe(address))
            raise OSError(errno.ENETUNREACH, "only the egress proxy can be reached")
        own_address = self._address + bytes(8)
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        if flags & os.O_NONBLOCK:
            _connect(descriptor, own_address)
            return
        # The supervisor must not wait long, so it connects without blocking.
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_NONBLOCK)
        try:
            _connect_in_time(descriptor, own_address)
        finally:
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)

    def _report(self, target: str) -> None:
        if target in self._reported or len(self._reported) >= _MAX_REPORTS:
            return
        self._reported.add(target)
        print(
            f"segue: a connection to {target} was refused; programs reach the network through the"
            " proxy in HTTPS_PROXY only",
            file=sys.stderr,
        )
        sys.stderr.flush()
        # The proxy logs it and stores an event.
        proxy = ("127.0.0.1", int.from_bytes(self._address[2:4], "big"))
        with (
            suppress(OSError),
            socket.create_connection(proxy, _REPORT_SECONDS) as connection,
        ):
            connection.sendall(f"REFUSED {target} HTTP/1.1\r\n\r\n".encode())


def address_size(size: int) -> int:
    """Return how many bytes of an address to read. Raises OSError if it is too long."""
    size &= 0xFFFFFFFF
    if size > _MAX_ADDRESS_BYTES:
        raise OSError(errno.EINVAL, "the address is too long")
    return size


def _connect(descriptor: int, address: bytes) -> None:
    if libc.connect(descriptor, address, len(address)) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _connect_in_time(descriptor: int, address: bytes) -> None:
    try:
        _connect(descriptor, address)
        return
    except OSError as error:
        if error.errno != errno.EINPROGRESS:
            raise
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    if not poll.poll(_CONNECT_MILLISECONDS):
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
    result, size = ctypes.c_int(0), ctypes.c_uint(4)
    pointers = (ctypes.byref(result), ctypes.byref(size))
    libc.getsockopt(descriptor, _SOL_SOCKET, _SO_ERROR, *pointers)
    if result.value:
        raise OSError(result.value, os.strerror(result.value))


def _describe(address: bytes) -> str:
    """Return an address for a message."""
    if len(address) < 8:
        return "an unknown address"
    family = int.from_bytes(address[:2], sys.byteorder)
    port = int.from_bytes(address[2:4], "big")
    if family == _AF_INET:
        return f"{'.'.join(map(str, address[4:8]))}:{port}"
    if family == _AF_INET6 and len(address) >= 24:
        return f"[{socket.inet_ntop(socket.AF_INET6, address[8:24])}]:{port}"
    return f"an address of the family {family}"
