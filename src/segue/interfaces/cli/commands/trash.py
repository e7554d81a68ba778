"""List and empty the trash: `segue trash`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from segue.interfaces.cli.group import Group
from segue.interfaces.cli.output.formats import format_option
from segue.interfaces.cli.output.pager import pager_option
from segue.interfaces.cli.output.progress import with_progress_bar
from segue.interfaces.cli.target import Target, target_options
from segue.model.query import Query

from .edit import confirm, yes_option
from .list import list_all, show_list

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.model.principal import Principal

_QUERY = Query(trash=True)
_EMPTY = "The trash is empty."


class _TrashGroup(Group):
    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "restore":
            session = args[1] if len(args) > 1 else "SESSION"
            command = f"segue restore {shlex.quote(session)}"
            raise click.UsageError(f"To restore a session, run `{command}`.", context)
        return super().resolve_command(context, args)


@click.group("trash", cls=_TrashGroup, invoke_without_command=True)
@target_options
@click.pass_context
def trash_command(context: click.Context, target: Target) -> None:
    """List deleted sessions, or delete them permanently. `segue restore` restores them.

    Example: segue trash list
    """
    if context.invoked_subcommand is None:
        _show_trash(target, None)


@trash_command.command("list")
@pager_option
@format_option
@target_options
def list_(target: Target, format: str | None) -> None:
    """List the sessions in the trash.

    Example: segue trash list
    """
    _show_trash(target, format)


def _show_trash(target: Target, format: str | None) -> None:
    sessions, _ = target.read(lambda hub, principal: list_all(hub, principal, _QUERY))
    show_list(sessions, format, _EMPTY)


@trash_command.command("empty")
@yes_option
@format_option
@target_options
def empty(target: Target, yes: bool, format: str | None) -> None:
    """Delete all sessions in the trash permanently; with --format, print them.

    Example: segue trash empty
    """
    sessions, _ = target.read(lambda hub, principal: list_all(hub, principal, _QUERY))
    if sessions and not yes:
        count = "1 session" if len(sessions) == 1 else f"{len(sessions)} sessions"
        confirm(f"Delete {count} permanently?")

    async def purge(hub: Hub, principal: Principal) -> None:
        for session in with_progress_bar(sessions, "Deleting"):
            await hub.editor.purge(principal, session.id)

    if sessions:
        target.run(purge)
    if format is not None or not sessions:
        show_list(sessions, format, _EMPTY)
