"""`segue demo`: the core at work, from a terminal, on a store of its own."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from ...home import data_dir
from ...hub import Hub
from ...model.content import Text
from ...model.errors import SegueError
from ...model.principal import Principal
from ...model.query import Query
from .main import Where, located
from .output import show_found, show_sessions
from .talking import converse

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
@located
def demo_command(where: Where) -> None:
    """Show segue at work: a few sessions, a live turn, a search, and what to try next.

    It needs no key and no service, and uses a store of its own beside the real one
    (or the one that --data-dir names).

    Example: segue demo
    """
    where.sources = "none"
    if where.directory == data_dir() and where.database_url is None:
        where.directory = where.directory.with_name("segue-demo")
    where.run(lambda hub, principal: _show(hub, principal, where.directory))


async def _show(hub: Hub, principal: Principal, directory: Path) -> None:
    page = await hub.list(principal, Query(limit=1))
    if not page.sessions:
        for title, script, tag in _SESSIONS:
            session = await hub.create(principal, title=title, tag=tag, origin="demo")
            await hub.run(principal, session.id, [Text(text=script)])
    _heading("The sessions in this store, most recent first")
    page = await hub.list(principal, Query(limit=10))
    show_sessions(page.sessions)

    _heading("A turn, as it happens (the demo agent: no model, no key)")
    session = await hub.create(principal, origin="demo")
    await converse(hub, principal, session.id, "/slow 0.02\nHello! Show me that you are listening.")

    _heading("Found by its words: connection")
    show_found((await hub.search(principal, Query(text="connection", limit=3))).found)

    _heading("Three things to try")
    try:
        shown = page.sessions[-1].id[:13]
    except IndexError:
        raise SegueError("the demo's sessions are gone; run it again") from None
    command = shlex.quote(sys.argv[0]) if Path(sys.argv[0]).name == "segue" else "segue"
    for words in (
        f"show {shown}",
        "prompt new /help",
        "search --ranked slow build",
    ):
        click.echo(f"  {command} {words} --data-dir {shlex.quote(str(directory))}")


def _heading(text: str) -> None:
    click.echo()
    click.echo(click.style(text, bold=True))
