"""Find the running server of a data directory, and open the session browser."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from segue.hub import Hub
from segue.model.principal import Principal

PROBE_SECONDS = 2.0


async def login_link(hub: Hub, principal: Principal, url: str) -> str:
    """Return a link that signs one browser in, once."""
    return f"{url}/login?token={await hub.logins.create_link(principal)}"


def open_link(link: str, *, browser: bool = True) -> None:
    """Open a link in the browser, or print it if `browser` is not set or none can be opened."""
    import webbrowser

    if not browser or not webbrowser.open(link):
        click.echo(link)


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


def find_server(directory: Path) -> str | None:
    """Return the URL of a data directory's server that answers, or None."""
    from urllib.request import ProxyHandler, build_opener

    for path in directory.glob("server.*.json"):
        # Skips servers that were killed or do not answer, and files that are being written.
        with suppress(OSError, ValueError, KeyError):
            url = str(json.loads(path.read_text())["url"])
            with build_opener(ProxyHandler({})).open(f"{url}/healthz", timeout=PROBE_SECONDS):
                return url
    return None
