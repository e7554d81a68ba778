"""The commands on API keys."""

from __future__ import annotations

import click

from segue.hub import Hub
from segue.interfaces.cli.durations import Lasting
from segue.interfaces.cli.main import Group, Where, located
from segue.interfaces.cli.output.formats import formatted, write_rows, write_value
from segue.interfaces.cli.output.output_fields import key_fields
from segue.interfaces.cli.output.text import one_line
from segue.model import clock
from segue.model.errors import InvalidInput
from segue.model.principal import Principal


@click.group("keys", cls=Group)
def keys_command() -> None:
    """Make, list and revoke API keys. A key opens its own workspace and nothing else.

    Example: segue keys create --workspace team-a
    """


@keys_command.command("create")
@click.option("--name", default="", help="What it is for.")
@click.option(
    "--expires", type=Lasting(), help="How long it is valid: 12h, 30d. Left out, for good."
)
@formatted
@located
def create(where: Where, name: str, expires: int | None, format: str | None) -> None:
    """Print a new key, alone on standard output. It cannot be shown again.

    With --format, it is the field `key` beside those of `segue keys list`.

    Example: segue keys create --workspace team-a --name ci --expires 30d
    """
    if expires == 0:
        raise InvalidInput("--expires: a key that lasts no time opens nothing; give 12h or 30d")
    until = None if expires is None else clock.now() + expires
    made, secret = where.run(
        lambda hub, principal: hub.keys.create(principal.workspace, name, expires_at=until)
    )
    if format is not None:
        write_value(format, {"key": secret, **key_fields(made)})
        return
    click.echo(secret)


@keys_command.command("list")
@formatted
@located
def list_(where: Where, format: str | None) -> None:
    """List a workspace's keys: id, end of the key, day made, name.

    Example: segue keys list
    """
    keys = where.run(lambda hub, principal: hub.keys.list(principal.workspace))
    if format is not None:
        rows = (key_fields(key) for key in keys)
        write_rows(format, ((row, row) for row in rows))
        return
    if not keys:
        click.echo("No keys. `segue keys create` makes one.", err=True)
    for key in keys:
        state = "  revoked" if key.revoked_at is not None else ""
        if not state and key.expires_at is not None:
            ends = "expires" if key.is_valid(clock.now()) else "expired"
            state = f"  {ends} {clock.to_rfc3339(key.expires_at)[:16]}Z"
        made = clock.to_rfc3339(key.created_at)[:10]
        click.echo(f"{key.id}  …{key.hint}  {made}  {one_line(key.name)}{state}")


@keys_command.command("revoke")
@click.argument("key")
@located
def revoke(where: Where, key: str) -> None:
    """Revoke a key, by its id or the beginning of it.

    Example: segue keys revoke 0198c2a4-77b1
    """

    async def do(hub: Hub, principal: Principal) -> None:
        found = await hub.keys.list(principal.workspace)
        wanted = [each.id for each in found if each.id.startswith(key) and not each.revoked_at]
        if len(wanted) != 1:
            many = f"{len(wanted)} valid keys begin" if wanted else "no valid key begins"
            told = f"{many} with {key!r} in workspace {principal.workspace!r}"
            raise InvalidInput(f"{told}; `segue keys list` shows them, --workspace names another")
        await hub.keys.revoke(principal.workspace, wanted[0])

    where.run(do)
