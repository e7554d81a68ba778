"""Connect VS Code: `segue vscode`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from segue import jsonc
from segue.hub import tools
from segue.interfaces.cli import server_lookup, settings_file
from segue.interfaces.cli.target import Target, target_options
from segue.model.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.model.principal import Principal

HOST_NAME = "segue"
ENABLED = "chat.remoteAgentHostsEnabled"
HOSTS = "chat.remoteAgentHosts"


@click.command("vscode")
@click.option("--install", is_flag=True, help="Write the setting, after showing the change.")
@click.option("--yes", is_flag=True, help="Write it without asking.")
@click.option(
    "--settings",
    type=click.Path(dir_okay=False, path_type=Path),
    help="VS Code's user settings.  [default: those of this user]",
)
@click.option(
    "--api-key",
    metavar="KEY",
    help="Use this key as the token.  [default: a token of yours, valid for 30 days]",
)
@click.option("--server", metavar="URL", help="The server.  [default: the one that runs]")
@target_options
def vscode_command(
    target: Target,
    install: bool,
    yes: bool,
    settings: Path | None,
    api_key: str | None,
    server: str | None,
) -> None:
    """Show the setting that connects VS Code to `segue serve`. (experimental)

    VS Code then lists every session in its Sessions view, and can open, continue and create them.
    With the default token, its turns have your rights, as those of `segue open` have. With an API
    key they have the rights of the key: a sandbox, and a directory of their own.

    Example: segue vscode --install
    """
    url, token = target.run(
        lambda hub, principal: _address_and_token(hub, principal, api_key, server)
    )
    setting = host_setting(url, token)
    if not install:
        click.echo(json.dumps(setting, indent=2))
    else:
        _install(settings or default_settings_path(), setting, yes=yes)


async def _address_and_token(
    hub: Hub, principal: Principal, api_key: str | None, server: str | None
) -> tuple[str, str]:
    """Return the server's URL and a token for it.

    Raises NotFound if no server runs, and InvalidInput if several do, unless `server` is the URL.
    """
    url = server or await _running_server(hub)
    if api_key is not None:
        await hub.keys.authenticate(api_key)
        return url, api_key
    return url, await hub.logins.use_link(await hub.logins.create_link(principal))


async def _running_server(hub: Hub) -> str:
    urls = [url async for url in server_lookup.running_servers(hub)]
    if not urls:
        raise NotFound(
            "no server is running; start one with `segue serve`, or name its address with --server"
        )
    if len(urls) > 1:
        raise InvalidInput(f"several servers are running; choose one: --server {' or '.join(urls)}")
    return urls[0]


def host_setting(url: str, token: str) -> dict[str, Any]:
    """Return the settings that connect VS Code to a server."""
    parts = urlsplit(url)
    scheme = "wss" if parts.scheme == "https" else "ws"
    host = {
        "name": HOST_NAME,
        "address": f"{scheme}://{parts.netloc}",
        "connectionToken": token,
    }
    return {ENABLED: True, HOSTS: [host]}


def default_settings_path() -> Path:
    """Return the file of VS Code's user settings."""
    config = tools.mcp_config("vscode")
    assert config is not None
    return Path(config.path).with_name("settings.json")


def _install(path: Path, setting: dict[str, Any], *, yes: bool) -> None:
    """Add the setting to a settings file, after showing the change."""

    def edit(text: str) -> str:
        try:
            return merged_settings(text, setting)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(
                f"{path} is not a settings file of VS Code ({error}), so segue does not change it;"
                " add the setting that `segue vscode` prints yourself"
            ) from None

    if settings_file.change(str(path), edit, yes=yes):
        click.echo(f"Wrote {path}. Reload the window of VS Code.")
    else:
        click.echo(f"{path} has this setting already.", err=True)


def merged_settings(text: str, setting: dict[str, Any]) -> str:
    """Return the text of a settings file with the setting, and with everything else as it was.

    A server of the same name gets the address and the token. Raises ValueError if the text is not
    JSON with comments, as VS Code reads it.
    """
    settings = jsonc.parse(text) or {}
    hosts = settings.get(HOSTS) if isinstance(settings, dict) else None
    text = jsonc.set_value(text, [ENABLED], setting[ENABLED])
    if hosts is None:
        return jsonc.set_value(text, [HOSTS], setting[HOSTS])
    if not isinstance(hosts, list):
        raise ValueError(f"{HOSTS} is not a list")
    (own,) = setting[HOSTS]
    for number, host in enumerate(hosts):
        if isinstance(host, dict) and host.get("name") == HOST_NAME:
            for name, value in own.items():
                text = jsonc.set_value(text, [HOSTS, number, name], value)
            return text
    return jsonc.set_value(text, [HOSTS, len(hosts)], own)
