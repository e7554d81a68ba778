"""`segue acp`: what an editor starts."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import click

from .main import Where, located

if TYPE_CHECKING:
    from ..acp import Program

SETUP = """\
segue acp answers editors. No model is configured: there is nothing to set up yet, and prompts are
answered by the demo agent, which needs no key and says what it is.\
"""


@click.command("acp")
@click.option("--agent", metavar="NAME", help="Who answers.  [default: each session's own agent]")
@click.option("--setup", is_flag=True, help="Say which agents are set up, and end.")
@click.option("--verbose", is_flag=True, help="Say on standard error what happens.")
@located
def acp_command(where: Where, agent: str | None, setup: bool, verbose: bool) -> None:
    """Speak the Agent Client Protocol on standard input and output, for an editor.

    Put this command into the editor's agent settings; every session in the store is then listed,
    loaded and continued there.

    Example: segue acp --agent demo
    """
    if setup:
        click.echo(SETUP)
        return
    level = logging.DEBUG if verbose else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="segue: %(levelname)s %(message)s")
    from ..acp import serve_stdio

    program = None if agent is None else _program(agent)
    serve_stdio(where.open, where.principal, program=program)


def _program(name: str) -> Program:
    from ...hub import Runners
    from ..acp import Program

    runners = Runners()
    if name not in runners.kinds():
        known = ", ".join(runners.kinds())
        raise click.BadParameter(f"no agent {name!r}; there are: {known}", param_hint="--agent")
    return Program(name, name, runners.build({"kind": name}))
