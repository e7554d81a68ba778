"""Connect VS Code: `segue vscode`."""

from __future__ import annotations

import difflib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from segue.interfaces.cli import server_lookup
from segue.interfaces.cli.target import Target, target_options
from segue.model.errors import InvalidInput

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.model.principal import Principal

DEFAULT_URL = "http://127.0.0.1:8787"
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
@target_options
def vscode_command(
    target: Target, install: bool, yes: bool, settings: Path | None, api_key: str | None
) -> None:
    """Show the setting that connects VS Code to `segue serve`. (experimental)

    VS Code then lists every session in its Sessions view, and can open, continue and create them.
    With the default token, its turns have your rights, as those of `segue open` have. With an API
    key they have the rights of the key: a sandbox, and a directory of their own.

    Example: segue vscode --install
    """
    url, token = target.run(lambda hub, principal: _address_and_token(hub, principal, api_key))
    setting = host_setting(url or DEFAULT_URL, token)
    if not install:
        click.echo(json.dumps(setting, indent=2))
    else:
        _install(settings or default_settings_path(), setting, yes=yes)
    if url is None:
        click.echo("No server is running yet. Start one with `segue serve`.", err=True)


async def _address_and_token(
    hub: Hub, principal: Principal, api_key: str | None
) -> tuple[str | None, str]:
    url = await server_lookup.find_server(hub)
    if api_key is not None:
        await hub.keys.authenticate(api_key)
        return url, api_key
    return url, await hub.logins.use_link(await hub.logins.create_link(principal))


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
    if sys.platform == "darwin":
        directory = Path.home() / "Library" / "Application Support"
    else:
        config = os.environ.get("XDG_CONFIG_HOME", "")
        directory = Path(config) if os.path.isabs(config) else Path.home() / ".config"
    return directory / "Code" / "User" / "settings.json"


def _install(path: Path, setting: dict[str, Any], *, yes: bool) -> None:
    """Add the setting to a settings file, after showing the change."""
    before = path.read_text() if path.exists() else ""
    after = merged_settings(path, before, setting)
    if before == after:
        click.echo(f"{path} has this setting already.")
        return
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(path), str(path), lineterm=""
    )
    click.echo("\n".join(lines))
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidInput("can't ask without a terminal; pass --yes to write the setting")
        click.confirm("Write it?", abort=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(after)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    click.echo(f"Wrote {path}. Reload the window of VS Code.")


def merged_settings(path: Path, text: str, setting: dict[str, Any]) -> str:
    """Return a settings file with the setting; another server of the same name is replaced.

    Raises InvalidInput if the file has comments or is not JSON: it is not changed then.
    """
    try:
        settings = json.loads(text) if text.strip() else {}
    except ValueError:
        raise InvalidInput(
            f"{path} has comments or is not JSON, so segue does not change it; add the setting"
            " that `segue vscode` prints yourself"
        ) from None
    if not isinstance(settings, dict) or not isinstance(settings.get(HOSTS, []), list):
        raise InvalidInput(f"{path} is not a settings file of VS Code")
    others = [
        host
        for host in settings.get(HOSTS, [])
        if not isinstance(host, dict) or host.get("name") != HOST_NAME
    ]
    merged = {**settings, **setting, HOSTS: [*others, *setting[HOSTS]]}
    return json.dumps(merged, indent=4, ensure_ascii=False) + "\n"
