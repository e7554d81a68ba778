"""The `segue` command: its groups, the options that all commands share, and its exits.

Exit codes: 0 done; 1 the store or the agent failed, or the reader of our output went away;
2 the request was wrong; 130 interrupted. `segue sessions` and its kin have their own, see
`docs/cli.md`.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from segue import __version__
from segue.event_loop import NeedsEventLoop, run_without_loop
from segue.factory import data_dir, open_hub
from segue.model.errors import SegueError, StoreError, StoreLocked
from segue.model.principal import Principal, check_workspace

from .command_list import COMMANDS, MEANT, SECTIONS

if TYPE_CHECKING:
    import asyncio

    from segue.hub import Hub

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_DATABASE_VARIABLE = "$SEGUE_DATABASE_URL"
Work = Callable[["Hub", Principal], Awaitable[T]]


class Ask(Protocol):
    """What a read comes to."""

    def __call__(self, work: Work[T]) -> T: ...


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

    def options(self) -> str:
        """Return the options that select this store and workspace, without a password."""
        import shlex

        from segue.http.redact import redact_url

        words = []
        if self.directory.absolute() != data_dir({**os.environ, "SEGUE_DATA_DIR": ""}):
            words += ["--data-dir", str(self.directory.absolute())]
        if self.database_url is not None:
            words += ["--database-url", redact_url(self.database_url) or _DATABASE_VARIABLE]
        if self.principal.workspace != "local":
            words += ["--workspace", self.principal.workspace]
        options = shlex.join(words)
        return options.replace(shlex.quote(_DATABASE_VARIABLE), f'"{_DATABASE_VARIABLE}"')

    async def open(self, lasting: bool = False) -> Hub:
        from .output.progress import bar

        return await open_hub(
            self.directory,
            self.database_url,
            sources=self.sources,
            lasting=lasting,
            progress=bar(),
        )

    def run(self, work: Work[T]) -> T:
        """Open the hub, do the work, close it."""
        import asyncio

        return asyncio.run(self._do(work))

    def read(self, work: Work[T]) -> T:
        """The same for work that only reads, and prints nothing."""
        with self.asking() as ask:
            return ask(work)

    @contextmanager
    def asking(self) -> Iterator[Ask]:
        """A hub that is asked one thing after the other, all of them reads.

        Reads of the embedded store never wait, so they are done without an event loop, which takes
        longer to import than a list takes to read. What turns out to wait is begun anew with one.
        """
        asking = _Asking(self)
        try:
            yield asking
        finally:
            asking.close()

    async def _do(self, work: Work[T]) -> T:
        async with await self.open() as hub:
            return await work(hub, self.principal)


class _Asking:
    """Drives reads of one hub by hand for as long as that is possible, then in an event loop."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._hub: Hub | None = None
        self._runner: asyncio.Runner | None = None
        if where.database_url or os.environ.get("SEGUE_DATABASE_URL"):
            self._use_loop()

    def __call__(self, work: Work[T]) -> T:
        if self._runner is None:
            try:
                return run_without_loop(self._ask(work))
            except NeedsEventLoop:
                self.close()
                self._use_loop()
        assert self._runner is not None
        return self._runner.run(self._ask(work))

    def close(self) -> None:
        hub, self._hub = self._hub, None
        if self._runner is not None:
            if hub is not None:
                self._runner.run(hub.close())
            self._runner.close()
        elif hub is not None:
            try:
                run_without_loop(hub.close())
            except NeedsEventLoop:
                import asyncio

                asyncio.run(hub.close())

    def _use_loop(self) -> None:
        import asyncio

        self._runner = asyncio.Runner()

    async def _ask(self, work: Work[T]) -> T:
        if self._hub is None:
            self._hub = await self._where.open()
        return await work(self._hub, self._where.principal)


def located(command: F) -> F:
    """Give a command the options that every command has, as one argument `where`."""

    @wraps(command)
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


_ADVICE: dict[type[SegueError], str] = {
    StoreLocked: "; try again, or end what holds it (`fuser` and `lsof` tell)",
}
_NO_PAGER = "--no-pager"
_PLACES = ("--data-dir", "--workspace", "--database-url", "--sources")


