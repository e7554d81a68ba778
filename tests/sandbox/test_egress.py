"""A program that may use the egress proxy reaches nothing else."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from segue.agents.sandbox import launch

from .harness import Sandbox, open_sandbox


class Listeners(NamedTuple):
    proxy: socket.socket
    other: socket.socket
    other_v6: socket.socket

    @property
    def values(self) -> dict[str, int]:
        """Return the ports as variables for code in the sandbox."""
        return {
            "port": self.proxy.getsockname()[1],
            "other": self.other.getsockname()[1],
            "other6": self.other_v6.getsockname()[1],
        }


@contextmanager
def listeners() -> Iterator[Listeners]:
    with (
        socket.create_server(("127.0.0.1", 0)) as proxy,
        socket.create_server(("127.0.0.1", 0)) as other,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as other_v6,
    ):
        for server in (proxy, other, other_v6):
            server.settimeout(30)
        yield Listeners(proxy, other, other_v6)


@pytest.fixture(scope="module")
def opened(user: str) -> Iterator[tuple[Sandbox, Listeners]]:
    if not launch.supports_proxy():
        pytest.skip("this kernel has no Landlock that can isolate programs")
    with (
        listeners() as servers,
        open_sandbox("landlock", user, proxy_port=servers.proxy.getsockname()[1]) as sandbox,
    ):
        yield sandbox, servers


@pytest.mark.parametrize("blocking", [True, False])
def test_program_reaches_the_proxy(opened: tuple[Sandbox, Listeners], blocking: bool) -> None:
    sandbox, servers = opened
    code = """
import socket, select
connection = socket.socket()
connection.setblocking(blocking)
try:
    connection.connect(("127.0.0.1", port))
except BlockingIOError:
    select.select([], [connection], [], 30)
connection.sendall(b"hello")
value = connection.getblocking()
connection.close()
"""
    assert sandbox.run(code, blocking=blocking, **servers.values).value is blocking
    accepted, _ = servers.proxy.accept()
    with accepted:
        assert accepted.recv(10) == b"hello"


def test_program_reaches_nothing_else(opened: tuple[Sandbox, Listeners]) -> None:
    sandbox, servers = opened
    setup = "import socket, struct, ctypes"
    codes = [
        'socket.socket().connect(("127.0.0.1", other))',
        'socket.socket().connect(("127.0.0.2", port))',
        'socket.socket().connect(("0.0.0.0", port))',
        'socket.socket().connect(("1.1.1.1", port))',
        'socket.socket(socket.AF_INET6).connect(("::1", other6))',
        'socket.socket(socket.AF_INET6).connect(("::ffff:127.0.0.1", other))',
        'socket.socket(socket.AF_INET6).connect(("::ffff:127.0.0.1", port))',
        # TCP Fast Open connects with the first data.
        'socket.socket().sendto(b"x", 0x20000000, ("127.0.0.1", other))',
        'socket.socket().sendmsg([b"x"], [], 0x20000000, ("127.0.0.1", other))',
        # DNS and other datagrams, raw packets, and other protocols
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)",  # SCTP
        "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)",  # MPTCP
        "socket.socket(socket.AF_UNIX)",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
        'socket.socket().bind(("127.0.0.1", 0))',
        "socket.socket().listen()",
        # A file descriptor that is no socket, and an address that is none
        'socket.socket(fileno=os.dup(0)).connect(("127.0.0.1", port))',
        "os.open('/proc/1/net/tcp', os.O_RDONLY)",
        "os.open('/proc/net/tcp', os.O_RDONLY)",
    ]
    refused = ["ENETUNREACH", "EPERM", "EACCES", "ENOTSOCK", "ENOENT", "EINVAL"]
    sandbox.run(setup + "\nvalue = None")
    assert (
        sandbox.successes([f"{setup}\n{code}" for code in codes], refused, **servers.values) == []
    )
    for server in (servers.other, servers.other_v6):
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_address_that_changes_during_the_call_is_not_used(
    opened: tuple[Sandbox, Listeners],
) -> None:
    """A second thread changes the address in memory while the supervisor compares it."""
    sandbox, servers = opened
    code = """
import ctypes, socket, struct, threading
libc = ctypes.CDLL(None, use_errno=True)
allowed = struct.pack("=H", 2) + struct.pack("!H", port) + bytes((127, 0, 0, 1)) + bytes(8)
forbidden = struct.pack("=H", 2) + struct.pack("!H", other) + bytes((127, 0, 0, 1)) + bytes(8)
address = ctypes.create_string_buffer(allowed, 16)
stop = threading.Event()
def change():
    while not stop.is_set():
        ctypes.memmove(address, forbidden, 16)
        ctypes.memmove(address, allowed, 16)
thread = threading.Thread(target=change)
thread.start()
value = []
for _ in range(200):
    connection = socket.socket()
    if libc.connect(connection.fileno(), address, 16) == 0:
        value.append(connection.getpeername()[1])
    connection.close()
stop.set()
thread.join()
"""
    ports = sandbox.run(code, **servers.values).value
    assert set(ports) <= {servers.values["port"]}
    servers.other.setblocking(False)
    with pytest.raises(BlockingIOError):
        servers.other.accept()
