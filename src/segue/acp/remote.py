"""Use an ACP agent that another machine serves over HTTP or WebSocket."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urlsplit

from .refusal import TOKEN_VARIABLE
from .rpc import Reader, Writer

SCHEMES = ("acp+ws", "acp+wss", "acp+http", "acp+https")
HEADERS_VARIABLE = "SEGUE_ACP_HEADERS"
ACCOUNT_VARIABLE = "SEGUE_ACP_ACCOUNT"
FINGERPRINT_ROUNDS = (
    100_000  # of PBKDF2, because a header may have a password that is easy to guess
)


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
    if parts.fragment:
        raise ValueError(f"a URL must not contain '#'; set {ACCOUNT_VARIABLE} to choose an account")
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


def url_of_account(url: str, environment: Mapping[str, str]) -> str:
    """Return the URL with the account of this client at the server as its fragment.

    Sessions are stored with this URL, and continue only for the same account. SEGUE_ACP_ACCOUNT
    names the account. Otherwise it is a fingerprint of the headers that authenticate the client;
    without such headers there is no fragment. Raises ValueError if a variable is invalid.
    """
    if account := environment.get(ACCOUNT_VARIABLE):
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", account):
            raise ValueError(
                f"{ACCOUNT_VARIABLE} is {account!r}; use up to 64 letters, digits, '.', '_' and '-'"
            )
        return f"{url}#{account}"
    headers = request_headers(environment)
    if not headers:
        return url
    lines = sorted(f"{name.lower()}: {value}" for name, value in headers.items())
    secret = "\n".join(lines).encode()
    digest = hashlib.pbkdf2_hmac("sha256", secret, url.encode(), FINGERPRINT_ROUNDS)
    return f"{url}#{digest.hex()[:16]}"


class RemoteAgent:
    """A connection to an agent elsewhere, in place of a child process."""

    def __init__(self, stream: RemoteStream) -> None:
        self.stream = stream

    @classmethod
    async def connect(cls, url: str) -> RemoteAgent:
        """Connect to the agent at a URL with its account, as url_of_account returns it.

        Raises OSError if it cannot be reached, if it refuses the client, or if the key of this
        process belongs to another account.
        """
        server = url.partition("#")[0]
        try:
            check_url(server)
            headers = request_headers(os.environ)
            is_own_account = url_of_account(server, os.environ) == url
        except ValueError as error:
            raise OSError(0, str(error), url) from None
        if not is_own_account:
            raise OSError(
                0,
                f"the session was begun with another key. Set {TOKEN_VARIABLE} to that key, or"
                f" {ACCOUNT_VARIABLE} if it was replaced",
                url,
            )
        address = server.removeprefix("acp+")
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
