"""`segue prune`: retention, tried dry first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from segue.interfaces.cli.main import Where, located
from segue.interfaces.cli.output.formats import formatted, write_rows
from segue.interfaces.cli.output.text import one_line

from .edit import ask, assured

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.hub.sessions.retention import RetentionPolicy, RetentionStep
    from segue.model.principal import Principal

_DONE = {"archive": "archived", "delete": "moved to the trash", "purge": "deleted for good"}


class Days(click.ParamType[int]):
    """A number of days, or `never`, which is 0 here."""

    name = "days"

    def convert(
        self, value: str | int, param: click.Parameter | None, context: click.Context | None
    ) -> int:
        if value == "never":
            return 0
        if isinstance(value, int) or (value.isdecimal() and value.isascii() and int(value) > 0):
            return int(value)
        self.fail(f"{value!r} is no number of days, nor `never`", param, context)


@click.command("prune")
@click.option("--archive-after", type=Days(), help="Archive what was idle for so many days.")
@click.option("--delete-after", type=Days(), help="Trash what was archived for so many days.")
@click.option("--purge-after", type=Days(), help="Empty the trash of what lay there so long.")
@click.option("--save", is_flag=True, help="Keep these days as the workspace's policy.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@assured
@formatted
@located
def prune_command(
    where: Where,
    archive_after: int | None,
    delete_after: int | None,
    purge_after: int | None,
    save: bool,
    dry_run: bool,
    yes: bool,
    format: str | None,
) -> None:
    """Tidy up by age: archive, then trash, then delete for good, as the workspace's policy says.

    Archiving and trashing are off until you give their days; the trash keeps things 30 days.
    `never` turns a step off. Running sessions are left alone.

    Example: segue prune --archive-after 90 --dry-run
    """
    given = {
        "archive_after": archive_after,
        "delete_after": delete_after,
        "purge_after": purge_after,
    }
    changes: dict[str, Any] = {
        name: days or None for name, days in given.items() if days is not None
    }

    async def plan(hub: Hub, principal: Principal) -> tuple[RetentionPolicy, list[RetentionStep]]:
        policy = replace(await hub.retention.policy(principal), **changes)
        return policy, list(await hub.retention.prune(principal, policy=policy, dry_run=True))

    policy, steps = where.read(plan)
    if not dry_run:
        if steps and not yes:
            _show(steps, "would be")
            ask(f"Do this to {len(steps)}?")

        async def prune(hub: Hub, principal: Principal) -> list[RetentionStep]:
            if save:
                await hub.retention.set_policy(principal, policy)
            return list(await hub.retention.prune(principal, policy=policy))

        steps = where.run(prune)
    if format is not None:
        from segue.interfaces.cli.output.output_fields import session_fields

        rows = ({"action": action, **session_fields(session)} for action, session in steps)
        write_rows(format, ((row, row) for row in rows))
    elif not steps:
        click.echo("Nothing to do.", err=True)
    else:
        _show(steps, "would be" if dry_run else "was")


def _show(steps: list[RetentionStep], verb: str) -> None:
    for action, session in steps:
        title = one_line(session.title or "(untitled)")
        click.echo(f"{session.id}  {verb} {_DONE[action]}: {title}")
