"""`segue serve` and `segue open`: sessions over HTTP, for programs and in a browser."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from segue.hub import Hub
from segue.interfaces.cli import server_lookup
from segue.interfaces.cli.main import Where, located
from segue.model.principal import Principal

PORT = 8787
PORTS = click.IntRange(0, 65535)

# What to print beneath the address: three things to try, with a URL and the file of the key.
Tries = Callable[[str, Path], str]


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=PORTS, default=PORT, show_default=True, help="The port; 0 takes a free one."
)
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
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes that serve together, on the embedded store or PostgreSQL.",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="Seconds that turns under way may still take when the server is stopped.",
)
@located
def serve_command(where: Where, **options: Any) -> None:
    """Serve sessions over HTTP: pages for a browser, and the API of the `anthropic` clients.

    The first start makes a key for the workspace, keeps it in the data directory, readable by
    you alone, and shows it. `segue keys create` makes further ones. A browser comes in by the
    link that is shown, once; `segue open` makes another. /healthz, /readyz and /metrics need no
    key.

    Example: segue serve --port 8787 --workers 2
    """
    serve(where, **options)


@click.command("open")
@click.option("--no-browser", is_flag=True, help="Print the link instead of opening it.")
@click.option(
    "--port", type=PORTS, help="If nothing is served yet.  [default: 8787, or a free one]"
)
@located
def open_command(where: Where, no_browser: bool, port: int | None) -> None:
    """Open the session browser, signed in.

    A server of this data directory that is running is used; else one is started here, and lasts
    until Ctrl-C. The link works once, within the hour.

    Example: segue open
    """
    url = server_lookup.running(where.directory)
    if url is None:
        click.echo("Nothing is served yet, so this becomes the server; Ctrl-C ends it.", err=True)
        serve(where, port=free(port), show=not no_browser)
    else:
        link = where.run(lambda hub, principal: server_lookup.link(hub, principal, url))
        server_lookup.show(link, not no_browser)


def free(port: int | None) -> int:
    """The port that was asked for, or the usual one if nobody has it."""
    import socket

    if port is not None:
        return port
    with socket.socket() as sock:
        return 0 if sock.connect_ex(("127.0.0.1", PORT)) == 0 else PORT


def serve(
    where: Where,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    hosts: tuple[str, ...] = (),
    rate_limit: int = 0,
    log_level: str = "warning",
    workers: int = 1,
    grace: float = 10.0,
    show: bool = False,
    reveal: bool = False,
    tries: Tries | None = None,
) -> None:
    """Serve until a signal says to stop. `show` opens a browser, `reveal` always prints the key."""
    from segue.http import logs
    from segue.server import serve
    from segue.server.workers import supervise

    logs.start(log_level)
    sock = serve.listen(host, port)
    if where.sources is None and not serve.is_loopback(sock):
        where.sources = "none"  # this user's own files are for others only when that is asked for
    url = serve.address(sock)
    serving = serve.Serving(
        directory=where.directory,
        database_url=where.database_url,
        sources=where.sources,
        hosts=(host, *hosts),
        rate_limit=-(-rate_limit // workers),  # each worker counts by itself
        log_level=log_level,
        grace=grace,
    )

    async def prepare(hub: Hub, principal: Principal) -> tuple[Path, str | None, str]:
        path, secret = await serve.first_key(hub, principal.workspace)
        return path, secret, await server_lookup.link(hub, principal, url)

    path, secret, link = where.run(prepare)

    def ready() -> None:
        workspace = where.principal.workspace
        click.echo(f"Serving on {url}")
        if secret is None and not reveal:
            click.echo(f"The key of workspace {workspace!r} is in {path}")
        else:
            told = secret or path.read_text().strip()
            click.echo(f"Key of workspace {workspace!r}: {told}")
            click.echo(f"It is kept in {path}")
        click.echo(f"In a browser, once: {link}")
        click.echo(tries(url, path) if tries else _tries(url, path, where))
        if show:
            server_lookup.show(link)

    with server_lookup.told(where.directory, url):
        if workers == 1:
            serve.run(serve.serve(serving, sock, mount=server_lookup.beside, ready=ready))
        else:
            supervise(serving, sock, workers, mount=server_lookup.beside, ready=ready)


def called() -> str:
    """How whoever started this calls it from any directory."""
    given = os.path.abspath(sys.argv[0])
    if os.path.basename(given) != "segue" or shutil.which("segue") == given:
        return "segue"
    return shlex.quote(given)


def _tries(url: str, key: Path, where: Where) -> str:
    new = " ".join(filter(None, [called(), "new", where.options()]))
    return f"""
Three things to try:

  {new} --title "Seen through every door"

  curl -s {url}/v1/sessions -H "x-api-key: $(cat '{key}')" \\
    -H "anthropic-version: 2023-06-01" -H "anthropic-beta: managed-agents-2026-04-01"

  ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY="$(cat '{key}')" python -c '
  from anthropic import Anthropic
  for session in Anthropic().beta.sessions.list():
      print(session.id, session.title)'
"""
