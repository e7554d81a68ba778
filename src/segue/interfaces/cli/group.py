"""A click group with help and usage errors as segue shows them."""

from __future__ import annotations

from typing import Any

import click

# The options that every command takes, before or after its name.
TARGET_OPTIONS = ("--data-dir", "--workspace", "--database-url", "--sources")
# Other options that may precede a command; the second one has no value.
_MIN_SIMILARITY = 0.6  # of the name of an option that an error suggests, from 0 to 1
_SOURCE, _NO_PAGER = "--source", "--no-pager"


def count_leading_options(args: list[str]) -> int:
    """Return how many arguments at the start are options of commands and their values."""
    count, options = 0, (*TARGET_OPTIONS, _SOURCE, _NO_PAGER)
    while count < len(args) and args[count].partition("=")[0] in options:
        count += 1 if "=" in args[count] or args[count] == _NO_PAGER else 2
    return count


def with_close_options(error: click.UsageError) -> click.UsageError:
    """Return the error for an unknown option with only the options whose names are similar.

    click also compares the dashes, so that `--help` is close to `--model`.
    """
    if not isinstance(error, click.NoSuchOption) or not error.possibilities:
        return error
    from difflib import get_close_matches

    name = error.option_name.lstrip("-")
    names = [option.lstrip("-") for option in error.possibilities]
    close = [f"--{match}" for match in get_close_matches(name, names, cutoff=_MIN_SIMILARITY)]
    return click.NoSuchOption(error.option_name, error.message, close, error.ctx)


class Group(click.Group):
    """A group whose help shows the whole first sentence of each command.

    Options that precede the name of a command mean the same as after it.
    """

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        count = self.count_leading_options(args)
        if count > len(args):
            raise click.BadOptionUsage(args[-1], f"Option {args[-1]!r} requires an argument.")
        if args[count : count + 1] and not args[count].startswith("-"):
            args = [args[count], *args[:count], *args[count + 1 :]]
        else:  # such as `--help`, or nothing
            args = args[count:]
        return super().parse_args(context, args)

    def count_leading_options(self, args: list[str]) -> int:
        """Return how many arguments precede the name of the command."""
        return count_leading_options(args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_section(context, formatter, "Commands", self.list_commands(context))

    def format_section(
        self, context: click.Context, formatter: click.HelpFormatter, title: str, names: list[str]
    ) -> None:
        width = max(map(len, self.list_commands(context)))
        commands = [(name.ljust(width), self.get_command(context, name)) for name in names]
        rows = [(name, command.get_short_help_str(200)) for name, command in commands if command]
        with formatter.section(title):
            formatter.write_dl(rows)

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except click.UsageError as error:
            name = context.invoked_subcommand
            command = self.get_command(context, name) if name else None
            # click leaves the context out if an option has no value.
            if error.ctx is None and command is not None:
                error.ctx = click.Context(command, parent=context, info_name=name)
            raise
