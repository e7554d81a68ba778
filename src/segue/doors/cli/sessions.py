"""The commands on sessions."""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import chain
from typing import IO

import click

from ...hub import Hub
from ...hub.transfer import is_export
from ...model.errors import InvalidInput, NotFound
from ...model.event import Event, PermissionAsked, StatusChanged
from ...model.principal import Principal
from ...model.query import Query
from ...store.base import Delta
from .main import Where, located
from .output import one_line, safe, show_event, show_found, show_sessions


@click.command("list")
@click.option("--cwd", help="Only sessions of this directory.")
@click.option("--worktrees", is_flag=True, help="With --cwd: its repository's worktrees too.")
@click.option("--tag", help="Only sessions with this tag.")
@click.option("--archived", is_flag=True, help="Archived sessions too.")
@click.option("-n", "--limit", default=20, show_default=True, help="How many.")
@located
def list_command(
    where: Where, cwd: str | None, worktrees: bool, tag: str | None, archived: bool, limit: int
) -> None:
    """List sessions, the most recently active first.

    Example: segue list --cwd . --worktrees
    """
    query = Query(
        cwd=None if cwd is None else os.path.abspath(cwd),
        worktrees=worktrees,
        tag=tag,
        archived="include" if archived else "exclude",
        limit=limit,
    )
    page = where.run(lambda hub, principal: hub.list(principal, query))
    show_sessions(page.sessions)
    if not page.sessions:
        click.echo("No sessions. `segue new` makes one.", err=True)


@click.command("search")
@click.argument("words", nargs=-1, required=True)
@click.option("--ranked", is_flag=True, help="Best match first instead of newest.")
@click.option("-n", "--limit", default=10, show_default=True, help="How many.")
@located
def search_command(where: Where, words: tuple[str, ...], ranked: bool, limit: int) -> None:
    """Find sessions in which every word occurs; quote a phrase.

    Example: segue search retry '"connection refused"'
    """
    query = Query(text=" ".join(words), limit=limit)
    results = where.run(lambda hub, principal: hub.search(principal, query, ranked=ranked))
    show_found(results.found)
    if not results.found:
        click.echo("Nothing found.", err=True)


@click.command("show")
@click.argument("session")
@located
def show_command(where: Where, session: str) -> None:
    """Show a session's conversation.

    Example: segue show 0198c2
    """

    async def show(hub: Hub, principal: Principal) -> None:
        id = (await hub.named(principal, session)).id
        async for event in hub.conversation(principal, id):
            show_event(event)

    where.run(show)


@click.command("new")
@click.option("--cwd", default=".", help="Its working directory.  [default: this one]")
@click.option("--title", help="Its title; without one, the first prompt gives it.")
@located
def new_command(where: Where, cwd: str, title: str | None) -> None:
    """Make a session and print its id.

    Example: segue new --title "Fix the parser"
    """
    path = os.path.abspath(cwd)
    made = where.run(
        lambda hub, principal: hub.create(principal, cwd=path, title=title, origin="cli")
    )
    click.echo(made.id)


@click.command("prompt")
@click.argument("session")
@click.argument("text")
@located
def prompt_command(where: Where, session: str, text: str) -> None:
    """Ask a session's agent something and watch the answer; `new` as SESSION begins one.

    Example: segue prompt new "What can you do?"
    """

    async def prompt(hub: Hub, principal: Principal) -> str:
        if session == "new":
            id = (await hub.create(principal, cwd=os.getcwd(), origin="cli")).id
            click.echo(click.style(id, dim=True), err=True)
        else:
            id = (await hub.named(principal, session)).id
        return await converse(hub, principal, id, text)

    reason = where.run(prompt)
    if reason != "end_turn":
        click.echo(click.style(f"({reason})", fg="yellow"), err=True)
        sys.exit(1)


