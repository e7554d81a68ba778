"""Use an ACP agent that another machine serves over HTTP or WebSocket."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urlsplit

from .refusal import TOKEN_VARIABLE
from .rpc import Reader, Writer

SCHEMES = ("acp+ws", "acp+wss", "acp+http", "acp+https")
HEADERS_VARIABLE = "SEGUE_ACP_HEADERS"


class RemoteStream(Reader, Writer, Protocol):
    """Reads and writes messages as lines, over a network."""

    async def close(self) -> None: ...

    @property
    def failure(self) -> str | None:
        """Why the connection has ended, if that is known."""
        ...


def is_remote(address: str) -> bool:
    """Return whether an address is the URL of an agent elsewhere."""
    return address.partition("://")[0] in SCHEMES


def check_url(url: str) -> None:
    """Raise ValueError if a URL cannot be that of an agent elsewhere."""
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"a URL must not contain a key; set {TOKEN_VARIABLE} instead")
    if not parts.hostname:
        raise ValueError(f"{url!r} names no host; use a URL such as acp+ws://host:8787/acp")


def request_headers(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that authenticate this client.

    SEGUE_ACP_TOKEN is sent as a Bearer token. SEGUE_ACP_HEADERS has lines of the form
    `Name: value`, for servers that want another header. Raises ValueError if a line has no colon.
    """
    headers = {}
    if token := environment.get(TOKEN_VARIABLE):
        headers["Authorization"] = f"Bearer {token}"
    for line in environment.get(HEADERS_VARIABLE, "").splitlines():
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or not name.strip():
            raise ValueError(f"{HEADERS_VARIABLE} needs lines of the form `Name: value`")
        headers[name.strip()] = value.strip()
    return headers


class RemoteAgent:
    """A connection to an agent elsewhere, in place of a child process."""

    def __init__(self, stream: RemoteStream) -> None:
        self.stream = stream

    @classmethod
    async def connect(cls, url: str) -> RemoteAgent:
        """Connect to an agent. Raises OSError if it cannot be reached or refuses the client."""
        try:
            check_url(url)
            headers = request_headers(os.environ)
        except ValueError as error:
            raise OSError(0, str(error), url) from None
        address = url.removeprefix("acp+")
        if address.startswith("ws"):
            from .websocket_stream import WebSocketStream

            return cls(await WebSocketStream.connect(address, headers))
        from .http_stream import HttpStream

        return cls(HttpStream(address, headers))

    async def exit_reason(self) -> str:
        """Return why the connection has ended."""
        return self.stream.failure or "the connection was closed"

    async def end(self, timeout: float = 0.0) -> None:
        """Close the connection. The agent and its turns continue elsewhere."""
        await self.stream.close()
