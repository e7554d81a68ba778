"""Apply the retention policy: `segue prune`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from segue.interfaces.cli.output.formats import format_option, write_rows
from segue.interfaces.cli.output.text import title_text
from segue.interfaces.cli.target import Target, target_options
from segue.model.query import Query

from .edit import confirm, yes_option
from .list import MAX_PAGE_SIZE

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.hub.sessions.retention import RetentionPolicy, RetentionStep
    from segue.model.principal import Principal

_ACTION_RESULTS = {
    "archive": "archived",
    "delete": "moved to the trash",
    "purge": "deleted permanently",
}


class DaysType(click.ParamType[int]):
    """A number of days, or `never`, which is 0."""

    name = "days"

    def convert(
        self, value: str | int, param: click.Parameter | None, context: click.Context | None
    ) -> int:
        if value == "never":
            return 0
        if isinstance(value, int) or (value.isdecimal() and value.isascii() and int(value) > 0):
            return int(value)
        self.fail(f"{value!r} is not a number of days; use 1 or more, or `never`", param, context)


@click.command("prune")
@click.option("--archive-after", type=DaysType(), help="Archive sessions idle for DAYS.")
@click.option("--delete-after", type=DaysType(), help="Trash sessions archived for DAYS.")
@click.option(
    "--purge-after",
    type=DaysType(),
    help="Delete sessions permanently that were in the trash for DAYS.",
)
@click.option("--save", is_flag=True, help="Save these days as the workspace's policy.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@yes_option
@format_option
@target_options
def prune_command(
    target: Target,
    archive_after: int | None,
    delete_after: int | None,
    purge_after: int | None,
    save: bool,
    dry_run: bool,
    yes: bool,
    format: str | None,
) -> None:
    """Archive, trash and delete old sessions, by the workspace's retention policy.

    By default nothing is archived or trashed, and sessions stay in the trash for 30 days.
    `never` turns a step off. Running sessions are not changed.

    Sessions of other tools are included after an import. In the files of a tool, nothing is
    pruned: the tool has its own cleanup, and the policy would delete what it still shows.

    Example: segue prune --archive-after 90 --dry-run
    """
    options = {
        "archive_after": archive_after,
        "delete_after": delete_after,
        "purge_after": purge_after,
    }
    changes: dict[str, Any] = {
        name: days or None for name, days in options.items() if days is not None
    }

    async def plan(hub: Hub, principal: Principal) -> tuple[RetentionPolicy, list[RetentionStep]]:
        policy = replace(await hub.retention.policy(principal), **changes)
        return policy, list(await hub.retention.prune(principal, policy=policy, dry_run=True))

    policy, steps = target.read(plan)
    if not dry_run:
        if steps and not yes:
            _show_steps(steps, "would be")
            confirm(f"Do this to {_count(steps)}?")

        async def prune(hub: Hub, principal: Principal) -> list[RetentionStep]:
            if save:
                await hub.retention.set_policy(principal, policy)
            return list(await hub.retention.prune(principal, policy=policy))

        steps = target.run(prune)
    _show_result(target, policy, steps, format, dry_run=dry_run)


def _show_result(
    target: Target,
    policy: RetentionPolicy,
    steps: list[RetentionStep],
    format: str | None,
    *,
    dry_run: bool,
) -> None:
    """Print what was done with each session, or say why there was nothing to do."""
    if format is not None:
        from segue.interfaces.cli.output.output_fields import session_fields

        rows = ({"action": action, **session_fields(session)} for action, session in steps)
        write_rows(format, ((row, row) for row in rows))
    elif not steps:
        message = "Nothing to do."
        if policy.archive_after is None and policy.delete_after is None:
            message = (
                "Nothing to do: no days are set for archiving or deleting. "
                "`segue prune --archive-after 90 --dry-run` shows what 90 days would archive."
            )
        if count := target.read(_count_others):
            message += (
                f" {count} sessions that only other tools have are not pruned; "
                "`segue import --all` copies them into segue's store."
            )
        click.echo(message, err=True)
    else:
        _show_steps(steps, "would be" if dry_run else "was")


async def _count_others(hub: Hub, principal: Principal) -> str:
    """Return how many sessions are not in the store; empty if there are none."""
    names = {source.name for source in hub.sources if source.workspace == principal.workspace}
    if not names:
        return ""
    page = await hub.sessions.list(principal, Query(limit=MAX_PAGE_SIZE))
    count = sum(session.owner in names for session in page.sessions)
    return f"{count}{'+' if page.next else ''}" if count else ""


def _count(steps: list[RetentionStep]) -> str:
    return "1 session" if len(steps) == 1 else f"{len(steps)} sessions"


def _show_steps(steps: list[RetentionStep], verb: str) -> None:
    for action, session in steps:
        title = title_text(session)
        click.echo(f"{session.id}  {verb} {_ACTION_RESULTS[action]}: {title}")
