"""Serve sessions to agents over MCP: `segue mcp`; add the server to a tool: `segue mcp install`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable

import click
from click.core import ParameterSource

from segue.hub import tools
from segue.interfaces.cli import settings_file
from segue.interfaces.cli.target import Target, described_target_options, target_options
from segue.interfaces.mcp.scope import McpSettings, Scope, require_package
from segue.model.errors import InvalidInput

SERVER_NAME = "segue"


def _target_options(command: Callable[..., None]) -> Callable[..., None]:
    return described_target_options(
        command,
        default_directory="the platform's data directory",
        default_sources="all, with the embedded store",
    )


@click.group("mcp", invoke_without_command=True)
@click.option(
    "--scope",
    type=click.Choice(["directory", "repo", "all"]),
    default="repo",
    show_default=True,
    help="Which sessions agents get: of this directory, of its repository with all worktrees, or "
    "all of the workspace.",
)
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIRECTORY",
    help="The directory of the scope.  [default: the working directory]",
)
@click.option("--allow-write", is_flag=True, help="Let agents set titles, tags and notes.")
@click.option("--no-mask", is_flag=True, help="Show secrets instead of masks.")
@_target_options
@click.pass_context
def mcp_command(
    context: click.Context,
    target: Target,
    scope: Scope,
    cwd: str | None,
    allow_write: bool,
    no_mask: bool,
) -> None:
    """Give agents your history: an MCP server over all sessions, on standard input and output.

    An agent can search and read sessions of every tool, and cannot change them without
    --allow-write. Secrets are masked. `segue mcp install TOOL` adds the server to a tool.

    \b
    Example: segue mcp install codex
             segue mcp --scope all
    """
    if context.invoked_subcommand is not None:
        return
    require_package()
    from segue.interfaces.mcp.server import serve_stdio

    settings = McpSettings(
        scope=scope,
        directory=os.path.abspath(cwd or os.curdir),
        allow_write=allow_write,
        mask=not no_mask,
    )
    serve_stdio(lambda: target.open(lasting=True), target.principal, settings)


def _server_options(context: click.Context) -> list[str]:
    """Return the options of an installed server: those before `install`, and those after it."""
    assert context.parent is not None
    values = {**context.parent.params}
    for name, value in context.params.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            values[name] = value
    target = Target(values["data_dir_option"], values["workspace"], values["database_url"])
    options = shlex.split(target.command_options())
    if values["scope"] != "repo":
        options += ["--scope", values["scope"]]
    if values["cwd"] is not None:
        options += ["--cwd", os.path.abspath(values["cwd"])]
    options += ["--allow-write"] * values["allow_write"]
    return [*options, *["--no-mask"] * values["no_mask"]]


@mcp_command.command("install")
@click.argument("tool", metavar="TOOL")
@click.option("--yes", is_flag=True, help="Write the file without asking.")
@target_options
@click.pass_context
def install(context: click.Context, target: Target, tool: str, yes: bool) -> None:
    """Add this server to a tool's configuration, after showing the change.

    Options before `install` become those of the server.

    \b
    Example: segue mcp install claude
             segue mcp --scope all install goose
    """
    require_package()
    config = tools.mcp_config(tool)
    if config is None:
        known = ", ".join(tools.mcp_tools())
        raise InvalidInput(f"segue cannot configure {tool!r}; it can configure {known}")
    command = [*_program(), "mcp", *_server_options(context)]
    changed = settings_file.change(
        config.path, lambda text: config.add(text, SERVER_NAME, command), yes=yes
    )
    if not changed:
        click.echo(f"{config.path} has this server already.", err=True)
        return
    click.echo(f"Wrote {config.path}. Restart {tools.label(tool)} to use the server.", err=True)


def _program() -> list[str]:
    """Return the command that starts this segue in any terminal."""
    from shutil import which

    installed = which("segue")
    if installed is not None and os.path.realpath(installed) == os.path.realpath(sys.argv[0]):
        return ["segue"]
    return [sys.executable, "-m", "segue"]
