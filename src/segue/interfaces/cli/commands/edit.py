"""Changing sessions: `segue fork`, `rename`, `tag`, `archive`, `unarchive`, `delete`, `restore`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from segue.interfaces.cli.arguments import cwd_option, session_argument, session_arguments
from segue.interfaces.cli.main import Where, located
from segue.interfaces.cli.output.formats import formatted
from segue.interfaces.cli.output.text import one_line
from segue.model.errors import InvalidInput

from .chat import place, show_made

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.model.principal import Principal
    from segue.model.session import Session

assured = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@click.command("fork")
@session_argument
@click.option(
    "--at",
    type=click.IntRange(1),
    metavar="SEQ",
    help="Up to this event, by its `seq` in `segue show --format jsonl`.  [default: all]",
)
@click.option("--title", help="The fork's title.  [default: the parent's, marked]")
@cwd_option("The fork's directory.  [default: the parent's]")
@formatted
@located
def fork_command(
    where: Where,
    session: str,
    at: int | None,
    title: str | None,
    cwd: str | None,
    format: str | None,
) -> None:
    """Make a new session that begins with another's history, and print its id.

    Example: segue fork 0198c2a4-77b1 --title "The other way"
    """
    path = None if cwd is None else place(cwd)

    async def fork(hub: Hub, principal: Principal) -> Session:
        parent = await hub.sessions.resolve(principal, session)
        return await hub.editor.fork(
            principal, parent.id, at=at, title=title, cwd=path, origin="cli"
        )

    show_made(where.run(fork), format)


@click.command("rename")
@session_argument
@click.argument("title", required=False)
@click.option("--clear", is_flag=True, help="Take the title away.")
@located
def rename_command(where: Where, session: str, title: str | None, clear: bool) -> None:
    """Give a session another title.

    Example: segue rename 0198c2a4-77b1 "Fix the parser"
    """
    value = _value(title, clear, "TITLE")

    async def rename(hub: Hub, principal: Principal) -> None:
        await hub.editor.set_title(
            principal, (await hub.sessions.resolve(principal, session)).id, value
        )

    where.run(rename)
    confirm("It has no title now." if value is None else f"Its title is now: {value.strip()}")


@click.command("tag")
@session_argument
@click.argument("tag", required=False)
@click.option("--clear", is_flag=True, help="Take the tag away.")
@located
def tag_command(where: Where, session: str, tag: str | None, clear: bool) -> None:
    """Put a tag on a session; `segue list --tag` finds it.

    Example: segue tag 0198c2a4-77b1 release
    """
    value = _value(tag, clear, "TAG")

    async def set_tag(hub: Hub, principal: Principal) -> None:
        await hub.editor.set_tag(
            principal, (await hub.sessions.resolve(principal, session)).id, value
        )

    where.run(set_tag)
    confirm("It has no tag now." if value is None else f"Tagged: {value.strip()}")


def _value(given: str | None, clear: bool, what: str) -> str | None:
    if (given is None) != clear:
        raise InvalidInput(f"give either a {what} or --clear")
    if given is not None and not given.strip():
        raise InvalidInput(f"the {what} is empty; --clear takes it away")
    return given


@click.command("archive")
@session_arguments
@located
def archive_command(where: Where, sessions: tuple[str, ...]) -> None:
    """Hide sessions from ordinary lists; `segue list --only-archived` shows them.

    Example: segue archive 0198c2a4-77b1 0198c7d0-1e05
    """
    _each(where, sessions, lambda hub: hub.editor.archive)
    confirm("Archived; `segue unarchive` puts back.")


@click.command("unarchive")
@session_arguments
@located
def unarchive_command(where: Where, sessions: tuple[str, ...]) -> None:
    """Put archived sessions back among the others.

    Example: segue unarchive 0198c2a4-77b1
    """
    _each(where, sessions, lambda hub: hub.editor.unarchive)
    confirm("Back among the others.")


@click.command("restore")
@session_arguments
@located
def restore_command(where: Where, sessions: tuple[str, ...]) -> None:
    """Take sessions out of the trash; `segue trash list` shows what is there.

    Example: segue restore 0198c2a4-77b1
    """
    _each(where, sessions, lambda hub: hub.editor.restore, trash=True)
    confirm("Out of the trash.")


@click.command("delete")
@session_arguments
@click.option("--purge", is_flag=True, help="For good, past the trash.")
@assured
@located
def delete_command(where: Where, sessions: tuple[str, ...], purge: bool, yes: bool) -> None:
    """Move sessions to the trash, from which `segue restore` takes them back.

    Example: segue delete 0198c2a4-77b1
    """
    meant = where.read(lambda hub, principal: find_all(hub, principal, sessions))
    if not yes:
        for session in meant:
            click.echo(f"  {session.id}  {one_line(session.title or '(untitled)')}", err=True)
        count = "1 session" if len(meant) == 1 else f"{len(meant)} sessions"
        ask(f"Delete {count} for good?" if purge else f"Move {count} to the trash?")

    async def delete(hub: Hub, principal: Principal) -> None:
        for session in meant:
            await (hub.editor.purge if purge else hub.editor.trash)(principal, session.id)

    where.run(delete)
    back = meant[0].id if len(meant) == 1 else "ID"
    confirm("Deleted for good." if purge else f"In the trash; undo it with: segue restore {back}")


def confirm(done: str) -> None:
    """Tell a person at a terminal that it is done."""
    if sys.stderr.isatty():
        click.echo(one_line(done), err=True)


def ask(question: str) -> None:
    """Go on only if a person says so; without a terminal there is nobody to ask."""
    if not sys.stdin.isatty():
        raise InvalidInput("there is no terminal to ask in; --yes does it without asking")
    click.confirm(question, abort=True, err=True)


async def find_all(
    hub: Hub, principal: Principal, names: tuple[str, ...], *, trash: bool = False
) -> list[Session]:
    """The sessions of some names: all of them are known before anything is done to one."""
    found = [await hub.sessions.resolve(principal, name, trashed=trash) for name in names]
    for session in found:
        if trash and session.state != "trashed":
            hint = "; `segue unarchive` takes it back" if session.state == "archived" else ""
            raise InvalidInput(f"session {session.id} is not in the trash{hint}")
    return list({session.id: session for session in found}.values())


def _each(
    where: Where,
    names: tuple[str, ...],
    change: Callable[[Hub], Callable[[Principal, str], Awaitable[object]]],
    *,
    trash: bool = False,
) -> None:
    async def do(hub: Hub, principal: Principal) -> None:
        for session in await find_all(hub, principal, names, trash=trash):
            await change(hub)(principal, session.id)

    where.run(do)
