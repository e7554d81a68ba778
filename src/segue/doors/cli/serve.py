"""`segue serve`: sessions over HTTP."""

from __future__ import annotations

import click

from ...hub import Hub
from ...model.principal import Principal
from .main import Where, located


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
    """Serve the sessions API over HTTP, for the official `anthropic` clients.

    The first start makes a key for the workspace `local`, keeps it in the data directory,
    readable by you alone, and shows it. `segue keys create` makes further ones.

    Example: segue serve --port 8787
    """
    from ..rest import logs, serve

    logs.start(log_level)

    sock = serve.listen(host, port)

    async def run(hub: Hub, _: Principal) -> None:
        path, secret = await serve.first_key(hub)
        url = serve.address(sock)

        def ready() -> None:
            click.echo(f"Serving on {url}")
            if secret is None:
                click.echo(f"The key of workspace {serve.WORKSPACE!r} is in {path}")
            else:
                click.echo(f"Key of workspace {serve.WORKSPACE!r}: {secret}")
                click.echo(f"It is kept in {path}")
            click.echo(_tries(url, str(path)))

        await serve.serve(hub, sock, hosts=(host, *hosts), rate_limit=rate_limit, ready=ready)

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
