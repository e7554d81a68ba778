"""Escapes through sockets and interprocess communication."""

import os
import socket

import pytest

from .harness import Sandbox


def test_a_program_cannot_create_a_socket(sandbox: Sandbox) -> None:
    codes = [
        f"import socket; socket.socket(socket.{family}, socket.{kind})"
        for family in ("AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK", "AF_PACKET", "AF_VSOCK")
        for kind in ("SOCK_STREAM", "SOCK_DGRAM", "SOCK_RAW")
    ]
    assert sandbox.successes(codes, ["EPERM"]) == []


def test_a_program_cannot_connect_to_unix_sockets(sandbox: Sandbox) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0segue-escape-{os.getpid()}-{sandbox.backend}-{sandbox.uid}")
        server.listen()
        code = """
import socket
socket.socketpair()[0].connect(b"\\0" + name.encode())
"""
        name = server.getsockname()[1:].decode()
        assert sandbox.run(code, name=name).errno == "EPERM"


def test_a_pair_of_sockets_sends_nothing_to_other_sockets(sandbox: Sandbox) -> None:
    name = f"\0segue-escape-{os.getpid()}-{sandbox.backend}-{sandbox.uid}-d"
    path = str(sandbox.files.top / "datagrams")
    for address in (name, path):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
            server.bind(address)
            server.setblocking(False)
            if address == path:
                os.chmod(path, 0o777)
            send = "import socket; socket.socketpair(1, socket.{})[0].sendto(b'x', address)"
            kinds = ("SOCK_DGRAM", "SOCK_RAW", "SOCK_SEQPACKET", "SOCK_STREAM")
            codes = [send.format(kind) for kind in kinds]
            errors = ["EPERM", "EISCONN", "EOPNOTSUPP", "ENOTSUP"]
            assert sandbox.successes(codes, errors, address=address) == []
            with pytest.raises(BlockingIOError):
                server.recv(1)
    os.unlink(path)


def test_connected_pairs_of_sockets_work(sandbox: Sandbox) -> None:
    code = "import socket; a, b = socket.socketpair(); a.send(b'x'); value = b.recv(1).decode()"
    assert sandbox.run(code).value == "x"


def test_a_program_cannot_attach_shared_memory_of_others(sandbox: Sandbox) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    segment = libc.shmget(0, 4096, 0o1666)
    assert segment >= 0
    try:
        code = "raise OSError(ctypes.get_errno(), '') if libc.shmat(id, 0, 0) == -1 else Exception"
        assert sandbox.run(code, id=segment).errno == "EPERM"
    finally:
        libc.shmctl(segment, 0, 0)


@pytest.mark.parametrize("directory", ["session", "top", "data"])
def test_a_program_cannot_watch_directories(sandbox: Sandbox, directory: str) -> None:
    code = """
d = libc.inotify_init1(0)
if d < 0 or libc.inotify_add_watch(d, path.encode(), 0xFFF) < 0:
    raise OSError(ctypes.get_errno(), "")
"""
    path = str(getattr(sandbox.files, directory))
    assert sandbox.run(code, path=path).errno == "ENOSYS"


def test_a_program_cannot_reach_the_message_bus(sandbox: Sandbox) -> None:
    code = """
import socket
socket.socket(socket.AF_UNIX).connect("/run/dbus/system_bus_socket")
"""
    assert sandbox.run(code).errno == "EPERM"
