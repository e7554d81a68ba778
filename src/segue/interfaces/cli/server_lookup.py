"""Find the running server of a data directory, and open the session browser."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import click

from segue.hub import Hub
from segue.hub.access import server_proof
from segue.model.errors import InvalidInput
from segue.model.principal import Principal

# How long to wait for a proof. A server that has just started, or runs on a busy machine, is slow.
# If the process of a server has ended, another program has its port, if any.
LIVE_SERVER_SECONDS = 60.0
DEAD_SERVER_SECONDS = 2.0
_MAX_PROOF_BYTES = 1024


async def login_link(hub: Hub, principal: Principal, url: str) -> str:
    """Return a link that signs one browser in, once."""
    return f"{url}/login?token={await hub.logins.create_link(principal)}"


def open_link(link: str, *, browser: bool = True) -> None:
    """Open a link in the browser, or print it if `browser` is not set or none can be opened.

    A link that the user did not ask to see is printed to a terminal only, never into a log.
    """
    import webbrowser

    if not browser:
        click.echo(link)
    elif not webbrowser.open(link):
        if sys.stdout.isatty():
            click.echo(link)
        else:
            click.echo("No browser can be opened; `segue open --no-browser` prints a login link.")


@contextmanager
def registered(directory: Path, url: str) -> Iterator[None]:
    """Let `find_server` find a server of this process until the block ends."""
    path = directory / f"server.{os.getpid()}.json"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({"url": url}, file)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


async def find_server(hub: Hub, port: int | None = None) -> str | None:
    """Return the URL of the running server, or None.

    Of several, this is the one at `port`. Without a port it is the first, and this prints which.
    Raises InvalidInput if servers run, but none at the port.
    """
    if port is not None and (at_port := [url async for url in running_servers(hub, port)]):
        return at_port[0]
    urls = [url async for url in running_servers(hub)]
    if urls and port is not None:
        raise InvalidInput(
            f"no server of this store listens on port {port}; running: {', '.join(urls)}"
        )
    if len(urls) > 1:
        others = ", ".join(urls[1:])
        click.echo(f"Using {urls[0]}. Also running: {others}; --port chooses one.", err=True)
    return urls[0] if urls else None


async def running_servers(hub: Hub, port: int | None = None) -> AsyncGenerator[str]:
    """Yield the URLs of the servers that have proved that they serve this hub's store.

    With a port, servers at other ports are not asked.

    The files in the data directory may be of servers that were killed, and another program may
    listen on their ports now. Once a server is found, nothing waits long for a slow one.
    """
    from http.client import HTTPException

    is_first = True
    for path in sorted(hub.data_dir.glob("server.*.json")):
        proved = False
        # Skips servers that were killed or do not answer, other programs on their ports, and files
        # that are being written.
        with suppress(OSError, HTTPException, ValueError, KeyError, TypeError):
            url = str(json.loads(path.read_text())["url"])
            if port not in (None, urlsplit(url).port):
                continue
            is_live = _is_running(int(path.name.split(".")[1]))
            seconds = LIVE_SERVER_SECONDS if is_live and is_first else DEAD_SERVER_SECONDS
            proved = await _serves_store(hub, url, seconds)
        if proved:
            is_first = False
            yield url


def _is_running(process_id: int) -> bool:
    try:
        with suppress(PermissionError):  # a process of another user
            os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


async def _serves_store(hub: Hub, url: str, seconds: float) -> bool:
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.port is None:
        return False
    nonce = server_proof.new_nonce()
    answer = await asyncio.to_thread(_get, f"{url}{server_proof.PATH}?nonce={nonce}", seconds)
    expected = await server_proof.server_proof(hub.store, nonce, parts.port)
    return hmac.compare_digest(answer, expected.encode())


def _get(url: str, seconds: float) -> bytes:
    from urllib.request import ProxyHandler, build_opener

    with build_opener(ProxyHandler({})).open(url, timeout=seconds) as response:
        return bytes(response.read(_MAX_PROOF_BYTES))
