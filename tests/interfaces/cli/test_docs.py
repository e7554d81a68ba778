"""The command line guide matches the commands."""

import re
from pathlib import Path

import click

from segue.interfaces.cli.command_list import sections
from segue.interfaces.cli.main import segue
from tests.interfaces.cli.test_formats import FIELDS

GUIDE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
COMMANDS = {name for names in sections().values() for name in names}


def test_guide_names_every_command_and_field() -> None:
    named = set(re.findall(r"`(?:segue )?([a-z_-]+)[` ]", GUIDE))
    assert named >= COMMANDS
    assert set(FIELDS) <= named


def test_options_in_the_guide_exist() -> None:
    known = set()
    for command in _all_commands(segue):
        known |= {
            option for param in command.params for option in param.opts + param.secondary_opts
        }
    named = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", GUIDE)) - {
        "--resume",
        "--model",
        "--help",
    }
    assert named and named <= known


def _all_commands(group: click.Group) -> list[click.Command]:
    context = click.Context(group)
    commands: list[click.Command] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        commands += _all_commands(command) if isinstance(command, click.Group) else [command]
    return commands
