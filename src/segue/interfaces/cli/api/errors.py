"""How these commands fail: 1 for what is wrong with a request or its answer, 3 for no command."""

from __future__ import annotations

import sys
from typing import IO, Any

import click


class Failure(click.ClickException):
    """A sentence on standard error, and an exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # a constant of the class above
        return self.code

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, err=True, file=file)


def usage(error: click.UsageError, path: str) -> Failure:
    """A mistake in the flags, in the words that the vendor's command line has for it."""
    if isinstance(error, click.NoSuchOption):
        name = error.option_name.lstrip("-")
        near = [each for each in error.possibilities or () if each]
        hint = f". Did you mean {near[0]!r}?" if near else ""
        return Failure(f"Incorrect Usage: flag provided but not defined: -{name}{hint}")
    words = error.format_message().rstrip(".")
    return Failure(f"Incorrect Usage: {words}\nRun '{path} --help' for usage information")


def missing(flag: str, path: str) -> Failure:
    return Failure(f"Required flag \"{flag}\" not set\nRun '{path} --help' for usage information")


def unknown(name: str, near: list[str], path: str) -> Failure:
    hint = f" Did you mean '{path} {near[0]}'?" if near else f" '{path} --help' lists them."
    return Failure(f"No help topic for '{name}'.{hint}", 3)


def warn(message: str) -> None:
    print(message, file=sys.stderr)
