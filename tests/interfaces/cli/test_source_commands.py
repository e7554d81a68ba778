"""The command line builds a source's commands from its definition."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import click
from click.testing import CliRunner

from segue.interfaces.cli.commands.source import command_group
from segue.model.source_command import (
    CommandArgument,
    CommandOption,
    CommandOutput,
    Note,
    SourceCommand,
    SourceCommands,
)


def build_group(*commands: SourceCommand) -> click.Group:
    definition: Any = SimpleNamespace(
        name="other", commands=lambda: SourceCommands("Maintain Other's files.", commands)
    )
    group = command_group(definition)
    assert group is not None
    return group


def test_command_gets_its_arguments_and_options_by_name() -> None:
    received: dict[str, Any] = {}

    def run(**values: Any) -> Iterator[CommandOutput]:
        received.update(values)
        yield "done"

    command = SourceCommand(
        "tidy",
        "Tidy up.",
        run,
        arguments=(CommandArgument("directory"),),
        options=(CommandOption("days", "How many.", default=7), CommandOption("all", "All.")),
    )
    done = CliRunner().invoke(build_group(command), ["tidy", "--all", "/"])
    assert (done.exit_code, done.stdout) == (0, "done\n")
    assert received == {"directory": "/", "days": 7, "all": True}


def test_problem_is_reported_on_standard_error_with_exit_code_1() -> None:
    def run() -> Iterator[CommandOutput]:
        yield "one\x1b[2J"
        yield Note("one file is damaged", problem=True)

    done = CliRunner().invoke(build_group(SourceCommand("check", "Check.", run)), ["check"])
    assert (done.exit_code, done.stdout) == (1, "one\ufffd[2J\n")
    assert done.stderr == "one file is damaged\n"


def test_source_without_commands_adds_none() -> None:
    definition: Any = SimpleNamespace(name="other", commands=lambda: None)
    assert command_group(definition) is None
