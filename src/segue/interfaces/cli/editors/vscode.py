"""Connect VS Code: `segue vscode`."""

from __future__ import annotations

import difflib
import json
import os
import re
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
    path = path.resolve()  # it may be a link to a file in another directory
    try:
        before = path.read_bytes().decode() if path.exists() else ""
        after = merged_settings(before, setting)
    except ValueError as error:
        raise InvalidInput(
            f"{path} is not a settings file of VS Code ({error}), so segue does not change it;"
            " add the setting that `segue vscode` prints yourself"
        ) from None
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
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "w", encoding="utf-8", newline="") as file:
        file.write(after)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    click.echo(f"Wrote {path}. Reload the window of VS Code.")


def merged_settings(text: str, setting: dict[str, Any]) -> str:
    """Return the text of a settings file with the setting, and with everything else as it was.

    Another server of the same name is replaced. Raises ValueError if the text is not JSON with
    comments, as VS Code reads it.
    """
    if not text.strip("\ufeff \t\r\n"):
        text = "{\n}\n"
    values, spans, end = _members(_without_comments(text))
    hosts = values.get(HOSTS, [])
    if not isinstance(hosts, list):
        raise ValueError(f"{HOSTS} is not a list")
    others = [host for host in hosts if not isinstance(host, dict) or host.get("name") != HOST_NAME]
    first_line = _FIRST_INDENT.search(text)
    indent = first_line[1] if first_line else "    "
    edits: list[tuple[int, int, str]] = []
    added = ""
    for name, value in {**setting, HOSTS: [*others, *setting[HOSTS]]}.items():
        written = json.dumps(value, indent=indent, ensure_ascii=False).replace("\n", f"\n{indent}")
        if name in spans:
            edits.append((*spans[name], written))
        else:
            added += f"{',' if values or added else ''}\n{indent}{json.dumps(name)}: {written}"
    if added:
        edits.append((end, end, added))
    newline = "\r\n" if "\r\n" in text else "\n"
    for start, stop, written in sorted(edits, reverse=True):
        text = text[:start] + written.replace("\n", newline) + text[stop:]
    return text


_FIRST_INDENT = re.compile(r"\n([ \t]+)\S")
_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STRING_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)
_SPACE = re.compile(r"\s*")


def _without_comments(text: str) -> str:
    """Return JSON of the same length, with spaces for comments and for commas before an end."""

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)

    return _STRING_OR_COMMA.sub(blank, _STRING_OR_COMMENT.sub(blank, text)).replace("\ufeff", " ")


def _members(text: str) -> tuple[dict[str, Any], dict[str, tuple[int, int]], int]:
    """Return the members of a JSON object, where the value of each is, and where the last ends."""
    if not isinstance(json.loads(text, strict=False), dict):
        raise ValueError("it is not a JSON object")
    decoder = json.JSONDecoder(strict=False)

    def after_space(position: int) -> int:
        match = _SPACE.match(text, position)
        assert match is not None
        return match.end()

    values, spans = {}, {}
    end = after_space(0) + 1  # of the opening brace, then of the last value
    position = after_space(end)
    while text[position] != "}":
        name, position = decoder.raw_decode(text, position)
        start = after_space(after_space(position) + 1)
        values[name], end = decoder.raw_decode(text, start)
        spans[name] = (start, end)
        position = after_space(end)
        if text[position] == ",":
            position = after_space(position + 1)
    return values, spans, end
