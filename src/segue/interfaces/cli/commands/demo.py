"""Serve example sessions from a separate store: `segue demo`."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path

import click

from segue.hub import Hub
from segue.hub.location import data_dir
from segue.interfaces.cli.target import Target, described_target_options
from segue.model.content import Text
from segue.model.principal import Principal
from segue.model.query import Query

from .serve import PORT_TYPE, ServeOptions, program_name, serve

# Title, prompt for the demo agent, tag.
_SESSIONS = [
    (
        "Why is the nightly build slow?",
        "/think The log will show which step takes the time.\n"
        "/plan x read the log; > measure each step; fix the slowest\n"
        "/tool grep build.log: 'resolving dependencies' took 312 s of 401 s\n"
        "/say Resolving dependencies takes three quarters of the time: nothing is cached.\n"
        "/usage 1840 212",
        "build",
    ),
    (
        "Write a haiku about sessions",
        "/say Closed lid, train, new desk:\n/say the talk resumes where it stopped.\n"
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
@partial(
    described_target_options,
    default_directory="segue-demo, next to the usual one",
    default_sources="none",
)
def demo_command(target: Target, port: int | None) -> None:
    """Start a demo server with sample sessions, and print three commands to try.

    The demo needs no key and no other service. It uses its own data directory and creates the
    sessions there if it is empty. Ctrl-C stops it.

    Example: segue demo
    """
    if target.directory == data_dir() and target.database_url is None:
        target.directory = target.directory.with_name("segue-demo")
    target.sources = target.sources or "none"
    target.run(_create_sessions)
    options = ServeOptions(
        port=port,
        always_show_key=True,
        examples=lambda url, key_path: _examples(url, key_path, target),
    )
    serve(target, options)


async def _create_sessions(hub: Hub, principal: Principal) -> None:
    """Create the example sessions if the store is empty."""
    from segue.server.start_lock import start_lock

    async with start_lock(hub.data_dir):  # another demo may start at the same time
        if (await hub.sessions.list(principal, Query(limit=1))).sessions:
            return
        for title, script, tag in _SESSIONS:
            session = await hub.editor.create(principal, title=title, tag=tag, origin="demo")
            await hub.turns.run(principal, session.id, [Text(text=script)])


def _examples(url: str, key_path: Path, target: Target) -> str:
    command = program_name()
    options = f"{target.command_options(in_shell=True)} --sources none"
    return f"""
Three things to try, in another terminal:

  {command} search connection {options}

  {command} prompt new /help {options}

  curl -s '{url}/v1/sessions?limit=1' -H "x-api-key: $(cat {shlex.quote(str(key_path))})" \\
    -H "anthropic-version: 2023-06-01" -H "anthropic-beta: managed-agents-2026-04-01"

Ctrl-C stops the demo.
"""
