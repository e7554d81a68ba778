"""The guide to the command line is true."""

import re
from pathlib import Path

import click

from segue.interfaces.cli.command_list import COMMANDS
from segue.interfaces.cli.main import segue
from tests.interfaces.cli.test_formats import FIELDS

GUIDE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()


def test_the_guide_names_every_command_and_field() -> None:
    named = set(re.findall(r"`(?:segue )?([a-z_]+)[` ]", GUIDE))
    assert set(COMMANDS) <= named
    assert set(FIELDS) <= named


def test_every_option_that_the_guide_names_exists() -> None:
    known = set()
    for command in _all(segue):
        known |= {option for param in command.params for option in param.opts}
    named = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", GUIDE)) - {
        "--resume",
        "--model",
        "--help",
    }
    assert named and named <= known


def _all(group: click.Group) -> list[click.Command]:
    context = click.Context(group)
    found: list[click.Command] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found += _all(command) if isinstance(command, click.Group) else [command]
    return found
