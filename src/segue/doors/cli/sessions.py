"""Sessions out to files and in again: `segue export`, `import`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain

import click

from ...hub import Hub
from ...hub.transfer import is_export
from ...model import ids
from ...model.errors import Conflict, InvalidInput, NotFound
from ...model.principal import Principal
from ...model.session import Session
from .formats import formatted, write
from .main import Where, located
from .naming import session_argument
from .talking import show_made


@click.command("export")
@session_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(["segue", "claude"]),
    default="segue",
    show_default=True,
    help="`segue`: for `segue import`, whole. `claude`: for `claude --resume`.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="The file to write; `-` is standard output.",
)
@located
def export_command(where: Where, session: str, form: str, output: str | None) -> None:
    """Write a session to a file, or to where Claude Code looks for its own.

    \b
    Example: segue export 0198c2a4-77b1 -o session.jsonl
             segue export 0198c2a4-77b1 --format claude
    """

    async def export(hub: Hub, principal: Principal) -> None:
        id = (await hub.named(principal, session)).id
        if form == "claude" and output is None:
            try:
                click.echo(await hub.export_claude(principal, id))
            except Conflict as error:
                raise Conflict(f"{error.message}; -o FILE writes it there instead") from None
            click.echo(f"Go on with it: claude --resume {id}", err=True)
            return
        lines = hub.export if form == "segue" else hub.claude_transcript
        with written(output or "-") as put:
            async for line in lines(principal, id):
                put(line)

    where.run(export)


@contextmanager
def written(path: str) -> Iterator[Callable[[bytes], object]]:
    """Writes a file that takes the place of one that is there when it is whole, and not before."""
    if path == "-":
        yield write
        return
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe, or a device
        with open(path, "wb") as out:
            yield out.write
        return
    path = os.path.realpath(path)  # a link stays one
    unfinished = f"{path}.{os.getpid()}.part"
    try:
        with open(unfinished, "xb") as out:
            yield out.write
            out.flush()
            os.fsync(out.fileno())
        os.replace(unfinished, path)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(unfinished)
        if isinstance(error, OSError) and error.filename == unfinished:
            error.filename = path
        raise


@click.command("import")
@click.argument("session")
@click.option("--new-id", is_flag=True, help="Import it as a new session beside the old one.")
@formatted
@located
def import_command(where: Where, session: str, new_id: bool, format: str | None) -> None:
    """Read a session and print its id: one that `segue export` wrote, or one of Claude Code.

    SESSION is a file (`-` reads standard input), or a session that Claude Code has: its id, or as
    elsewhere the beginning of it or a title. The latter can be imported again; that adds what it
    has had since.

    \b
    Example: segue import session.jsonl
             segue import 5f1c9a52
    """

    async def take(hub: Hub, principal: Principal) -> Session:
        if session == "-" or os.path.isfile(session):
            with click.open_file(session, "rb") as file:
                first = file.readline()
                if session == "-" or is_export(first):
                    try:
                        return await hub.import_session(
                            principal, chain([first], file), new_id=new_id
                        )
                    except Conflict as error:
                        hint = "--new-id imports it beside that one"
                        raise InvalidInput(f"{error.message}; {hint}") from None
        if new_id:
            raise InvalidInput("--new-id is for files of `segue export`; fork what you import")
        named = session
        if not os.path.exists(session) and not session.endswith(".jsonl"):
            try:
                named = ids.parse(session) or (await hub.named(principal, session)).id
            except NotFound:
                raise NotFound(f"there is neither a file nor a session {session!r}") from None
        made, count = await hub.import_claude(principal, named)
        lines = "1 new line." if count == 1 else f"{count} new lines."
        click.echo(lines if count else "Nothing is new.", err=True)
        return made

    show_made(where.run(take), format)
