"""A client that sends slowly, too much or nothing does not keep others from the server."""

import asyncio
import json
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
import uvloop

from segue.server.connections import (
    MAX_CONNECTIONS,
    MAX_PIPELINED_REQUESTS,
    ConnectionLimits,
    Connections,
    default_max_connections,
    raise_open_files_limit,
)

GET = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
CHUNKED_POST = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
NEVER = 3600.0
SOON = 0.05
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


class App:
    """Answers with the size of the request's body; GET /hold waits for `release` first."""

    def __init__(self) -> None:
        self.calls = 0
        self.header_names: list[bytes] = []
        self.release = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls += 1
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
        self.header_names += [name for name, _ in scope["headers"]]
        if scope["path"] == "/hold":
            await self.release.wait()
        sizes = {"/medium": 60_000, "/large": 40_000_000}
        body = b"x" * sizes.get(scope["path"], 0) or b"%d" % size
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def response(self) -> tuple[int, bytes]:
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 60)
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        body = await asyncio.wait_for(self.reader.readexactly(length), 60)
        return int(head.split()[1]), body

    async def closed(self) -> bytes:
        """Wait until the server closes the connection, and return what it sent before."""
        received = b""
        try:
            while data := await asyncio.wait_for(self.reader.read(65536), 60):
                received += data
        except ConnectionError:
            pass
        return received


class Server:
    def __init__(self, app: App, connections: Connections, port: int) -> None:
        self.app = app
        self.connections = connections
        self.port = port
        self._clients: list[Client] = []

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.writer.close()


@asynccontextmanager
async def serving(keep_alive_seconds: float = NEVER, **limits: Any) -> AsyncIterator[Server]:
    """Serve with these limits. No test reaches any other limit."""
    never = {"head_seconds": NEVER, "body_seconds": NEVER, "write_seconds": NEVER}
    all_limits = ConnectionLimits(**{"max_connections": 100, **never, **limits})
    app = App()
    connections = Connections(all_limits)
    config = uvicorn.Config(
        app,
        http=connections.create_protocol,  # type: ignore[arg-type]
        lifespan="off",
        log_config=None,
        timeout_keep_alive=int(keep_alive_seconds),
        timeout_graceful_shutdown=1,
    )
    uvicorn_server = uvicorn.Server(config)
    sock = socket.create_server(("127.0.0.1", 0))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the system's minimum
    task = asyncio.create_task(uvicorn_server._serve([sock]))
    server = Server(app, connections, sock.getsockname()[1])
    try:
        while not uvicorn_server.started:
            await asyncio.sleep(0.01)
        yield server
    finally:
        server.close()
        uvicorn_server.should_exit = True
        await task


async def test_requests_within_the_limits_are_answered() -> None:
    async with serving(head_seconds=30, body_seconds=30, write_seconds=30) as server:
        client = await server.connect()
        for _ in range(3):
            client.send(GET)
            assert await client.response() == (200, b"0")
        client.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\n\r\nabc")
        client.send(b"def" + GET)
        assert await client.response() == (200, b"6")
        assert await client.response() == (200, b"0")


@pytest.mark.parametrize("complete", [True, False])
async def test_head_over_the_limit_is_refused_before_the_application(complete: bool) -> None:
    head = b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x-long: " + b"y" * 40_000
    async with serving() as server:
        client = await server.connect()
        client.send(head + b"\r\n\r\n" if complete else head)
        status, body = await client.response()
        assert status == 431
        assert "32768 bytes" in json.loads(body)["error"]["message"]
        assert await client.closed() == b""
        assert server.app.calls == 0


async def test_endless_head_is_cut_off() -> None:
    async with serving() as server:
        client = await server.connect()
        client.send(b"GET / HTTP/1.1\r\n")
        sent = 0
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            while sent < 10_000_000:
                client.send(b"x-name: value\r\n" * 100)
                sent += 1500
                await client.writer.drain()
            await client.closed()
        assert sent < 10_000_000


