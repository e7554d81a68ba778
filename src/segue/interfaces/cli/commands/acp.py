"""Serve an editor over the Agent Client Protocol: `segue acp`."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

import click

from segue.interfaces.cli.target import Target, target_options

if TYPE_CHECKING:
    from segue.interfaces.acp import ServedAgent

_COMMAND_PREFIX = "acp:"
MODEL_SET = """\
segue acp answers editors with the model {model}. To use another one:

    segue config set model PROVIDER:NAME\
"""
NO_MODEL = """\
segue acp answers editors. No model is configured, so the demo agent answers prompts; it needs no
key. To use a model, set its key in the environment and run:

    segue config set model anthropic:claude-sonnet-4-6\
"""


@click.command("acp")
@click.option(
    "--agent",
    metavar="NAME",
    help="The agent that answers, such as demo or model; acp:COMMAND for another ACP agent,"
    " acp+ws://HOST/acp or acp+http://HOST/acp for one elsewhere."
    "  [default: each session's own agent]",
)
@click.option("--setup", is_flag=True, help="Show which model is configured, and exit.")
@click.option("--login", is_flag=True, help="Run the other agent with these ARGS, and exit.")
@click.option(
    "--finish-turns",
    is_flag=True,
    help="When the editor closes the pipe, let the turns that it started finish first.",
)
@click.option("--verbose", is_flag=True, help="Log details on standard error.")
@click.argument("args", nargs=-1)
@target_options
def acp_command(
    target: Target,
    agent: str | None,
    setup: bool,
    login: bool,
    finish_turns: bool,
    verbose: bool,
    args: tuple[str, ...],
) -> None:
    """Speak the Agent Client Protocol on standard input and output, for an editor.

    Add this command to the editor's agent settings; the editor then lists, loads and continues
    every session in the store. Editors that offer another agent's login in a terminal run
    `segue acp --agent "acp:COMMAND" --login -- ARGS`.

    Example: segue acp --agent "acp:claude-agent-acp"
    """
    if setup:
        model = _configured_model(target)
        click.echo(NO_MODEL if model is None else MODEL_SET.format(model=model))
        return
    if login:
        _run_login(agent or "", args)
    if args:
        raise click.UsageError("ARGS are only for --login")
    level = logging.DEBUG if verbose else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="segue: %(levelname)s %(message)s")
    from segue.interfaces.acp import serve_stdio

    served_agent = None if agent is None else _served_agent(agent)
    serve_stdio(
        lambda: target.open(lasting=True),
        target.principal,
        served_agent=served_agent,
        finish_turns=finish_turns,
    )


def _run_login(agent: str, args: tuple[str, ...]) -> None:
    """Replace this process by the other agent's command."""
    command = _split_command(agent.removeprefix(_COMMAND_PREFIX))
    if not command or not agent.startswith(_COMMAND_PREFIX):
        raise _bad_agent("--login needs acp:COMMAND")
    os.execvp(command[0], [*command, *args])


def _configured_model(target: Target) -> str | None:
    """Return the configured model, without creating a store to look it up."""
    if target.database_url is None and not target.directory.exists():
        return None
    config = target.read(lambda hub, principal: hub.config.all(principal.workspace))
    model: str | None = config.get("model")
    return model


def _served_agent(name: str) -> ServedAgent:
    from segue.acp.remote import check_url, is_remote
    from segue.interfaces.acp import ServedAgent

    if name.startswith(_COMMAND_PREFIX):
        from shutil import which

        command = name.removeprefix(_COMMAND_PREFIX).strip()
        words = _split_command(command)
        if not words or which(words[0]) is None:
            raise _bad_agent(f"program {command!r} not found")
        return ServedAgent(f"{_COMMAND_PREFIX}{command}", {"kind": "acp", "command": command})
    if is_remote(name):
        try:
            check_url(name)
        except ValueError as error:
            raise _bad_agent(str(error)) from None
        return ServedAgent(name, {"kind": "acp", "command": name})
    from segue.agents.registry import AgentRegistry

    kinds = AgentRegistry().kinds()
    if name not in kinds:
        raise _bad_agent(
            f"unknown agent {name!r}; use {', '.join(kinds)} acp:COMMAND or acp+ws://HOST/acp"
        )
    return ServedAgent(name, {"kind": name})


def _split_command(command: str) -> list[str]:
    import shlex

    try:
        return shlex.split(command)
    except ValueError as error:
        raise _bad_agent(f"cannot parse the command {command!r}: {error}") from None


def _bad_agent(message: str) -> click.BadParameter:
    return click.BadParameter(message, param_hint="--agent")
