"""Manage API keys: `segue keys`."""

from __future__ import annotations

import click

from segue.hub import Hub
from segue.interfaces.cli.durations import DurationType
from segue.interfaces.cli.group import Group
from segue.interfaces.cli.output.formats import format_option, write_rows, write_value
from segue.interfaces.cli.output.output_fields import key_fields
from segue.interfaces.cli.output.text import one_line
from segue.interfaces.cli.target import Target, target_options
from segue.model import clock
from segue.model.errors import InvalidInput
from segue.model.principal import LOCAL, ApiKey, Principal


@click.group("keys", cls=Group)
def keys_command() -> None:
    """Create, list and revoke API keys. A key gives access to one workspace.

    Example: segue keys create --workspace team-a
    """


@keys_command.command("create")
@click.option("--name", default="", help="What the key is for.")
@click.option(
    "--expires", type=DurationType(), help="How long it is valid: 12h, 30d.  [default: forever]"
)
@format_option
@target_options
def create(target: Target, name: str, expires: int | None, format: str | None) -> None:
    """Create a key and print it; it cannot be shown again.

    With --format, the key is the field `key`, together with the fields of `segue keys list`.

    Example: segue keys create --workspace team-a --name ci --expires 30d
    """
    if expires == 0:
        raise InvalidInput("--expires 0 would create an expired key; use 12h or 30d")
    expires_at = None if expires is None else clock.now() + expires

    async def create_key(hub: Hub, principal: Principal) -> tuple[bool, ApiKey, str]:
        others = await hub.keys.list(principal.workspace)
        key = await hub.keys.create(principal.workspace, name, expires_at=expires_at)
        return not others, *key

    is_first, key, secret = target.run(create_key)
    workspace = target.principal.workspace
    if is_first and workspace != LOCAL.workspace:  # the name may be misspelled
        click.echo(f"This is the first key of workspace {workspace!r}.", err=True)
    if format is not None:
        write_value(format, {"key": secret, **key_fields(key)})
        return
    click.echo(secret)


@keys_command.command("list")
@format_option
@target_options
def list_(target: Target, format: str | None) -> None:
    """List a workspace's keys: id, end of the key, creation date, name.

    Example: segue keys list
    """
    keys = target.run(lambda hub, principal: hub.keys.list(principal.workspace))
    if format is not None:
        rows = (key_fields(key) for key in keys)
        write_rows(format, ((row, row) for row in rows))
        return
    if not keys:
        click.echo("No keys. Create one with `segue keys create`.", err=True)
    for key in keys:
        state = "  revoked" if key.revoked_at is not None else ""
        if not state and key.expires_at is not None:
            verb = "expires" if key.is_valid(clock.now()) else "expired"
            state = f"  {verb} {clock.to_rfc3339(key.expires_at)[:16]}Z"
        created = clock.to_rfc3339(key.created_at)[:10]
        click.echo(f"{key.id}  …{key.hint}  {created}  {one_line(key.name)}{state}")


@keys_command.command("revoke")
@click.argument("key")
@target_options
def revoke(target: Target, key: str) -> None:
    """Revoke a key by its id or an id prefix.

    Example: segue keys revoke 0198c2a4-77b1
    """

    async def revoke_key(hub: Hub, principal: Principal) -> None:
        keys = await hub.keys.list(principal.workspace)
        matches = [other.id for other in keys if other.id.startswith(key) and not other.revoked_at]
        if len(matches) != 1:
            count = f"{len(matches)} valid keys" if matches else "no valid key"
            raise InvalidInput(
                f"{key!r} matches {count} in workspace {principal.workspace!r}; "
                "`segue keys list` lists them, --workspace selects another workspace"
            )
        await hub.keys.revoke(principal.workspace, matches[0])

    target.run(revoke_key)
