"""Sessions out to files and in again: `segue export`, `import`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from itertools import chain

import click

from segue.hub import Hub
from segue.hub.sync.export_file import is_export
from segue.interfaces.cli.arguments import file_or_session_argument, open_session, session_argument
from segue.interfaces.cli.main import Where, located
from segue.interfaces.cli.output.formats import formatted, written
from segue.model import ids
from segue.model.errors import Conflict, InvalidInput, NotFound
from segue.model.principal import Principal
from segue.model.session import Session

from .chat import show_made

# The formats that a file's ending tells; any other file is written whole.
_ENDINGS = {".md": "markdown", ".markdown": "markdown", ".html": "html", ".htm": "html"}


@click.command("export")
@session_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(["segue", "jsonl", "markdown", "md", "html", "claude"]),
    help="`segue` (or `jsonl`): for `segue import`, whole. `markdown` (or `md`), `html`: to read. "
    "`claude`: for `claude --resume`.  [default: what FILE ends with says, else segue]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="The file to write; `-` is standard output.",
)
@located
def export_command(where: Where, session: str, form: str | None, output: str | None) -> None:
    """Write a session to a file: to keep it, to read it, or for Claude Code to go on with.

    Without -o it goes to standard output, but `--format claude` to where Claude Code looks for its
    sessions. A file takes the place of one of that name when it is whole.

    \b
    Example: segue export 0198c2a4-77b1 -o session.jsonl
             segue export 0198c2a4-77b1 -o session.html
             segue export 0198c2a4-77b1 --format markdown | less
             segue export 0198c2a4-77b1 --format claude
    """
    chosen = form or _ENDINGS.get(os.path.splitext(output or "")[1].lower(), "segue")

    async def export(hub: Hub, principal: Principal) -> None:
        found = await open_session(hub, principal, session)
        if chosen == "claude" and output is None:
            try:
                click.echo(await hub.sync.export_claude(principal, found.id))
            except Conflict as error:
                raise Conflict(f"{error.message}; -o FILE writes it there instead") from None
            click.echo(f"Go on with it: claude --resume {found.id}", err=True)
            return
        with written(output or "-") as put:
            async for piece in _pieces(hub, principal, found, chosen):
                put(piece)

    where.run(export)


async def _pieces(
    hub: Hub, principal: Principal, session: Session, form: str
) -> AsyncIterator[bytes]:
    """A session in one of the formats, some of it at a time: it need not fit into memory."""
    if form in ("segue", "jsonl", "claude"):
        lines = hub.sync.claude_transcript if form == "claude" else hub.exchange.export
        async for line in lines(principal, session.id):
            yield line
        return
    from segue.render import documents

    document = documents.html if form == "html" else documents.markdown
    async for text in document(hub.history, principal, session):
        yield text.encode()


@click.command("import")
@file_or_session_argument
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
        is_file = session != "-" and os.path.isfile(session)
        is_path = os.sep in session or session in (os.curdir, os.pardir)
        if is_path and os.path.isdir(session):
            raise InvalidInput(f"{session} is a directory; name a file in it")
        is_other = os.path.exists(session) and not is_file and not os.path.isdir(session)
        # What can be read only once, as a pipe can, is an export: the other kind is read by name.
        is_stream = session == "-" or is_other
        if is_stream or is_file:
            with click.open_file(session, "rb") as file:
                first = file.readline()
                if not first:
                    raise InvalidInput("there is nothing to import: the file is empty")
                if is_stream or is_export(first):
                    try:
                        return await hub.exchange.import_session(
                            principal, chain([first], file), new_id=new_id
                        )
                    except Conflict as error:
                        hint = "--new-id imports it beside that one"
                        raise InvalidInput(f"{error.message}; {hint}") from None
        if new_id:
            raise InvalidInput("--new-id is for files of `segue export`; fork what you import")
        named = session
        if not is_file and not session.endswith(".jsonl"):
            try:
                named = ids.parse(session) or (await hub.sessions.resolve(principal, session)).id
            except NotFound:
                told = f"there is neither a file nor a session {session!r}"
                beside = ", but a directory" if os.path.isdir(session) else ""
                raise NotFound(told + beside) from None
        made, count = await hub.sync.import_claude(principal, named)
        lines = "1 new line." if count == 1 else f"{count} new lines."
        click.echo(lines if count else "Nothing is new.", err=True)
        return made

    show_made(where.run(take), format)
