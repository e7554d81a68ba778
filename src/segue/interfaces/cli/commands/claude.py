"""Maintain Claude Code's own session files: `segue claude`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click

from segue.interfaces.cli.arguments import session_argument
from segue.interfaces.cli.main import Group
from segue.interfaces.cli.output.formats import output_file
from segue.interfaces.cli.output.text import one_line
from segue.interfaces.cli.target import Target, target_options
from segue.model import clock
from segue.model.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.model.principal import Principal
    from segue.model.session import Session

T = TypeVar("T")
_MAX_SHOWN_FINDINGS = 5


@click.group("claude", cls=Group)
def claude_command() -> None:
    """Maintain Claude Code's session files: check, repair, pin and relocate them.

    Example: segue claude doctor
    """


@claude_command.command("doctor")
@click.argument("session", required=False)
@click.option("--repair", is_flag=True, help="Repair transcripts; keep a backup of each.")
@target_options
def doctor(target: Target, session: str | None, repair: bool) -> None:
    """Find damaged lines (torn, NUL-padded, joined) in one transcript or in all.

    Changes nothing without --repair. The exit code is 1 if damage remains.

    Example: segue claude doctor --repair 5f1c9a52
    """
    from segue import claude
    from segue.sources.claude.format.processes import SessionIsLive

    checked = damaged = 0
    for id in _transcript_ids() if session is None else [_native_id(target, session)]:
        try:
            report = _translate_errors(partial(claude.doctor, id, repair=repair))
        except SessionIsLive as error:
            click.echo(f"{id}  {error.message}")
            damaged += 1
            continue
        checked += 1
        if report.healthy:
            continue
        shown = report.findings[:_MAX_SHOWN_FINDINGS]
        kinds = ", ".join(f"line {finding.line} {finding.kind}" for finding in shown)
        hidden = len(report.findings) - len(shown)
        click.echo(f"{id}  {kinds}{f' and {hidden} more' if hidden else ''}")
        if report.backup is None:
            damaged += 1
        else:
            click.echo(f"      repaired; backup: {one_line(report.backup)}")
    result = "" if damaged else ", no damage left"
    click.echo(f"{checked} transcript{'s' * (checked != 1)} checked{result}", err=True)
    if damaged and not repair:
        click.echo("Use --repair to repair them; a backup of each is kept.", err=True)
    if damaged:
        sys.exit(1)


@claude_command.command("pin")
@session_argument
@click.option("--days", default=365, show_default=True, help="For how many days.")
@click.option("--off", is_flag=True, help="Remove the pin.")
@target_options
def pin(target: Target, session: str, days: int, off: bool) -> None:
    """Protect a session from Claude Code's cleanup, which deletes files after 30 days.

    The cleanup looks at the age of the file, so a pin sets its time to the future. The next
    prompt in the session resets the time: then pin it again.

    Example: segue claude pin 5f1c9a52 --days 90
    """
    from segue import claude

    id = _native_id(target, session)
    if off:
        _translate_errors(lambda: claude.unpin_session(id))
        return
    until = _translate_errors(lambda: claude.pin_session(id, days=days))
    click.echo(f"Pinned until {clock.to_rfc3339(until * 1000)[:10]}")


@claude_command.command("relocate")
@session_argument
@click.argument("directory", type=click.Path(exists=True, file_okay=False, resolve_path=True))
@target_options
def relocate(target: Target, session: str, directory: str) -> None:
    """Move a session to another project directory: DIRECTORY is where the project is now.

    Example: segue claude relocate 5f1c9a52 ~/work/renamed
    """
    from segue import claude

    id = _native_id(target, session)
    segue_id = target.read(lambda hub, principal: hub.sessions.resolve(principal, session)).id
    _translate_errors(lambda: claude.relocate_session(id, directory))

    async def update_copy(hub: Hub, principal: Principal) -> None:
        """Pull the new directory into the store if the session was imported."""
        if await hub.sessions.owner(principal, segue_id) is None:
            await hub.sync.import_session(principal, id, "claude")

    target.run(update_copy)


@claude_command.command("export")
@session_argument
@click.option("--html", is_flag=True, help="Write an HTML page instead of Markdown.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    default="-",
    metavar="FILE",
    help="The file to write; `-`, the default, is standard output.",
)
@target_options
def export(target: Target, session: str, html: bool, output: str) -> None:
    """Export a session's conversation as a document.

    Example: segue claude export 5f1c9a52 --html -o session.html
    """
    from segue import claude

    id = _native_id(target, session)
    render = claude.export_html if html else claude.export_markdown
    document = _translate_errors(lambda: render(id))
    with output_file(output) as write:
        write(document.encode("utf-8", "replace"))


def _transcript_ids() -> list[str]:
    """Return the ids of all transcripts, including those of imported sessions."""
    from segue.sources.claude.format import paths, safe_io
    from segue.sources.claude.sdk import locate

    home = paths.ClaudeHome.current()
    file_names = (
        entry.name
        for project in paths.list_projects(home)
        for entry in safe_io.list_directory(project.path)
    )
    ids = {id for name in file_names if (id := paths.session_id_from_file_name(name)) is not None}
    return [id for id in sorted(ids) if locate.find_copies(home, id)]


def _native_id(target: Target, session: str) -> str:
    """Return Claude Code's id of a session. Raises InvalidInput if it has no transcript."""
    from segue.sources.claude.exchange import event_codec
    from segue.sources.claude.format import paths
    from segue.sources.claude.sdk import locate

    resolved: Session = target.read(lambda hub, principal: hub.sessions.resolve(principal, session))
    id = resolved.native_id or event_codec.native_session_id(resolved)
    if locate.find_transcript(paths.ClaudeHome.current(), id) is None:
        raise InvalidInput(f"session {resolved.id} has no Claude Code transcript")
    return id


def _translate_errors(work: Callable[[], T]) -> T:
    """Return the result of a function of `segue.claude`, with its errors as ours."""
    try:
        return work()
    except FileExistsError as error:
        raise Conflict(str(error)) from None
    except (OSError, ValueError) as error:
        raise InvalidInput(str(error)) from None
