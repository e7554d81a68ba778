"""`segue trash`: what was deleted and can come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from segue.interfaces.cli.main import Group, Where, located
from segue.interfaces.cli.output.formats import formatted
from segue.interfaces.cli.output.pager import paged
from segue.interfaces.cli.output.progress import counted
from segue.model.query import Query

from .edit import ask, assured
from .list import every, show_list

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.model.principal import Principal

_QUERY = Query(trash=True)


@click.group("trash", cls=Group)
def trash_command() -> None:
    """The deleted sessions: list them, or delete them for good. `segue restore` takes them back.

    Example: segue trash list
    """


@trash_command.command("list")
@paged
@formatted
@located
def list_(where: Where, format: str | None) -> None:
    """List what is in the trash.

    Example: segue trash list
    """
    sessions, _ = where.read(lambda hub, principal: every(hub, principal, _QUERY))
    show_list(sessions, format, "The trash is empty.")


@trash_command.command("empty")
@assured
@formatted
@located
def empty(where: Where, yes: bool, format: str | None) -> None:
    """Delete everything in the trash for good; with --format, print what that was.

    Example: segue trash empty
    """
    sessions, _ = where.read(lambda hub, principal: every(hub, principal, _QUERY))
    if sessions and not yes:
        ask(f"Delete {len(sessions)} for good?")

    async def purge(hub: Hub, principal: Principal) -> None:
        for session in counted(sessions, "Deleting"):
            await hub.editor.purge(principal, session.id)

    if sessions:
        where.run(purge)
    if format is not None or not sessions:
        show_list(sessions, format, "The trash is empty.")
