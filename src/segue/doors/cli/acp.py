"""`segue acp`: what an editor starts."""

from __future__ import annotations

import logging
import sys

import click

from .main import Where, located


@click.command("acp")
@click.option("--verbose", is_flag=True, help="Say on standard error what happens.")
@located
def acp_command(where: Where, verbose: bool) -> None:
    """Speak the Agent Client Protocol on standard input and output, for an editor.

    Put this command into the editor's agent settings; every session in the store is then listed,
    loaded and continued there.

    Example: segue acp --workspace local
    """
    level = logging.DEBUG if verbose else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="segue: %(levelname)s %(message)s")
    from ..acp import serve_stdio

    where.run(serve_stdio)