class Group(click.Group):
    """Commands whose help shows the whole first sentence of each."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_some(context, formatter, "Commands", self.list_commands(context))

    def format_some(
        self, context: click.Context, formatter: click.HelpFormatter, title: str, names: list[str]
    ) -> None:
        width = max(map(len, self.list_commands(context)))
        found = [(name.ljust(width), self.get_command(context, name)) for name in names]
        rows = [(name, command.get_short_help_str(200)) for name, command in found if command]
        with formatter.section(title):
            formatter.write_dl(rows)

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except click.UsageError as error:
            name = context.invoked_subcommand
            command = self.get_command(context, name) if name else None
            if error.ctx is None and command is not None:  # as of an option without its value
                error.ctx = click.Context(command, parent=context, info_name=name)
            raise


class _Lazy(Group):
    """Commands by name, each imported when it is called or helped."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for title, found in SECTIONS.items():
            self.format_some(context, formatter, title, list(found))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        # `beta:sessions:events` is what the vendor's command line calls `sessions events`.
        first, *inner = name.removeprefix("beta:").split(":")
        if first not in COMMANDS:
            return None
        from importlib import import_module

        module = import_module(f".{COMMANDS[first]}", __package__)
        command: click.Command = getattr(module, f"{first}_command")
        for each in inner:
            found = command.get_command(context, each) if isinstance(command, click.Group) else None
            if found is None:
                return None
            command = found
        return command

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        return super().parse_args(context, _command_first(args))

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if ":" in name and self.get_command(context, name) is None:
            from difflib import get_close_matches

            from .api.errors import unknown

            groups = [f"beta:{each}" for each, module in COMMANDS.items() if "api" in module]
            raise unknown(name, get_close_matches(name, groups, 1), "segue")
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            meant = MEANT.get(name)
            near = [meant] if meant else get_close_matches(name, COMMANDS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"There is no command {name!r}.{hint}", error.ctx) from None

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except BrokenPipeError:
            # Whoever read our output has gone; nothing is left to be said.
            _discard_output()
            sys.exit(1)


def _command_first(args: list[str]) -> list[str]:
    """What is given before a command is meant for it: `--data-dir …`, `--base-url …`."""
    if not args or not args[0].startswith("--") or args[0] in ("--help", "--version"):
        return args
    at, names = 0, set(COMMANDS)
    while at < len(args) and args[at].partition("=")[0] in (*_PLACES, _NO_PAGER):
        at += 1 if "=" in args[at] or args[at] == _NO_PAGER else 2
    if at < len(args) and args[at].startswith("--"):
        # Only the vendor's command line has further ones, some of which take no value.
        names = {name for name, module in COMMANDS.items() if module == "api.command"}
    for place, word in enumerate(args[at:], at):
        if word.removeprefix("beta:").split(":")[0] in names:
            end = args.index("--") if "--" in args else len(args)
            return [*args[place:end], *args[:place], *args[end:]]
    return args


@click.command(
    cls=_Lazy,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="segue")
@located
@click.pass_context
def segue(context: click.Context, where: Where) -> None:
    """Every AI-agent session in one place. Alone, in a terminal, it lets you pick one.

    Try it without any set-up:

        segue demo
    """
    if os.environ.get("NO_COLOR"):
        context.color = False
    if context.invoked_subcommand is None:
        if sys.stdin.isatty() and sys.stdout.isatty() and sys.platform != "win32":
            from .picker.picker import Picker

            Picker(where).run()
        else:
            click.echo(context.get_help())


def main(args: list[str] | None = None) -> None:
    """Run the command; errors become one sentence and an exit code."""
    if sys.stdout is None:  # it was closed before we began
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # for as long as we live
    try:
        _run(args)
    finally:
        # All that is left goes with the process. To look for garbage in it first would take as
        # long as a list.
        gc.freeze()


def _run(args: list[str] | None) -> None:
    try:
        segue.main(args=args, prog_name="segue", standalone_mode=False)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.UsageError as error:
        command = "segue" if error.ctx is None else error.ctx.command_path
        words = " ".join(error.format_message().split())
        words = f"{words[:1].lower()}{words[1:]}{'' if words.endswith(('.', '?', '?)')) else '.'}"
        click.echo(f"segue: {words} `{command} --help` says more.", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except SegueError as error:
        click.echo(f"segue: {error.message}{_ADVICE.get(type(error), '')}", err=True)
        for session in getattr(error, "matches", ()):
            from .output.text import one_line

            click.echo(f"  {session.id}  {one_line(session.title or '(untitled)')}", err=True)
        sys.exit(1 if isinstance(error, StoreError) else 2)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        # A file or an output that does not take what is written: a full disk, above all.
        _discard_output()
        name = f" {error.filename}" if error.filename else ""
        click.echo(f"segue: cannot go on: {error.strerror or error}{name}", err=True)
        sys.exit(1)


def _discard_output() -> None:
    """Let what is still to be written go nowhere, at the end of the program too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
