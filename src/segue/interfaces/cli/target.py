"""The store and workspace that a command works on, and the options that select them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from segue.hub import tools
from segue.hub.location import data_dir
from segue.model.principal import Principal, check_workspace

from .group import TARGET_OPTIONS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from segue.hub import Hub

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Work = Callable[["Hub", Principal], Awaitable[T]]
_STORE = "segue"  # the source of sessions in segue's own store
_DATABASE_VARIABLE = "${SEGUE_DATABASE_URL:?}"


class HubReader(Protocol):
    """Runs one read on an open hub and returns its result."""

    def __call__(self, read: Work[T]) -> T: ...


class Target:
    """The store and workspace that a command's options select."""

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

    @property
    def has_secret_url(self) -> bool:
        """Whether the URL of the database has a part that must not be shown."""
        from segue.redact import redact_url

        return self.database_url is not None and redact_url(self.database_url) != self.database_url

    def command_options(self, *, in_shell: bool = False) -> str:
        """Return the options that select the same store in any terminal, without a password.

        With `in_shell`, a URL with a password is the variable SEGUE_DATABASE_URL, which the shell
        must have; it refuses the command otherwise.
        """
        import shlex

        from segue.redact import redact_url

        words = []
        if self.directory.absolute() != data_dir({**os.environ, "SEGUE_DATA_DIR": ""}):
            words += ["--data-dir", str(self.directory.absolute())]
        if self.database_url is not None:
            url = None if in_shell and self.has_secret_url else redact_url(self.database_url)
            words += ["--database-url", url or _DATABASE_VARIABLE]
        if self.principal.workspace != "local":
            words += ["--workspace", self.principal.workspace]
        options = shlex.join(words)
        return options.replace(shlex.quote(_DATABASE_VARIABLE), f'"{_DATABASE_VARIABLE}"')

    async def open(self, *, lasting: bool = False) -> Hub:
        """Open the hub; a `lasting` one also watches sources that are not used yet."""
        from segue.factory import open_hub

        from .output.progress import index_progress

        return await open_hub(
            self.directory,
            self.database_url,
            sources=self.sources,
            lasting=lasting,
            progress=index_progress(),
        )

    def run(self, work: Work[T], *, lasting: bool = False) -> T:
        """Open the hub, do the work under an event loop, close the hub; see `open`."""
        import asyncio

        return asyncio.run(self._open_and_do(work, lasting=lasting))

    def read(self, read: Work[T]) -> T:
        """Open the hub, read without an event loop if possible, close the hub.

        `read` must not write or print: it may run twice.
        """
        with self.reader() as reader:
            return reader(read)

    @contextmanager
    def reader(self) -> Iterator[HubReader]:
        """Keep one hub open for several reads, none of which may write or print."""
        from segue.hub.read_runner import ReadRunner

        in_database = bool(self.database_url or os.environ.get("SEGUE_DATABASE_URL"))
        runner = ReadRunner(self.open, use_loop=in_database)
        try:
            yield lambda read: runner.run(lambda hub: read(hub, self.principal))
        finally:
            runner.close()

    async def _open_and_do(self, work: Work[T], *, lasting: bool) -> T:
        async with await self.open(lasting=lasting) as hub:
            return await work(hub, self.principal)


def source_option(command: F) -> F:
    """Add the option `--source`: the name of a source, or `segue`."""
    return click.option(
        "--source",
        metavar="NAME",
        callback=check_source,
        shell_complete=_complete_source,
        help=f"Only sessions created in this tool: {', '.join([*tools.built_in_names(), _STORE])}.",
    )(command)


def _complete_source(
    context: click.Context, parameter: click.Parameter, prefix: str
) -> list[CompletionItem]:
    return completions([*tools.names(), _STORE], prefix)


def completions(names: Iterable[str], prefix: str) -> list[CompletionItem]:
    """Return the names that begin with what was typed."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.startswith(prefix)]


def check_source(
    context: click.Context, parameter: click.Parameter, name: str | None
) -> str | None:
    """Return the name of a source; raises BadParameter if there is none with this name."""
    if name is None or name in (_STORE, *tools.built_in_names()) or name in tools.names():
        return name
    names = ", ".join([*tools.names(), _STORE])
    message = f"there is no source {name!r}; the sources are {names}"
    raise click.BadParameter(message, context, parameter)


class _GlobalOption(click.Option):
    """An option that every command has, and that only `segue --help` describes."""

    def get_help_record(self, context: click.Context) -> tuple[str, str] | None:
        if self.name != "sources":
            return None  # the last one stands for all
        return ", ".join(TARGET_OPTIONS), "See `segue --help`."


def target_options(command: F) -> F:
    """Add the options that every command has; the command receives them as `target`.

    The help names them in one line.
    """
    return _add_target_options(command, option_class=_GlobalOption)


def described_target_options(
    command: F,
    *,
    default_directory: str = "the platform's",
    default_sources: str = "all",
) -> F:
    """Add the options that every command has, with a description in the help."""
    return _add_target_options(
        command, default_directory=default_directory, default_sources=default_sources
    )


def _target_options(
    option_class: type[click.Option], default_directory: str, default_sources: str
) -> list[Callable[[F], F]]:
    return [
        click.option(
            "--data-dir",
            "data_dir_option",
            cls=option_class,
            type=click.Path(file_okay=False, path_type=Path),
            envvar="SEGUE_DATA_DIR",
            help=f"Where segue keeps its data.  [default: {default_directory}]",
        ),
        click.option(
            "--workspace",
            cls=option_class,
            default="local",
            metavar="NAME",
            show_default=True,
            help="The workspace to use.",
        ),
        click.option(
            "--database-url",
            cls=option_class,
            envvar="SEGUE_DATABASE_URL",
            metavar="URL",
            help="A PostgreSQL database instead of the embedded store.",
        ),
        click.option(
            "--sources",
            cls=option_class,
            envvar="SEGUE_SOURCES",
            metavar="NAMES",
            help=f"Tools to include: claude,codex or none.  [default: {default_sources}]",
        ),
    ]


def _add_target_options(
    command: F,
    *,
    option_class: type[click.Option] = click.Option,
    default_directory: str = "",
    default_sources: str = "",
) -> F:

    @wraps(command)
    def wrapped(
        *args: Any,
        data_dir_option: Path | None,
        workspace: str,
        database_url: str | None,
        sources: str | None,
        **kwargs: Any,
    ) -> Any:
        target = Target(data_dir_option, workspace, database_url, sources)
        return command(*args, target=target, **kwargs)

    for option in reversed(_target_options(option_class, default_directory, default_sources)):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]  # the same command, with `target` filled in
