"""Errors of the REST API commands: exit code 1 for a failed request, 3 for an unknown command.

The wording of usage errors is that of the vendor's command line.
"""

from __future__ import annotations

import sys
from typing import IO, Any

import click

from segue.interfaces.cli.group import with_close_options


class ApiFailure(click.ClickException):
    """A message on standard error, and an exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # a constant in the base class
        return self.code

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, err=True, file=file)


def usage_failure(error: click.UsageError, command: str) -> ApiFailure:
    """Return a usage error in the vendor's words."""
    error = with_close_options(error)
    if isinstance(error, click.NoSuchOption):
        name = error.option_name.lstrip("-")
        suggestions = list(error.possibilities or ())
        hint = f". Did you mean {suggestions[0]!r}?" if suggestions else ""
        return ApiFailure(f"Incorrect Usage: flag provided but not defined: -{name}{hint}")
    message = error.format_message().rstrip(".")
    return ApiFailure(f"Incorrect Usage: {message}\nRun '{command} --help' for usage information")


def missing_flag(flag: str, command: str) -> ApiFailure:
    """Return the error for a required flag that is missing."""
    return ApiFailure(
        f"Required flag \"{flag}\" not set\nRun '{command} --help' for usage information"
    )


def unknown_command(name: str, suggestions: list[str], command: str) -> ApiFailure:
    """Return the error for an unknown command, with exit code 3."""
    hint = f" '{command} --help' lists the commands."
    if suggestions:
        hint = f" Did you mean '{command} {suggestions[0]}'?"
    return ApiFailure(f"No help topic for '{name}'.{hint}", 3)


def warn(message: str) -> None:
    """Print a message on standard error."""
    print(message, file=sys.stderr)