async def converse(hub: Hub, principal: Principal, id: str, text: str) -> str:
    """Send a prompt and show its turn as it happens, asking here what the agent asks."""
    seq = (await hub.get(principal, id)).last_seq
    turn = await hub.prompt(principal, id, text)
    streamed = ""
    try:
        async for item in hub.follow(principal, id, seq, deltas=True):
            if isinstance(item, Delta):
                piece = click.style(safe(item.text), dim=item.kind == "thought")
                click.echo(piece, nl=False)
                streamed = item.message
                continue
            if streamed == item.id:
                click.echo()
            elif item.id != turn:
                show_event(item)
            if isinstance(item.body, PermissionAsked):
                await _answer(hub, principal, id, item)
            if isinstance(item.body, StatusChanged) and item.body.turn == turn:
                reason = item.body.stop_reason
                if reason is not None and reason != "requires_action":
                    return reason
    except asyncio.CancelledError:
        await hub.cancel(principal, id)
        await hub.wait(principal, id, turn)
        raise
    raise NotFound(f"session {id} was deleted meanwhile")


async def _answer(hub: Hub, principal: Principal, id: str, event: Event) -> None:
    body = event.body
    assert isinstance(body, PermissionAsked)
    if not sys.stdin.isatty():
        reject = next((o.id for o in body.options if o.kind.startswith("reject")), None)
        click.echo("  (no terminal to ask in: rejected)", err=True)
        await hub.answer(principal, id, body.ask_id, reject)
        return
    for number, option in enumerate(body.options, 1):
        click.echo(f"  {number}. {one_line(option.name)}")
    choice = click.IntRange(1, len(body.options))
    chosen: int = await asyncio.to_thread(click.prompt, "  Which", type=choice)
    await hub.answer(principal, id, body.ask_id, body.options[chosen - 1].id)


@click.command("export")
@click.argument("session")
@click.option(
    "--format",
    "form",
    type=click.Choice(["segue", "claude"]),
    default="segue",
    show_default=True,
    help="`segue`: for `segue import`, whole. `claude`: for `claude --resume`.",
)
@click.option("-o", "--output", type=click.File("wb"), help="The file to write.")
@located
def export_command(where: Where, session: str, form: str, output: IO[bytes] | None) -> None:
    """Write a session to a file, or to where Claude Code looks for its own.

    \b
    Example: segue export 0198c2 -o session.jsonl
             segue export 0198c2 --format claude
    """

    async def export(hub: Hub, principal: Principal) -> None:
        id = (await hub.named(principal, session)).id
        if form == "segue":
            file: IO[bytes] = output or sys.stdout.buffer
            async for line in hub.export(principal, id):
                file.write(line)
        elif output is not None:
            output.writelines(await hub.claude_transcript(principal, id))
        else:
            click.echo(await hub.export_claude(principal, id))
            click.echo(f"Go on with it: claude --resume {id}", err=True)

    where.run(export)


@click.command("import")
@click.argument("session")
@click.option("--new-id", is_flag=True, help="Import it as a new session beside the old one.")
@located
def import_command(where: Where, session: str, new_id: bool) -> None:
    """Read a session and print its id: one that `segue export` wrote, or one of Claude Code.

    SESSION is a file (`-` reads standard input), or the id of a session that Claude Code has. The
    latter can be imported again; that adds what it has had since.

    \b
    Example: segue import session.jsonl
             segue import 5f1c9a52-8a4e-4b8e-9a55-0c5f0f3f9d11
    """

    async def take(hub: Hub, principal: Principal) -> None:
        if session == "-" or os.path.isfile(session):
            with click.open_file(session, "rb") as file:
                first = file.readline()
                if session == "-" or is_export(first):
                    lines = chain([first], file)
                    click.echo((await hub.import_session(principal, lines, new_id=new_id)).id)
                    return
        if new_id:
            raise InvalidInput("--new-id is for files of `segue export`; fork what you import")
        made, count = await hub.import_claude(principal, session)
        click.echo(made.id)
        click.echo(f"{count} new lines." if count else "Nothing is new.", err=True)

    where.run(take)
