"""The `segue` command: its groups, the options that all commands share, and its exits.

Exit codes: 0 done; 1 the store or the agent failed, or the reader of our output went away;
2 the request was wrong; 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ... import __version__
from ...home import data_dir, open_hub
from ...model.errors import SegueError, StoreError
from ...model.principal import Principal, check_workspace

if TYPE_CHECKING:
    from ...hub import Hub

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Where:
    """The store and workspace that a command was pointed at."""

    def __init__(
        self,
        directory: Path | None,
        workspace: str,
        database_url: str | None,
        sources: str | None = None,
    ) -> None:
        self.directory = directory or data_dir()
        self.database_url = database_url
        self.sources = sources
        self.principal = Principal(workspace=check_workspace(workspace), local=True)

    async def open(self) -> Hub:
        from .progress import bar

        return await open_hub(
            self.directory, self.database_url, sources=self.sources, progress=bar()
        )

    def run(self, work: Callable[[Hub, Principal], Awaitable[T]]) -> T:
        """Open the hub, do the work, close it."""
        import asyncio

        async def do() -> T:
            async with await self.open() as hub:
                return await work(hub, self.principal)

        return asyncio.run(do())


def located(command: F) -> F:
    """Give a command the options that every command has, as one argument `where`."""

    def wrapped(
        *args: Any,
        data_dir_option: Path | None,
        workspace: str,
        database_url: str | None,
        sources: str | None,
        **kwargs: Any,
    ) -> Any:
        where = Where(data_dir_option, workspace, database_url, sources)
        return command(*args, where=where, **kwargs)

    wrapped.__name__ = command.__name__
    wrapped.__doc__ = command.__doc__
    options = [
        click.option(
            "--data-dir",
            "data_dir_option",
            type=click.Path(file_okay=False, path_type=Path),
            envvar="SEGUE_DATA_DIR",
            help="Where segue keeps its data.  [default: the platform's data directory]",
        ),
        click.option(
            "--workspace",
            default="local",
            show_default=True,
            help="The workspace whose sessions are meant.",
        ),
        click.option(
            "--database-url",
            envvar="SEGUE_DATABASE_URL",
            help="A PostgreSQL database instead of the embedded store: postgresql://…",
        ),
        click.option(
            "--sources",
            envvar="SEGUE_SOURCES",
            metavar="NAMES",
            help="Other tools whose sessions are shown too: claude, or none.  "
            "[default: claude, with the embedded store]",
        ),
    ]
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]  # the same command, with `where` filled in


# Each command, and the module that has it.
_COMMANDS = {
    "acp": "acp",
    "config": "config",
    "demo": "demo",
    "export": "sessions",
    "import": "sessions",
    "keys": "keys",
    "list": "sessions",
    "new": "sessions",
    "open": "serve",
    "prompt": "sessions",
    "search": "sessions",
    "serve": "serve",
    "show": "sessions",
}


class _Lazy(click.Group):
    """Commands by name, each imported when it is called or helped."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        from importlib import import_module

        module = import_module(f".{_COMMANDS[name]}", __package__)
        command: click.Command = getattr(module, f"{name}_command")
        return command


@click.command(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="segue")
def segue() -> None:
    """Every AI-agent session in one place.

    Try it without any set-up:

        segue demo
    """


def main(args: list[str] | None = None) -> None:
    """Run the command; errors become one sentence and an exit code."""
    try:
        segue.main(args=args, prog_name="segue", standalone_mode=False)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except SegueError as error:
        click.echo(f"segue: {error.message}", err=True)
        for session in getattr(error, "meant", ()):
            from .output import one_line

            click.echo(f"  {session.id}  {one_line(session.title or '(untitled)')}", err=True)
        sys.exit(1 if isinstance(error, StoreError) else 2)
    except KeyboardInterrupt:
        sys.exit(130)
