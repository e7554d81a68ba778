"""Clients that send incomplete, slow or invalid requests do not affect other clients."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from segue.http.body import MAX_BODY_BYTES
from segue.interfaces.rest.routes import ROUTES
from tests.clients.rest_server import Server, serving
from tests.interfaces.rest.api import HEADERS, message, open_api
from tests.interfaces.rest.test_bad_input import create_resources
from tests.interfaces.rest.test_stream import Client

RUBBISH = [
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b"\xff\xfe{}",
    b'{"a": NaN}',
    b"{}{}",
    b"[" * 100_000,
    b'{"name": "\\ud800"',
    b"\x00",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("rough")) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    client = Client(server)
    yield client
    client.http.close()


def dial(server: Server) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), 30)


def head(server: Server, method: str, path: str, **more: object) -> bytes:
    fields = {**HEADERS, "host": "127.0.0.1", "x-api-key": server.key}
    fields |= {name.replace("_", "-"): str(value) for name, value in more.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def listen(server: Server, sock: socket.socket, session: str) -> None:
    """Open a connection and request a stream."""
    sock.sendall(head(server, "GET", f"/v1/sessions/{session}/events/stream"))
    received = b""
    while b'{"type": "ping"}' not in received:
        received += sock.recv(1)


async def test_every_route_refuses_a_body_that_is_not_a_json_object(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        names = await create_resources(api)
        before = await api.ok("GET", "/v1/sessions")
        for endpoint in ROUTES:
            if endpoint.method != "POST" or endpoint.path == "/v1/files":
                continue
            path = endpoint.path
            for name, value in names.items():
                path = path.replace("{" + name + "}", value)
            for body in RUBBISH:
                status, response = await api.call("POST", path, content=body)
                # Some routes ignore the body.
                assert status in (200, 400, 404), (path, body[:20], response)
                assert status == 200 or response["error"]["message"]
        after = await api.ok("GET", "/v1/sessions", include_archived="true")
        assert len(after["data"]) <= len(before["data"]) + len(RUBBISH)  # runs of the deployment


def test_incomplete_request_has_no_effect_and_delays_no_other(
    server: Server, client: Client
) -> None:
    environment = len(client.ok("GET", "/v1/environments")["data"])
    body = json.dumps({"name": "half"}).encode()
    halves = []
    for _ in range(20):
        sock = dial(server)
        request = head(server, "POST", "/v1/environments", content_length=len(body)) + body
        sock.sendall(request[: len(request) - 5])
        halves.append(sock)
    assert len(client.ok("GET", "/v1/environments")["data"]) == environment  # answered meanwhile
    for sock in halves:
        sock.close()
    assert len(client.ok("GET", "/v1/environments")["data"]) == environment


def test_request_sent_in_small_pieces_is_answered(server: Server) -> None:
    body = json.dumps({"name": "slow"}).encode()
    with dial(server) as sock:
        for byte in head(server, "POST", "/v1/environments", content_length=len(body)) + body:
            sock.sendall(bytes([byte]))
        assert sock.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS client",
        b"GET\r\n\r\n",
        b"GET /v1/sessions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: x\r\n\r\n",
        b"GET /v1/sessions HTTP/9.9\r\nhost: 127.0.0.1\r\n\r\n",
        b"\r\n" * 50,
    ],
)
def test_invalid_http_closes_only_its_own_connection(
    server: Server, client: Client, sent: bytes
) -> None:
    with dial(server) as sock:
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)
        response = sock.recv(65536)
        assert not response or response.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4")), response
    assert client.ok("GET", "/v1/models")["data"]


def test_too_long_body_without_a_length_is_refused(server: Server, client: Client) -> None:
    chunk = b"x" * (1 << 20)
    with dial(server) as sock:
        sock.sendall(head(server, "POST", "/v1/environments", transfer_encoding="chunked"))
        for _ in range(MAX_BODY_BYTES // len(chunk) + 1):
            sock.sendall(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        sock.sendall(b"0\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 413")
    assert client.ok("GET", "/v1/models")["data"]


def test_unread_stream_loses_no_events_and_delays_no_other_client(
    server: Server, client: Client
) -> None:
    id = client.session()
    with dial(server) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listen(server, sock, id)
        client.send(id, message("/repeat 100 " + "many words " * 50))
        client.idle(id)
        events = client.ok("GET", f"/v1/sessions/{id}/events")["data"]
        assert len(events) > 100
        results = []
        deadline = time.monotonic() + 60
        with sock.makefile("rb") as file:
            while len(results) < len(events) and time.monotonic() < deadline:
                line = file.readline()
                if line.startswith(b"data: ") and b'"ping"' not in line:
                    results.append(json.loads(line[6:]))
    assert results == events


def test_server_closes_streams_of_disconnected_clients(server: Server, client: Client) -> None:
    id = client.session()
    socks = [dial(server) for _ in range(30)]
    for sock in socks:
        listen(server, sock, id)

    def streams() -> float:
        lines = client.http.get("/metrics").text.splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("segue_streams"))

    assert streams() >= 30
    before = streams()
    for number, sock in enumerate(socks):
        if number % 2:  # some without closing the connection
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
    deadline = time.monotonic() + 20
    while streams() > before - 30:
        assert time.monotonic() < deadline
        time.sleep(0.05)
