"""Change sessions: `segue fork`, `rename`, `tag`, `archive`, `unarchive`, `delete`, `restore`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from segue.interfaces.cli.arguments import (
    cwd_option,
    find_session,
    open_session,
    optional_session_argument,
    session_argument,
    session_arguments,
    session_or_newest,
)
from segue.interfaces.cli.output.formats import format_option
from segue.interfaces.cli.output.text import one_line, title_text
from segue.interfaces.cli.target import Target, target_options
from segue.model.errors import InvalidInput

from .chat import resolve_directory, show_new_session

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.model.principal import Principal
    from segue.model.session import Session

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


@click.command("fork")
@optional_session_argument
@click.option(
    "--at",
    type=click.IntRange(1),
    metavar="SEQ",
    help="The last event to copy, by its `seq` in `segue show --format jsonl`.  [default: all]",
)
@click.option("--title", help="The fork's title.  [default: from the parent's title]")
@cwd_option("The fork's working directory.  [default: the parent's]")
@format_option
@target_options
def fork_command(
    target: Target,
    session: str | None,
    at: int | None,
    title: str | None,
    cwd: str | None,
    format: str | None,
) -> None:
    """Create a session with a copy of another's history, and print its id.

    Without SESSION, it is a copy of the newest session of this directory.

    Example: segue fork 0198c2a4-77b1 --title "Second approach"
    """
    path = None if cwd is None else resolve_directory(cwd)
    name = session_or_newest(target, session, "fork")

    async def fork(hub: Hub, principal: Principal) -> Session:
        parent = await open_session(hub, principal, name)
        return await hub.editor.fork(
            principal, parent.id, at=at, title=title, cwd=path, origin="cli"
        )

    show_new_session(target.run(fork), format)


@click.command("rename")
@session_argument
@click.argument("title", required=False)
@click.option("--clear", is_flag=True, help="Remove the title.")
@target_options
def rename_command(target: Target, session: str, title: str | None, clear: bool) -> None:
    """Change a session's title.

    Example: segue rename 0198c2a4-77b1 "Fix the parser"
    """
    value = _value_or_clear(title, "TITLE", clear=clear)
    _change_all(
        target, (session,), lambda hub, principal, id: hub.editor.set_title(principal, id, value)
    )
    show_done("Title removed." if value is None else f"Renamed to: {value.strip()}")


@click.command("tag")
@session_argument
@click.argument("tag", required=False)
@click.option("--clear", is_flag=True, help="Remove the tag.")
@target_options
def tag_command(target: Target, session: str, tag: str | None, clear: bool) -> None:
    """Tag a session; `segue list --tag` lists sessions by tag.

    A session has one tag: another one replaces it.

    Example: segue tag 0198c2a4-77b1 release
    """
    value = _value_or_clear(tag, "TAG", clear=clear)
    before: list[str | None] = []

    async def set_tag(hub: Hub, principal: Principal, id: str) -> None:
        before.append((await hub.sessions.get(principal, id)).tag)
        await hub.editor.set_tag(principal, id, value)

    _change_all(target, (session,), set_tag)
    if value is None:
        show_done("Tag removed.")
    elif before[0] and before[0] != value.strip():
        # A script should see this, too: the first tag is gone.
        click.echo(one_line(f"Tagged: {value.strip()} instead of {before[0]}"), err=True)
    else:
        show_done(f"Tagged: {value.strip()}")


def _value_or_clear(value: str | None, argument: str, *, clear: bool) -> str | None:
    if (value is None) != clear:
        raise InvalidInput(f"pass either a {argument} or --clear")
    if value is not None and not value.strip():
        raise InvalidInput(f"the {argument} is empty; use --clear to remove it")
    return value


@click.command("archive")
@session_arguments
@target_options
def archive_command(target: Target, sessions: tuple[str, ...]) -> None:
    """Archive sessions: only `segue list --archived` and `--only-archived` show them.

    Example: segue archive 0198c2a4-77b1 0198c7d0-1e05
    """
    _change_all(target, sessions, lambda hub, principal, id: hub.editor.archive(principal, id))
    show_done("Archived; undo with `segue unarchive`.")


@click.command("unarchive")
@session_arguments
@target_options
def unarchive_command(target: Target, sessions: tuple[str, ...]) -> None:
    """Move archived sessions back to the normal list.

    Example: segue unarchive 0198c2a4-77b1
    """
    _change_all(target, sessions, lambda hub, principal, id: hub.editor.unarchive(principal, id))
    show_done("Unarchived.")


@click.command("restore")
@session_arguments
@target_options
def restore_command(target: Target, sessions: tuple[str, ...]) -> None:
    """Restore sessions from the trash; `segue trash list` lists them.

    Example: segue restore 0198c2a4-77b1
    """

    async def restore(hub: Hub, principal: Principal, id: str) -> None:
        restored = await hub.editor.restore(principal, id)
        if restored.id != id:
            click.echo(f"{id} has a new id: {restored.id}", err=True)

    _change_all(target, sessions, restore, trashed=True)
    show_done("Restored.")


@click.command("delete")
@session_arguments
@click.option("--purge", is_flag=True, help="Delete permanently, not to the trash.")
@yes_option
@target_options
def delete_command(target: Target, sessions: tuple[str, ...], purge: bool, yes: bool) -> None:
    """Move sessions to the trash; `segue restore` restores them.

    Example: segue delete 0198c2a4-77b1
    """
    resolved = target.read(lambda hub, principal: resolve_all(hub, principal, sessions))
    if not yes:
        for session in resolved:
            click.echo(f"  {session.id}  {title_text(session)}", err=True)
        count = "1 session" if len(resolved) == 1 else f"{len(resolved)} sessions"
        confirm(f"Delete {count} permanently?" if purge else f"Move {count} to the trash?")

    async def delete(hub: Hub, principal: Principal) -> None:
        for session in resolved:
            await (hub.editor.purge if purge else hub.editor.trash)(principal, session.id)
            if purge:
                await _purge_original(hub, principal, session.id)

    target.run(delete)
    id = resolved[0].id if len(resolved) == 1 else "ID"
    show_done("Deleted permanently." if purge else f"In the trash; undo with: segue restore {id}")


async def _purge_original(hub: Hub, principal: Principal, id: str) -> None:
    """Purge the original of an imported session, which its purge has moved to a tool's trash.

    If only the tool's own program could do it, the original stays in the trash, and a line says so.
    """
    from segue.model.errors import NotFound, ReadOnly

    try:
        await hub.editor.purge(principal, id)
    except NotFound:
        return  # it was no import, or the tool has deleted it
    except ReadOnly as error:
        click.echo(f"segue: the original stays in the trash: {error.message}", err=True)


def show_done(message: str) -> None:
    """Print a confirmation for a person at a terminal."""
    if sys.stderr.isatty():
        click.echo(one_line(message), err=True)


def confirm(question: str) -> None:
    """Ask a yes-no question and abort on no. Raises InvalidInput without a terminal."""
    if not sys.stdin.isatty():
        raise InvalidInput("can't ask without a terminal; pass --yes")
    click.confirm(question, abort=True, err=True)


async def resolve_all(
    hub: Hub, principal: Principal, names: tuple[str, ...], *, trashed: bool = False
) -> list[Session]:
    """Return the sessions of all names, before any of them is changed.

    Raises InvalidInput if `trashed` is set and one is not in the trash.
    """
    sessions = [await find_session(hub, principal, name, trashed=trashed) for name in names]
    for session in sessions:
        if trashed and session.state != "trashed":
            hint = "; use `segue unarchive`" if session.state == "archived" else ""
            raise InvalidInput(f"session {session.id} is not in the trash{hint}")
    return list({session.id: session for session in sessions}.values())


def _change_all(
    target: Target,
    names: tuple[str, ...],
    change: Callable[[Hub, Principal, str], Awaitable[object]],
    *,
    trashed: bool = False,
) -> None:
    async def change_all(hub: Hub, principal: Principal) -> None:
        for session in await resolve_all(hub, principal, names, trashed=trashed):
            await change(hub, principal, session.id)

    target.run(change_all)