async def test_line_breaks_before_a_request_are_limited() -> None:
    async with serving() as server:
        client = await server.connect()
        client.send(b"\r\n" * 20_000)
        assert (await client.response())[0] == 431


async def test_connection_without_a_request_is_closed() -> None:
    async with serving(head_seconds=SOON) as server:
        client = await server.connect()
        assert await client.closed() == b""


async def test_slow_head_is_refused() -> None:
    async with serving(head_seconds=SOON) as server:
        client = await server.connect()
        client.send(GET[:-2])
        status, body = await client.response()
        assert status == 408
        assert json.loads(body)["error"]["type"] == "timeout_error"


async def test_slow_head_of_a_later_request_is_refused() -> None:
    async with serving(head_seconds=0.5) as server:
        client = await server.connect()
        client.send(GET)
        assert await client.response() == (200, b"0")
        client.send(GET[:-2])
        assert (await client.response())[0] == 408


async def test_pause_in_a_body_closes_the_connection() -> None:
    async with serving(body_seconds=SOON) as server:
        client = await server.connect()
        client.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\n\r\nabc")
        assert await client.closed() == b""


async def test_response_that_takes_long_does_not_close_the_connection() -> None:
    async with serving(head_seconds=SOON, body_seconds=SOON) as server:
        client = await server.connect()
        client.send(GET.replace(b" / ", b" /hold "))
        await asyncio.sleep(4 * SOON)
        server.app.release.set()
        assert await client.response() == (200, b"0")


async def test_response_that_is_not_read_closes_the_connection() -> None:
    async with serving(write_seconds=SOON) as server:
        client = await server.connect()
        client.send(GET.replace(b" / ", b" /large "))
        await asyncio.sleep(10 * SOON)  # the client reads nothing
        assert len(await client.closed()) < 40_000_000


async def test_new_connection_replaces_the_one_that_waits_longest_without_a_request() -> None:
    async with serving(max_connections=3) as server:
        first, second, third = [await server.connect() for _ in range(3)]
        first.send(GET)
        assert await first.response() == (200, b"0")  # now the second one waits longest
        fourth = await server.connect()
        fourth.send(GET)
        assert await fourth.response() == (200, b"0")
        assert await second.closed() == b""
        for client in (first, third):
            client.send(GET)
            assert await client.response() == (200, b"0")


async def test_idle_connections_never_block_others() -> None:
    async with serving(max_connections=8) as server:
        idle = [await server.connect() for _ in range(200)]
        client = await server.connect()
        client.send(GET)
        assert await client.response() == (200, b"0")
        assert await idle[0].closed() == b""


async def test_connection_is_refused_if_all_others_have_a_request() -> None:
    async with serving(max_connections=2) as server:
        busy = [await server.connect() for _ in range(2)]
        for client in busy:
            client.send(GET.replace(b" / ", b" /hold "))
        while server.app.calls < 2:
            await asyncio.sleep(0.01)
        refused = await server.connect()
        status, body = await refused.response()
        assert (status, json.loads(body)["error"]["type"]) == (503, "overloaded_error")
        with pytest.raises(ConnectionError):  # it does not wait for the client: no file is free
            for _ in range(100):
                refused.send(GET)
                await refused.writer.drain()
                await asyncio.sleep(0.01)
        server.app.release.set()
        for client in busy:
            assert await client.response() == (200, b"0")


async def test_new_connection_replaces_one_that_has_sent_a_part_of_a_request() -> None:
    async with serving(max_connections=2) as server:
        slow = [await server.connect() for _ in range(2)]
        for client in slow:
            client.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\n\r\nabc")
        while server.app.calls < 2:
            await asyncio.sleep(0.01)
        client = await server.connect()
        client.send(GET)
        assert await client.response() == (200, b"0")
        assert await slow[0].closed() == b""
        slow[1].send(b"def")
        assert await slow[1].response() == (200, b"6")


