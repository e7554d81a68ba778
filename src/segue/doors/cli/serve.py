"""`segue serve` and `segue open`: sessions over HTTP, for programs and in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...hub import Hub
from ...model.principal import Principal
from . import browser
from .main import Where, located

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from ..rest import Door


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8787, show_default=True, help="The port; 0 takes a free one.")
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    help="A further name that requests may be addressed to, as behind a proxy. Repeat for more.",
)
@click.option(
    "--rate-limit",
    type=click.IntRange(min=0),
    default=0,
    help="Requests a minute that each key may send.  [default: any number]",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
    help="What to log on standard error, as lines of JSON; `info` has one for each request.",
)
@located
def serve_command(
    where: Where, host: str, port: int, hosts: tuple[str, ...], rate_limit: int, log_level: str
) -> None:
    """Serve sessions over HTTP: pages for a browser, and the API of the `anthropic` clients.

    The first start makes a key for the workspace `local`, keeps it in the data directory,
    readable by you alone, and shows it. `segue keys create` makes further ones. A browser comes
    in by the link that is shown, once; `segue open` makes another.

    Example: segue serve --port 8787
    """
    _serve(where, host, port, hosts, rate_limit, log_level)


@click.command("open")
@click.option("--no-browser", is_flag=True, help="Print the link instead of opening it.")
@click.option("--port", default=8787, show_default=True, help="The port, if nothing is served yet.")
@located
def open_command(where: Where, no_browser: bool, port: int) -> None:
    """Open the session browser, signed in.

    A server of this data directory that is running is used; else one is started here, and lasts
    until Ctrl-C. The link works once, within the hour.

    Example: segue open
    """
    url = browser.running(where.directory)
    if url is None:
        _serve(where, "127.0.0.1", port, show=not no_browser)
    else:
        link = where.run(lambda hub, principal: browser.link(hub, principal, url))
        browser.show(link, not no_browser)


def _serve(
    where: Where,
    host: str,
    port: int,
    hosts: tuple[str, ...] = (),
    rate_limit: int = 0,
    log_level: str = "warning",
    *,
    show: bool = False,
) -> None:
    from ..rest import logs, serve

    logs.start(log_level)

    sock = serve.listen(host, port)
    served = (host, *hosts)

    async def run(hub: Hub, principal: Principal) -> None:
        path, secret = await serve.first_key(hub)
        url = serve.address(sock)
        link = await browser.link(hub, principal, url)

        def ready() -> None:
            click.echo(f"Serving on {url}")
            if secret is None:
                click.echo(f"The key of workspace {serve.WORKSPACE!r} is in {path}")
            else:
                click.echo(f"Key of workspace {serve.WORKSPACE!r}: {secret}")
                click.echo(f"It is kept in {path}")
            click.echo(f"In a browser, once: {link}")
            click.echo(_tries(url, str(path)))
            if show:
                browser.show(link)

        def mount(door: Door) -> ASGIApp:
            return browser.beside(door, hub, served)

        with browser.told(where.directory, url):
            await serve.serve(
                hub, sock, hosts=served, rate_limit=rate_limit, mount=mount, ready=ready
            )

    where.run(run)


def _tries(url: str, key: str) -> str:
    return f"""
Three things to try:

  segue new --title "Seen through every door"

  curl -s {url}/v1/sessions -H "x-api-key: $(cat '{key}')" \\
    -H "anthropic-version: 2023-06-01" -H "anthropic-beta: managed-agents-2026-04-01"

  ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY="$(cat '{key}')" python -c '
  from anthropic import Anthropic
  for session in Anthropic().beta.sessions.list():
      print(session.id, session.title)'
"""
