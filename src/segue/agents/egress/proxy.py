"""The egress proxy of a session: an HTTP proxy on loopback that connects to allowed hosts only.

All programs of a session, and its requests from this process, use it; the sandbox leaves programs
no other route. It resolves host names itself, checks the addresses and connects to a checked one,
so a name cannot mean another address a moment later. It accepts CONNECT for any port, and plain
HTTP requests, of which it forwards one per connection. With REFUSED, the supervisor of a sandbox
reports a connection that a program tried to make without the proxy.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from .addresses import PrivateAddress, resolve
from .rules import EgressRules

log = logging.getLogger("segue.egress")

MAX_CONNECTIONS = 256
MAX_HEAD_BYTES = 65_536
MAX_REFUSALS = 20  # further ones are not reported
HEAD_SECONDS = 30.0
CONNECT_SECONDS = 30.0
_CHUNK_BYTES = 65_536
_LOOPBACK = "127.0.0.1"
_DIRECT = re.compile(rb"REFUSED ([\[\w.:\]]{1,80}) HTTP/1\.1\r\n\r\n")
_HOP_HEADERS = ("connection", "proxy-connection", "proxy-authorization", "keep-alive", "host")


class Refused(Exception):
    """A connection is not allowed; the message names its host and the reason."""


class _Request(NamedTuple):
    """A request to the proxy: its target, and the bytes to send there first."""

    host: str
    port: int
    forwarded: bytes | None  # None for CONNECT


class EgressProxy:
    """The proxy of one session. `rules` may be replaced at any time."""

    def __init__(self, session: str, rules: EgressRules) -> None:
        self.rules = rules
        self._session = session
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._refusals: dict[str, None] = {}

    @property
    def port(self) -> int:
        """The port on 127.0.0.1 at which the proxy listens."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"http://{_LOOPBACK}:{self.port}"

    async def start(self) -> None:
        """Listen on a free port of the loopback address."""
        self._server = await asyncio.start_server(
            self._accept, _LOOPBACK, 0, limit=MAX_HEAD_BYTES, backlog=MAX_CONNECTIONS
        )

    async def close(self) -> None:
        """Stop listening and end all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def take_refusals(self) -> list[str]:
        """Return the refused connections since the last call, each once."""
        refusals, self._refusals = list(self._refusals), {}
        return refusals

    def environment(self) -> dict[str, str]:
        """Return the variables that make programs use the proxy."""
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        proxies = {name: self.url for name in (*names, *map(str.lower, names))}
        # Without these, some programs would try loopback addresses directly, and Node everything.
        return {**proxies, "NO_PROXY": "", "no_proxy": "", "NODE_USE_ENV_PROXY": "1"}

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.close()
            return
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError, TimeoutError, ValueError):
            pass  # either side ended the connection, or sent no HTTP
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HEAD_SECONDS):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                if report := _DIRECT.fullmatch(head):
                    address = report[1].decode()
                    self._refuse(f"{address} cannot be reached without the proxy in HTTPS_PROXY")
                    return
                request = _parse(head)
            except (ValueError, asyncio.LimitOverrunError):
                await _answer(writer, "400 Bad Request", "this is an HTTP proxy")
                return
        try:
            upstream_reader, upstream = await self._connect(request.host, request.port)
        except Refused as error:
            self._refuse(str(error))
            await _answer(
                writer, "403 Not allowed by the networking of the environment", str(error)
            )
            return
        except (OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            await _answer(writer, "502 Bad Gateway", f"{request.host}: {reason}")
            return
        try:
            if request.forwarded is None:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                upstream.write(request.forwarded)
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, upstream))
                group.create_task(_copy(upstream_reader, writer))
        finally:
            upstream.close()

    async def _connect(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a host. Raises Refused if the rules do not allow it."""
        if not self.rules.allows(host):
            raise Refused(
                f"{host}:{port} is not one of the hosts that the networking of the environment"
                " allows"
            )
        async with asyncio.timeout(CONNECT_SECONDS):
            try:
                addresses = await resolve(host, port, private=self.rules.private)
            except PrivateAddress:
                raise Refused(f"{host}:{port} is not on the public internet") from None
            for address in addresses[:-1]:
                with suppress(OSError):
                    return await asyncio.open_connection(address, port)
            return await asyncio.open_connection(addresses[-1], port)

    def _refuse(self, message: str) -> None:
        log.warning("session %s: %s", self._session, message)
        if len(self._refusals) < MAX_REFUSALS:
            self._refusals[message] = None


def _parse(head: bytes) -> _Request:
    """Return the request in the head of a connection. Raises ValueError if it is none."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, target, version = first.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError("not HTTP/1")
    if method == "CONNECT":
        address = urlsplit(f"//{target}")
        if not address.hostname or not address.port or address.path:
            raise ValueError("CONNECT needs a host and a port")
        return _Request(address.hostname, address.port, None)
    url = urlsplit(target)
    if url.scheme != "http" or not url.hostname:
        raise ValueError("not the URL of a plain HTTP request")
    names = [line.partition(":")[0].strip().lower() for line in lines]
    kept = [line for name, line in zip(names, lines, strict=True) if name not in _HOP_HEADERS]
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    host = url.netloc.rpartition("@")[2]
    # After the first response the server closes the connection: a second request could be
    # meant for another host.
    headers = [f"{method} {path} {version}", f"Host: {host}", *kept, "Connection: close", "", ""]
    return _Request(url.hostname, url.port or 80, "\r\n".join(headers).encode("latin-1"))


async def _answer(writer: asyncio.StreamWriter, status: str, text: str) -> None:
    body = f"segue: {text}\n".encode("utf-8", "replace")
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
    await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction of a connection until it ends."""
    with suppress(ConnectionError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    if writer.can_write_eof():
        with suppress(OSError):
            writer.write_eof()
