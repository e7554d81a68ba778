"""The commands that sources define: `segue claude`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from segue.interfaces.cli.arguments import (
    find_session,
    optional_session_argument,
    session_argument,
)
from segue.interfaces.cli.group import Group
from segue.interfaces.cli.output.formats import output_file
from segue.interfaces.cli.output.text import safe
from segue.interfaces.cli.target import Target, target_options
from segue.model.principal import LOCAL
from segue.model.source_command import (
    CommandArgument,
    CommandOption,
    Conversation,
    DocumentCommand,
    Note,
    SourceCommand,
    TranscriptChanged,
)

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.hub.tools import Tool
    from segue.model.principal import Principal
    from segue.model.session import Session


def command_group(tool: Tool) -> click.Group | None:
    """Return the commands of a source as a group; None if it has no commands."""
    source_commands = tool.commands()
    if source_commands is None:
        return None
    group = Group(tool.name, help=source_commands.help)
    for command in source_commands.commands:
        if isinstance(command, DocumentCommand):
            group.add_command(_document_command(command))
        else:
            group.add_command(_maintenance_command(tool.name, command))
    return group


def _maintenance_command(source: str, command: SourceCommand) -> click.Command:
    @target_options
    def run(target: Target, **values: Any) -> None:
        name = values.get("session")
        session = None if name is None else _resolve(target, name)
        if "session" in values:
            values["session"] = session
        failed = False
        for output in command.run(**values):
            match output:
                case Note():
                    click.echo(output.text, err=True)
                    failed = failed or output.problem
                case TranscriptChanged():
                    assert session is not None
                    _update_copy(target, session, source, output.native_id)
                case line:
                    click.echo(safe(" ".join(line.splitlines())))
        if failed:
            sys.exit(1)

    for option in reversed(command.options):
        run = _add_option(run, option)
    for argument in reversed(command.arguments):
        run = _add_argument(run, argument)
    return click.command(command.name, help=command.help)(run)


def _add_option(function: Any, option: CommandOption) -> Any:
    if option.default is None:
        return click.option(f"--{option.name}", is_flag=True, help=option.help)(function)
    return click.option(
        f"--{option.name}", default=option.default, show_default=True, help=option.help
    )(function)


def _add_argument(function: Any, argument: CommandArgument) -> Any:
    if argument.kind == "session":
        add = session_argument if argument.required else optional_session_argument
        return add(function)
    directory = click.Path(exists=True, file_okay=False, resolve_path=True)
    return click.argument("directory", type=directory, required=argument.required)(function)


def _document_command(command: DocumentCommand) -> click.Command:
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
    @click.option("--no-mask", is_flag=True, help="Show secrets instead of masks.")
    @target_options
    def run(target: Target, session: str, html: bool, output: str, no_mask: bool) -> None:
        import asyncio

        conversation = command.read(_resolve(target, session))
        document = asyncio.run(_render(conversation, html=html, mask=not no_mask))
        with output_file(output) as write:
            write(document.encode("utf-8", "replace"))

    return click.command(command.name, help=command.help)(run)


async def _render(conversation: Conversation, *, html: bool, mask: bool) -> str:
    from segue.render import documents
    from segue.render.reader import ConversationReader, EventReader, MaskedReader
    from segue.secrets.events import mask_session

    render = documents.html if html else documents.markdown
    reader: EventReader = ConversationReader(conversation.events)
    session = conversation.session
    if mask:
        reader, session = MaskedReader(reader), mask_session(session)
    return "".join([chunk async for chunk in render(reader, LOCAL, session)])


def _resolve(target: Target, name: str) -> Session:
    return target.read(lambda hub, principal: find_session(hub, principal, name))


def _update_copy(target: Target, session: Session, source: str, native_id: str) -> None:
    """Pull a changed transcript into the store if its session was imported."""

    async def update(hub: Hub, principal: Principal) -> None:
        if await hub.sessions.owner(principal, session.id) is None:
            await hub.sync.import_session(principal, native_id, source)

    target.run(update)
