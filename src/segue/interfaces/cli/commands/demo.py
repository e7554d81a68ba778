"""`segue demo`: the server at work, on a store of its own with a few sessions in it."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from segue.factory import data_dir
from segue.hub import Hub
from segue.interfaces.cli.main import Where, located
from segue.model.content import Text
from segue.model.principal import Principal
from segue.model.query import Query

from .serve import PORT_TYPE, choose_port, program_name, serve

_SESSIONS = [
    (
        "Why is the nightly build slow?",
        "/think The log will say which step takes the time.\n"
        "/plan x read the log; > measure each step; fix the slowest\n"
        "/tool grep build.log: 'resolving dependencies' took 312 s of 401 s\n"
        "/say Three quarters of the time go to resolving dependencies: nothing is cached.\n"
        "/usage 1840 212",
        "build",
    ),
    (
        "Write a haiku about sessions",
        "/say Closed lid, train, new desk:\n/say the talk goes on where it stopped.\n"
        "/say No word has been lost.",
        None,
    ),
    (
        "Retry the upload when the connection drops",
        "/plan find the upload; wrap it in a retry; test it with a cut connection\n"
        "/tool read upload.py: one attempt, no timeout\n"
        "/say The upload gives up at the first error. I would retry three times, with a pause.",
        "network",
    ),
]


@click.command("demo")
@click.option("--port", type=PORT_TYPE, help="The port.  [default: 8787, or a free one]")
@located
def demo_command(where: Where, port: int | None) -> None:
    """Serve a few sessions to look at, and name three things to try.

    It needs no key and no service, and uses a store of its own beside the real one (or the one
    that --data-dir names), in which it makes the sessions if there are none. Ctrl-C ends it.

    Example: segue demo
    """
    if where.directory == data_dir() and where.database_url is None:
        where.directory = where.directory.with_name("segue-demo")
    where.sources = where.sources or "none"
    where.run(_furnish)
    serve(
        where,
        port=choose_port(port),
        always_show_key=True,
        examples=lambda url, key: _tries(url, key, where),
    )


async def _furnish(hub: Hub, principal: Principal) -> None:
    """Some sessions, unless there are any."""
    if (await hub.sessions.list(principal, Query(limit=1))).sessions:
        return
    for title, script, tag in _SESSIONS:
        session = await hub.editor.create(principal, title=title, tag=tag, origin="demo")
        await hub.turns.run(principal, session.id, [Text(text=script)])


def _tries(url: str, key: Path, where: Where) -> str:
    command = program_name()
    place = f"{where.options()} --sources none"
    return f"""
Three things to try, in another terminal:

  {command} search connection {place}

  {command} prompt new /help {place}

  curl -s '{url}/v1/sessions?limit=1' -H "x-api-key: $(cat {shlex.quote(str(key))})" \\
    -H "anthropic-version: 2023-06-01" -H "anthropic-beta: managed-agents-2026-04-01"

Ctrl-C ends it.
"""
