"""A click group with help and usage errors as segue shows them."""

from __future__ import annotations

from typing import Any

import click


class Group(click.Group):
    """A group whose help shows the whole first sentence of each command."""

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
