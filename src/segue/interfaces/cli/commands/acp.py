"""`segue acp`: what an editor starts."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import sys
from typing import TYPE_CHECKING

import click

from segue.interfaces.cli.main import Where, located

if TYPE_CHECKING:
    from segue.interfaces.acp import Program

_CHILD = "acp:"
SETUP = """\
segue acp answers editors, with the model {model}. Another one:

    segue config set model PROVIDER:NAME\
"""
UNSET = """\
segue acp answers editors. No model is configured, so prompts are answered by the demo agent, which
needs no key and says what it is. To have a model answer, with its key in the environment:

    segue config set model anthropic:claude-sonnet-4-6\
"""


@click.command("acp")
@click.option(
    "--agent",
    metavar="NAME",
    help="Who answers: demo, model, or acp:COMMAND, any other agent of the protocol."
    "  [default: each session's own agent]",
)
@click.option("--setup", is_flag=True, help="Say which agents are set up, and end.")
@click.option("--login", is_flag=True, help="Run the other agent with these ARGS, and end.")
@click.option("--verbose", is_flag=True, help="Say on standard error what happens.")
@click.argument("args", nargs=-1)
@located
def acp_command(
    where: Where,
    agent: str | None,
    setup: bool,
    login: bool,
    verbose: bool,
    args: tuple[str, ...],
) -> None:
    """Speak the Agent Client Protocol on standard input and output, for an editor.

    Put this command into the editor's agent settings; every session in the store is then listed,
    loaded and continued there. Editors that offer another agent's login in a terminal run
    `segue acp --agent "acp:COMMAND" --login -- ARGS`.

    Example: segue acp --agent "acp:claude-agent-acp"
    """
    if setup:
        model = _model(where)
        click.echo(UNSET if model is None else SETUP.format(model=model))
        return
    if login:
        words = _words((agent or "").removeprefix(_CHILD))
        if not words or not (agent or "").startswith(_CHILD):
            raise _no_agent("--login needs acp:COMMAND")
        os.execvp(words[0], [*words, *args])
    if args:
        raise click.UsageError("ARGS are for --login")
    level = logging.DEBUG if verbose else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="segue: %(levelname)s %(message)s")
    from segue.interfaces.acp import serve_stdio

    program = None if agent is None else _program(agent)
    serve_stdio(lambda: where.open(lasting=True), where.principal, program=program)


def _model(where: Where) -> str | None:
    """The configured model; a store that is not there yet is not made to find none."""
    if where.database_url is None and not where.directory.exists():
        return None
    config = where.read(lambda hub, principal: hub.config.all(principal.workspace))
    model: str | None = config.get("model")
    return model


def _program(name: str) -> Program:
    from segue.interfaces.acp import Program

    if name.startswith(_CHILD):
        command = name.removeprefix(_CHILD).strip()
        words = _words(command)
        if not words or shutil.which(words[0]) is None:
            raise _no_agent(f"there is no program {command!r} to start")
        return Program(f"{_CHILD}{command}", {"kind": "acp", "command": command})
    from segue.agents.registry import AgentRegistry

    if name not in (known := AgentRegistry().kinds()):
        raise _no_agent(f"no agent {name!r}; there are: {', '.join(known)}, and acp:COMMAND")
    return Program(name, {"kind": name})


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise _no_agent(f"{command!r} is no command: {error}") from None


def _no_agent(why: str) -> click.BadParameter:
    return click.BadParameter(why, param_hint="--agent")
