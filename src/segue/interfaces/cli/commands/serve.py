"""The `segue serve` and `segue open` commands."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from segue.hub import Hub
from segue.interfaces.cli import server_lookup
from segue.interfaces.cli.target import Target, target_options
from segue.model.errors import InvalidInput, NotFound
from segue.model.principal import Principal

DEFAULT_PORT = 8787
MAX_PHONE_URL_CHARACTERS = 300
PORT_TYPE = click.IntRange(0, 65535)

# Returns the examples to print below the server's URL, from the URL and the path of the key.
Examples = Callable[[str, Path], str]


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=PORT_TYPE,
    default=DEFAULT_PORT,
    show_default=True,
    help="The port; 0 takes a free one.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    help="Another host name to serve, such as a proxy's. Repeat for more.",
)
@click.option(
    "--rate-limit",
    type=click.IntRange(min=0),
    default=0,
    help="Requests a minute that each key may send.  [default: no limit]",
)
@click.option(
    "--max-connections",
    type=click.IntRange(min=0),
    default=0,
    help="Connections that each process accepts.  [default: as many as its open files allow]",
)
@click.option(
    "--quota",
    "quotas",
    multiple=True,
    envvar="SEGUE_QUOTAS",
    metavar="NAME=LIMIT",
    help="A limit for every workspace, such as sessions=10000 or bytes=10GB. Repeat for more;"
    " `segue quotas list` names them.  [default: no limits]",
)
@click.option(
    "--private-webhooks/--no-private-webhooks",
    default=None,
    help="Whether webhooks may be at addresses of this machine and of private networks."
    "  [default: only if the server itself listens on a loopback address]",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
    help="What to log on standard error, as lines of JSON; `info` logs every request.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="The number of processes.",
)
@click.option(
    "--grace",
    "grace_seconds",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="Seconds that running turns may still take when the server is stopped.",
)
@target_options
def serve_command(target: Target, **options: Any) -> None:
    """Serve sessions over HTTP: the session browser, and an API for the `anthropic` clients.

    The first start creates an API key for the workspace, stores it in the data directory, readable
    only by you, and prints it to a terminal. `segue keys create` creates more. The link that a
    terminal shows signs a browser in once; `segue open` makes another. /healthz, /readyz and
    /metrics need no key.

    Example: segue serve --port 8787 --workers 2
    """
    serve(target, **options)


@click.command("open")
@click.option("--no-browser", is_flag=True, help="Print the link instead of opening it.")
@click.option(
    "--port",
    type=PORT_TYPE,
    help="The port of the server to open, if several are running, or of the one to start."
    "  [default: 8787, or a free one]",
)
@click.option(
    "--phone",
    "phone_url",
    is_flag=False,
    flag_value="",
    metavar="URL",
    help="Show the link as a QR code for a phone. URL is where the phone reaches the server,"
    " such as its HTTPS proxy.  [default: where the server listens]",
)
@target_options
def open_command(target: Target, no_browser: bool, port: int | None, phone_url: str | None) -> None:
    """Open the session browser, signed in.

    Uses the running server of this data directory; of several, the one at --port or the first. If
    there is none, starts one that runs until Ctrl-C. The link works once, within an hour.

    Example: segue open
    """
    if phone_url is not None:
        _show_phone_link(target, phone_url, port)
        return
    link = target.run(lambda hub, principal: _link_to_running_server(hub, principal, port))
    if link is None:
        click.echo("No server is running yet: starting one. Press Ctrl-C to stop it.", err=True)
        serve(target, port=port, open_browser=not no_browser, always_show_link=no_browser)
    else:
        server_lookup.open_link(link, browser=not no_browser)


def _show_phone_link(target: Target, phone_url: str, port: int | None) -> None:
    """Print a login link and its QR code. Raises InvalidInput if a phone cannot use it."""
    from segue.interfaces.cli.output import qr_code

    async def make_link(hub: Hub, principal: Principal) -> str:
        server_url = await server_lookup.find_server(hub, port)
        if server_url is None:
            raise NotFound("no server is running; start one with `segue serve`")
        url = phone_address(phone_url.rstrip("/"), server_url)
        return await server_lookup.login_link(hub, principal, url)

    link = target.run(make_link)
    click.echo(qr_code.show(link))
    click.echo(link)
    click.echo("The link works once, within an hour. It signs the phone in as you.", err=True)
    if link.startswith("http://"):
        click.echo("Without HTTPS, others in the network can read it and every page.", err=True)


def phone_address(phone_url: str, server_url: str) -> str:
    """Return the URL at which a phone reaches the server: the one that the user passed, if any.

    Raises InvalidInput if it is not a server's URL, or one that no phone can reach.
    """
    from segue.http.hosts import is_loopback

    url = phone_url or server_url
    try:
        parts = urlsplit(url)
        port, host = parts.port or urlsplit(server_url).port, parts.hostname or ""
    except ValueError:  # such as http://[x, or a port above 65535
        parts, port, host = urlsplit(""), None, ""
    if len(url) > MAX_PHONE_URL_CHARACTERS:  # more do not fit into a QR code that can be read
        raise InvalidInput("the address of the server is too long for a QR code")
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise InvalidInput(f"{phone_url!r} is not a URL such as https://segue.example.com")
    if host in ("0.0.0.0", "::"):
        raise InvalidInput(
            "the server listens on all addresses of this computer; name one that the phone"
            f" reaches, such as `segue open --phone http://192.168.1.2:{port}`"
        )
    if is_loopback(host):
        raise InvalidInput(
            f"a phone cannot reach {url}: this address is of this computer alone. Put an HTTPS"
            " proxy in front of it, as docs/web.md shows under 'On a phone', and run `segue"
            " open --phone https://NAME`. A server that listens beyond loopback (`segue serve"
            " --host ADDRESS`) is reached by everyone in the network, who can read what it"
            " sends without HTTPS"
        )
    return url


async def _link_to_running_server(hub: Hub, principal: Principal, port: int | None) -> str | None:
    url = await server_lookup.find_server(hub, port)
    return None if url is None else await server_lookup.login_link(hub, principal, local_url(url))


def serve(
    target: Target,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    hosts: tuple[str, ...] = (),
    rate_limit: int = 0,
    max_connections: int = 0,
    quotas: tuple[str, ...] = (),
    private_webhooks: bool | None = None,
    log_level: str = "warning",
    workers: int = 1,
    grace_seconds: float = 10.0,
    open_browser: bool = False,
    always_show_link: bool = False,
    always_show_key: bool = False,
    examples: Examples | None = None,
) -> None:
    """Serve until a signal. Without a port, uses the default port, or a free one if it is in use.

    Prints the key only when it is new, or with `always_show_key`, and only to a terminal, like the
    login link without `always_show_link`: other output may be a log that more people can read than
    the key's file. Raises InvalidInput if sandboxed programs of other callers could see the data
    directory.
    """
    from segue.http import logs
    from segue.hub.access.quotas import parse_limits
    from segue.hub.workdir.isolation import check_isolation
    from segue.server.key_file import ensure_key
    from segue.server.settings import ServerSettings
    from segue.server.sockets import base_url, is_loopback, listen, listen_on_default
    from segue.server.start import run_server

    check_isolation(target.directory)
    limits = parse_limits(quotas)
    logs.configure(log_level)
    sock = listen_on_default(host, DEFAULT_PORT) if port is None else listen(host, port)
    if target.sources is None and not is_loopback(sock):
        target.sources = "none"  # other machines see this user's files only if --sources says so
    listening, url = base_url(sock), local_url(base_url(sock))
    settings = ServerSettings(
        directory=target.directory,
        database_url=target.database_url,
        sources=target.sources,
        hosts=(host, *hosts),
        rate_limit=rate_limit,
        max_connections=max_connections,
        quotas=limits,
        private_webhooks=is_loopback(sock) if private_webhooks is None else private_webhooks,
        log_level=log_level,
        grace_seconds=grace_seconds,
    )

    show_secrets = sys.stdout.isatty()
    show_link = show_secrets or always_show_link

    async def prepare(hub: Hub, principal: Principal) -> tuple[Path, str | None, str | None]:
        path, key = await ensure_key(hub, principal.workspace)
        needs_link = show_link or open_browser
        link = await server_lookup.login_link(hub, principal, url) if needs_link else None
        return path, key, link

    key_path, new_key, link = target.run(prepare)

    def print_ready() -> None:
        workspace = target.principal.workspace
        click.echo(f"Serving on {listening}")
        if not is_loopback(sock):
            click.echo(network_notes(host, hosts))
        if show_secrets and (always_show_key or new_key is not None):
            key = new_key or key_path.read_text().strip()
            click.echo(f"API key of workspace {workspace!r}: {key}")
            click.echo(f"It is stored in {key_path}")
        else:
            click.echo(f"The API key of workspace {workspace!r} is in {key_path}")
        if show_link:
            click.echo(f"Open in a browser (works once): {link}")
        else:
            command = _command_line("open", target)
            click.echo(f"Open in a browser: run {command}, or add --no-browser for a login link")
        click.echo(examples(url, key_path) if examples else _examples(url, key_path, target))
        if open_browser and link is not None:
            server_lookup.open_link(link)

    with server_lookup.registered(target.directory, listening):
        run_server(settings, sock, workers=workers, ready=print_ready)


def local_url(url: str) -> str:
    """Return the URL at which this computer reaches a server; no program can open 0.0.0.0."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def network_notes(host: str, hosts: tuple[str, ...]) -> str:
    """Return what a user should know whose server other machines reach."""
    from segue.http.hosts import LOOPBACK_HOSTS

    is_wildcard = host in ("0.0.0.0", "::")
    served = [*LOOPBACK_HOSTS, *([] if is_wildcard else [host]), *hosts]
    return (
        f"It answers requests to the hosts {', '.join(served)}; start it with --allow-host NAME"
        " for each other name or address that clients use.\n"
        "This is plain HTTP: others in the network can read keys and messages. Put a proxy with"
        " TLS in front of it."
    )


def program_name() -> str:
    """Return how to call this program from any directory."""
    path = os.path.abspath(sys.argv[0])
    if os.path.basename(path) != "segue" or shutil.which("segue") == path:
        return "segue"
    return shlex.quote(path)


def _command_line(verb: str, target: Target) -> str:
    return " ".join(filter(None, [program_name(), verb, target.command_options(in_shell=True)]))


def _examples(url: str, key_path: Path, target: Target) -> str:
    new = _command_line("new", target)
    key = f"$(cat {shlex.quote(str(key_path))})"
    where = "in another terminal"
    if target.has_secret_url:
        where += " that has SEGUE_DATABASE_URL, the URL with its password"
    code = "[print(session.id, session.title) for session in Anthropic().beta.sessions.list()]"
    return f"""
Three things to try, {where}:

  {new} --title "My first session"

  curl -s {url}/v1/sessions -H "x-api-key: {key}" \\
    -H "anthropic-version: 2023-06-01" -H "anthropic-beta: managed-agents-2026-04-01"

  # after: pip install anthropic
  ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY="{key}" \\
    python -c 'from anthropic import Anthropic; {code}'
"""
