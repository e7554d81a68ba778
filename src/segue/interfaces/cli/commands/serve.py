"""The `segue serve` and `segue open` commands."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import click

from segue.hub import Hub
from segue.interfaces.cli import server_lookup
from segue.interfaces.cli.target import Target, target_options
from segue.model.errors import InvalidInput, NotFound
from segue.model.principal import Principal

if TYPE_CHECKING:
    from segue.server.settings import ServerSettings

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
    serve(target, ServeOptions(**options))


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
        options = ServeOptions(port=port, open_browser=not no_browser, always_show_link=no_browser)
        serve(target, options)
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


class ServeOptions(NamedTuple):
    """What a server listens on, its limits, and what it prints when it is ready.

    Without a port, the server uses the default port, or a free one if it is in use.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    hosts: tuple[str, ...] = ()
    rate_limit: int = 0
    max_connections: int = 0
    quotas: tuple[str, ...] = ()
    private_webhooks: bool | None = None
    log_level: str = "warning"
    workers: int = 1
    grace_seconds: float = 10.0
    open_browser: bool = False
    always_show_link: bool = False
    always_show_key: bool = False
    examples: Examples | None = None


class _Login(NamedTuple):
    """The file of the workspace's key, the key if it is new, and a login link if one is needed."""

    key_path: Path
    new_key: str | None
    link: str | None


def serve(target: Target, options: ServeOptions) -> None:
    """Serve until a signal.

    Prints the key only when it is new, or with `always_show_key`, and only to a terminal, like the
    login link without `always_show_link`: other output may be a log that more people can read than
    the key's file. Raises InvalidInput if sandboxed programs of other callers could see the data
    directory, or if SEGUE_SECRET_KEY is not a key.
    """
    from segue.http import logs
    from segue.hub.access.quotas import parse_limits
    from segue.hub.workdir.isolation import check_isolation
    from segue.server.key_file import ensure_key
    from segue.server.sockets import base_url, is_loopback, listen, listen_on_default
    from segue.server.start import run_server

    check_isolation(target.directory)
    limits = parse_limits(options.quotas)
    logs.configure(options.log_level)
    host, port = options.host, options.port
    sock = listen_on_default(host, DEFAULT_PORT) if port is None else listen(host, port)
    is_local = is_loopback(sock)
    if target.sources is None and not is_local:
        target.sources = "none"  # other machines see this user's files only if --sources says so
    listening = base_url(sock)
    needs_link = sys.stdout.isatty() or options.always_show_link or options.open_browser

    async def prepare(hub: Hub, principal: Principal) -> _Login:
        hub.secrets.check_variable()
        path, key = await ensure_key(hub, principal.workspace)
        url = local_url(listening)
        link = await server_lookup.login_link(hub, principal, url) if needs_link else None
        return _Login(path, key, link)

    login = target.run(prepare)

    def print_ready() -> None:
        click.echo(f"Serving on {listening}")
        if not is_local:
            click.echo(network_notes(host, options.hosts))
        _print_login(target, options, login, local_url(listening))
        if options.open_browser and login.link is not None:
            server_lookup.open_link(login.link)

    settings = _server_settings(target, options, limits, is_local=is_local)
    with server_lookup.registered(target.directory, listening):
        run_server(settings, sock, workers=options.workers, ready=print_ready)


def _server_settings(
    target: Target, options: ServeOptions, limits: dict[str, int], *, is_local: bool
) -> ServerSettings:
    from segue.server.settings import ServerSettings

    private_webhooks = options.private_webhooks
    return ServerSettings(
        directory=target.directory,
        database_url=target.database_url,
        sources=target.sources,
        hosts=(options.host, *options.hosts),
        rate_limit=options.rate_limit,
        max_connections=options.max_connections,
        quotas=limits,
        private_webhooks=is_local if private_webhooks is None else private_webhooks,
        log_level=options.log_level,
        grace_seconds=options.grace_seconds,
    )


def _print_login(target: Target, options: ServeOptions, login: _Login, url: str) -> None:
    """Print how to sign in, and examples."""
    workspace = target.principal.workspace
    shows_secrets = sys.stdout.isatty()
    if shows_secrets and (options.always_show_key or login.new_key is not None):
        key = login.new_key or login.key_path.read_text().strip()
        click.echo(f"API key of workspace {workspace!r}: {key}")
        click.echo(f"It is stored in {login.key_path}")
    else:
        click.echo(f"The API key of workspace {workspace!r} is in {login.key_path}")
    if shows_secrets or options.always_show_link:
        click.echo(f"Open in a browser (works once): {login.link}")
    else:
        command = _command_line("open", target)
        click.echo(f"Open in a browser: run {command}, or add --no-browser for a login link")
    if options.examples is None:
        click.echo(_examples(url, login.key_path, target))
    else:
        click.echo(options.examples(url, login.key_path))


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
