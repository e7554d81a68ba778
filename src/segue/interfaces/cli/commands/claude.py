"""`segue claude`: what Claude Code's own files need now and then."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click

from segue.interfaces.cli.arguments import session_argument
from segue.interfaces.cli.main import Group, Where, located
from segue.interfaces.cli.output.formats import written
from segue.interfaces.cli.output.text import one_line
from segue.model import clock
from segue.model.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.model.principal import Principal
    from segue.model.session import Session

T = TypeVar("T")


@click.group("claude", cls=Group)
def claude_command() -> None:
    """Claude Code's own files: check and heal them, keep them, let them follow a project.

    Example: segue claude doctor
    """


@claude_command.command("doctor")
@click.argument("session", required=False)
@click.option("--repair", is_flag=True, help="Heal what can be; the old file stays beside.")
@located
def doctor(where: Where, session: str | None, repair: bool) -> None:
    """Find torn, NUL-padded, glued and otherwise broken lines, in one transcript or in all.

    Nothing is changed without --repair. The exit code is 1 if something is left to heal.

    Example: segue claude doctor --repair 5f1c9a52
    """
    from segue import claude
    from segue.sources.claude.format.processes import SessionIsLive

    checked = left = 0
    for id in _everyone() if session is None else [_named(where, session)]:
        try:
            found = _tried(partial(claude.doctor, id, repair=repair))
        except SessionIsLive as error:
            click.echo(f"{id}  {error.message}")
            left += 1
            continue
        checked += 1
        if found.healthy:
            continue
        kinds = ", ".join(f"line {each.line} {each.kind}" for each in found.findings[:5])
        more = f" and {len(found.findings) - 5} more" if len(found.findings) > 5 else ""
        click.echo(f"{id}  {kinds}{more}")
        if found.backup is None:
            left += 1
        else:
            click.echo(f"      healed; the file as it was: {one_line(found.backup)}")
    sound = "" if left else ": it is sound" if checked == 1 else ": all are sound"
    click.echo(f"{checked} transcript{'s' * (checked != 1)} read{sound}", err=True)
    if left and not repair:
        click.echo("--repair heals what can be; the old file stays beside.", err=True)
    if left:
        sys.exit(1)


@claude_command.command("pin")
@session_argument
@click.option("--days", default=365, show_default=True, help="For how long.")
@click.option("--off", is_flag=True, help="Take the pin off again.")
@located
def pin(where: Where, session: str, days: int, off: bool) -> None:
    """Keep a session from Claude Code's cleanup, which deletes files after 30 days.

    The cleanup goes by the age of the file, so a pin dates it ahead. The next prompt in the
    session dates it back: pin it again.

    Example: segue claude pin 5f1c9a52 --days 90
    """
    from segue import claude

    id = _named(where, session)
    if off:
        _tried(lambda: claude.unpin_session(id))
        return
    until = _tried(lambda: claude.pin_session(id, days=days))
    click.echo(f"kept until {clock.to_rfc3339(until * 1000)[:10]}")


@claude_command.command("relocate")
@session_argument
@click.argument("directory", type=click.Path(exists=True, file_okay=False, resolve_path=True))
@located
def relocate(where: Where, session: str, directory: str) -> None:
    """Let a session follow its project: DIRECTORY is where the project is now.

    Example: segue claude relocate 5f1c9a52 ~/work/renamed
    """
    from segue import claude

    id = _named(where, session)
    found = where.read(lambda hub, principal: hub.sessions.resolve(principal, session)).id
    _tried(lambda: claude.relocate_session(id, directory))

    async def follow(hub: Hub, principal: Principal) -> None:
        if await hub.sessions.owner(principal, found) is None:
            await hub.sync.import_claude(principal, id)

    where.run(follow)  # so that a copy in the store knows


@claude_command.command("export")
@session_argument
@click.option("--html", is_flag=True, help="One page of HTML instead of Markdown.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    default="-",
    metavar="FILE",
    help="The file to write; `-`, as without it, is standard output.",
)
@located
def export(where: Where, session: str, html: bool, output: str) -> None:
    """Write a session's conversation as a document.

    Example: segue claude export 5f1c9a52 --html -o session.html
    """
    from segue import claude

    id = _named(where, session)
    made = _tried(lambda: (claude.export_html if html else claude.export_markdown)(id))
    with written(output) as put:
        put(made.encode("utf-8", "replace"))


def _everyone() -> list[str]:
    """The sessions that Claude Code has transcripts of, also those that have a copy here."""
    from segue.sources.claude.format import paths, safe_io
    from segue.sources.claude.sdk import locate

    home = paths.ClaudeHome.current()
    entries = (
        each
        for project in paths.list_projects(home)
        for each in safe_io.list_directory(project.path)
    )
    ids = {id for each in entries if (id := paths.session_id_from_file_name(each.name)) is not None}
    return [id for id in sorted(ids) if locate.find_copies(home, id)]


def _named(where: Where, session: str) -> str:
    """What Claude Code calls a session that it has a transcript of."""
    from segue.sources.claude.exchange import event_codec
    from segue.sources.claude.format import paths
    from segue.sources.claude.sdk import locate

    found: Session = where.read(lambda hub, principal: hub.sessions.resolve(principal, session))
    name = found.native_id or event_codec.native_session_id(found)
    if locate.find_transcript(paths.ClaudeHome.current(), name) is None:
        raise InvalidInput(f"session {found.id} is not in Claude Code's files")
    return name


def _tried(work: Callable[[], T]) -> T:
    """What a function of the library gives, its errors as those of this command."""
    try:
        return work()
    except FileExistsError as error:
        raise Conflict(str(error)) from None
    except (OSError, ValueError) as error:
        raise InvalidInput(str(error)) from None
