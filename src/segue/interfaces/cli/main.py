"""The `segue` command: its groups, and how errors become exit codes.

Exit codes: 0 success; 1 the store or the agent failed, or the output could not be written;
2 the request was wrong; 130 interrupted. `segue sessions` and the other REST API commands have
their own, see `docs/cli.md`.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from segue import __version__
from segue.hub import tools
from segue.model.errors import SegueError, StoreError, StoreLocked

from .command_list import API_COMMANDS, MODULES, SYNONYMS, sections
from .group import Group, count_leading_options, with_close_options
from .target import check_source, described_target_options

if TYPE_CHECKING:
    from .target import Target

_ADVICE: dict[type[SegueError], str] = {
    StoreLocked: "; try again, or stop the process that holds it (`fuser` or `lsof` finds it)",
}


class _LazyGroup(Group):
    """The top-level group, which imports a command's module when the command is used."""

    def list_commands(self, context: click.Context) -> list[str]:
        return [name for names in sections().values() for name in names]

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names of all commands by section, then the options: all on one screen."""
        with formatter.section("Commands"):
            formatter.write_dl([(title, ", ".join(names)) for title, names in sections().items()])
        records = [parameter.get_help_record(context) for parameter in self.get_params(context)]
        with formatter.section("Options"):
            formatter.write_dl([record for record in records if record is not None])

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        # The vendor's command line calls `sessions events` `beta:sessions:events`.
        first, *inner_names = name.removeprefix("beta:").split(":")
        command = _load_command(first)
        for inner_name in inner_names:
            if not isinstance(command, click.Group):
                return None
            command = command.get_command(context, inner_name)
        return command

    def count_leading_options(self, args: list[str]) -> int:
        return 0  # This group has these options itself, for the picker.

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        return super().parse_args(context, _move_command_first(args))

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if ":" in name and self.get_command(context, name) is None:
            from difflib import get_close_matches

            from .api.errors import unknown_command

            names = [f"beta:{command}" for command in API_COMMANDS]
            raise unknown_command(name, get_close_matches(name, names, 1), "segue")
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            synonym = SYNONYMS.get(name)
            suggestions = (
                [synonym] if synonym else get_close_matches(name, self.list_commands(context), 1)
            )
            hint = f" Did you mean {suggestions[0]!r}?" if suggestions else ""
            raise click.UsageError(f"Unknown command {name!r}.{hint}", error.ctx) from None

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except BrokenPipeError:
            # The program that reads our output has ended, as `head` does.
            _discard_output()
            sys.exit(1)


def _load_command(name: str) -> click.Command | None:
    """Import and return a top-level command; None if there is none with this name."""
    if name in MODULES:
        from importlib import import_module

        module = import_module(f".{MODULES[name]}", __package__)
        command: click.Command = getattr(module, f"{name.replace('-', '_')}_command")
        return command
    tool = tools.find_tool(name)
    if tool is None:
        return None
    from .commands.source import command_group

    return command_group(tool)


def _move_command_first(args: list[str]) -> list[str]:
    """Return the arguments with options that precede the command moved behind its name."""
    if not args or not args[0].startswith("--") or args[0] in ("--help", "--version"):
        return args
    index, names = count_leading_options(args), frozenset([*MODULES, *tools.names()])
    if index < len(args) and args[index].startswith("--"):
        # Only the REST API commands have other options here, some of them without a value.
        names = API_COMMANDS
    for position, word in enumerate(args[index:], index):
        if word.removeprefix("beta:").split(":")[0] in names:
            end = args.index("--") if "--" in args else len(args)
            return [*args[position:end], *args[:position], *args[end:]]
    return args


@click.command(
    cls=_LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="segue")
@click.option("--source", metavar="NAME", callback=check_source, help="Only sessions of this tool.")
@described_target_options
@click.pass_context
def segue(context: click.Context, target: Target, source: str | None) -> None:
    """All your AI-agent sessions. Without a command, pick one in the terminal.
    `segue COMMAND --help` explains a command. `segue demo` needs no set-up.
    """
    if os.environ.get("NO_COLOR"):
        context.color = False
    if context.invoked_subcommand is None:
        if sys.stdin.isatty() and sys.stdout.isatty() and sys.platform != "win32":
            from .picker.picker import run_picker

            run_picker(target, source)
        else:
            click.echo(context.get_help())


def main(args: list[str] | None = None) -> None:
    """Run the command; print an error as one sentence and exit with its code."""
    if sys.stdout is None:  # standard output was closed before the program started
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # stays open until the process ends
    try:
        _run(args)
    finally:
        # Threads that wait for a busy parser would keep this process alive. Most commands need no
        # parser and do not import the module.
        if (untrusted := sys.modules.get("segue.untrusted")) is not None:
            untrusted.PARSERS.close()
        # The process ends. A last garbage collection would take as long as a list.
        gc.freeze()


def _run(args: list[str] | None) -> None:
    try:
        segue.main(args=args, prog_name="segue", standalone_mode=False)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.UsageError as error:
        click.echo(f"segue: {_usage_message(error)}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        if type(error) is click.ClickException:
            click.echo(f"segue: {error.format_message()}", err=True)
        else:
            error.show()
        sys.exit(error.exit_code)
    except SegueError as error:
        _show_error(error)
        sys.exit(1 if isinstance(error, StoreError) else 2)
    except OSError as error:
        # A file or an output that cannot be written: most often the disk is full.
        _discard_output()
        name = f"cannot use {error.filename}" if error.filename else "stopped by an error"
        click.echo(f"segue: {name}: {error.strerror or error}", err=True)
        sys.exit(1)


def _usage_message(error: click.UsageError) -> str:
    command = "segue" if error.ctx is None else error.ctx.command_path
    message = " ".join(with_close_options(error).format_message().split())
    message = message.replace("a valid integer range", "a whole number")
    end = "" if message.endswith((".", "?", "?)")) else "."
    return f"{message[:1].lower()}{message[1:]}{end} Run `{command} --help` for usage."


def _show_error(error: SegueError) -> None:
    from segue.hub.sessions.resolve import AmbiguousName

    from .output.text import match_lines, safe

    # A message may quote a file of an unknown author.
    click.echo(safe(f"segue: {error.message}{_ADVICE.get(type(error), '')}"), err=True)
    if isinstance(error, AmbiguousName):
        for line in match_lines(error):
            click.echo(f"  {line}", err=True)


def _discard_output() -> None:
    """Send the rest of the output to /dev/null, including what is flushed at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