async def test_trailers_of_a_chunked_body_are_not_added_to_the_head() -> None:
    async with serving() as server:
        client = await server.connect()
        client.send(CHUNKED_POST + b"3\r\nabc\r\n0\r\n")
        while not server.app.calls:
            await asyncio.sleep(0.01)
        client.send(b"x-api-key: trailer\r\n\r\n" + GET)
        assert await client.response() == (200, b"3")
        assert await client.response() == (200, b"0")
        assert server.app.header_names == [b"host", b"transfer-encoding", b"host"]


@pytest.mark.parametrize(
    "endless", [b"x-name: value\r\n" * 100, b"y" * 1500], ids=["lines", "one line"]
)
async def test_endless_trailers_are_cut_off(endless: bytes) -> None:
    async with serving() as server:
        client = await server.connect()
        client.send(CHUNKED_POST + b"0\r\nx-long: ")
        sent = 0
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            while sent < 10_000_000:
                client.send(endless)
                sent += 1500
                await client.writer.drain()
            await client.closed()
        assert sent < 10_000_000


async def test_chunked_body_of_many_small_chunks_is_accepted() -> None:
    async with serving(head_bytes=200) as server:
        client = await server.connect()
        client.send(CHUNKED_POST)
        for _ in range(100):
            client.send(b"3\r\nabc\r\n")
            await client.writer.drain()
        client.send(b"0\r\n\r\n")
        assert await client.response() == (200, b"300")


async def test_pipeline_over_the_limit_gets_its_responses_and_then_an_error() -> None:
    async with serving() as server:
        client = await server.connect()
        client.send(GET.replace(b" / ", b" /hold ") + GET * 5000)
        while not server.app.calls:
            await asyncio.sleep(0.01)
        server.app.release.set()
        for _ in range(1 + MAX_PIPELINED_REQUESTS):
            assert await client.response() == (200, b"0")
        status, body = await client.response()
        error = json.loads(body)["error"]
        assert (status, error["type"]) == (400, "invalid_request_error")
        assert "more than 16 requests" in error["message"]
        assert await client.closed() == b""
        assert server.app.calls == 1 + MAX_PIPELINED_REQUESTS


async def test_endless_pipeline_is_cut_off() -> None:
    async with serving() as server:
        client = await server.connect()
        client.send(GET.replace(b" / ", b" /hold ") + GET * 100)
        while not server.app.calls:
            await asyncio.sleep(0.01)
        server.app.release.set()
        sent = 0
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            while sent < 20_000_000:
                client.send(GET * 100)
                sent += len(GET) * 100
                await client.writer.drain()
            await client.closed()
        assert sent < 20_000_000
        assert server.app.calls == 1 + MAX_PIPELINED_REQUESTS


@pytest.mark.parametrize("earlier", [b"", GET], ids=["first", "after another request"])
async def test_text_that_is_no_request_gets_an_error_of_the_api(earlier: bytes) -> None:
    async with serving() as server:
        client = await server.connect()
        client.send(earlier + b"no request\r\n\r\n")
        if earlier:
            assert await client.response() == (200, b"0")
        status, body = await client.response()
        assert (status, json.loads(body)["error"]["type"]) == (400, "invalid_request_error")
        assert await client.closed() == b""


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("closed_by", ["request", "keep-alive limit"])
def test_small_response_that_is_not_read_does_not_keep_a_closed_connection(
    closed_by: str, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def run() -> None:
        keep_alive_seconds = NEVER if closed_by == "request" else 0
        async with serving(keep_alive_seconds, write_seconds=SOON) as server:
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the system's minimum
                client.connect(("127.0.0.1", server.port))
                header = b"connection: close\r\n\r\n" if closed_by == "request" else b"\r\n"
                request = GET.replace(b" / ", b" /medium ").removesuffix(b"\r\n") + header
                await asyncio.to_thread(client.sendall, request)
                async with asyncio.timeout(60):
                    while not server.app.calls or server.connections._open:
                        await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


def test_default_number_of_connections_fits_into_the_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
        few = default_max_connections()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 512
        assert 16 <= few < 512
        raise_open_files_limit()
        assert few < default_max_connections() <= MAX_CONNECTIONS
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
