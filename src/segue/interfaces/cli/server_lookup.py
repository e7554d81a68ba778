"""The session browser beside the API, and how `segue open` finds it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from segue.hub import Hub
from segue.model.principal import Principal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from segue.interfaces.rest import RestApp


def beside(rest: RestApp) -> ASGIApp:
    """The API and the session browser as one application, told apart by the address."""
    from segue.interfaces.rest.routes import OPEN
    from segue.interfaces.web import WebApp

    pages = WebApp(rest.hub, rest.hosts, rest.closing)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        api = path.startswith("/v1/") or path in OPEN
        await (rest if api else pages)(scope, receive, send)

    return app


async def link(hub: Hub, principal: Principal, url: str) -> str:
    """An address that signs a browser in, once."""
    return f"{url}/login?token={await hub.visits.invite(principal)}"


def show(link: str, browse: bool = True) -> None:
    """Open a link, or print it where no browser can be opened."""
    import webbrowser

    if not browse or not webbrowser.open(link):
        click.echo(link)


@contextmanager
def told(directory: Path, url: str) -> Iterator[None]:
    """Say, for as long as this lasts, where a server of a data directory is."""
    path = directory / f"server.{os.getpid()}.json"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({"url": url}, file)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def running(directory: Path) -> str | None:
    """The address of a data directory's server, if there is one and it answers."""
    from urllib.request import ProxyHandler, build_opener

    for path in directory.glob("server.*.json"):
        # One that was killed, or is being written, or does not answer, is none.
        with suppress(OSError, ValueError, KeyError):
            url = str(json.loads(path.read_text())["url"])
            with build_opener(ProxyHandler({})).open(f"{url}/healthz", timeout=2):
                return url
    return None
