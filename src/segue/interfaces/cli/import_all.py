"""Import all sessions of other tools: `segue import --all`."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

import click

from segue.interfaces.cli.output.formats import write_value
from segue.interfaces.cli.output.output_fields import session_fields
from segue.interfaces.cli.output.progress import show_count
from segue.interfaces.cli.output.text import one_line, title_text

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.hub.sync.import_all import ImportStep
    from segue.model.principal import Principal

    from .target import Target

_NOUNS = {"imported": "imported", "updated": "updated", "unchanged": "up to date"}


def import_all(target: Target, source: str | None, format: str | None, *, follow: bool) -> None:
    """Import all sessions, or those of one source; with `follow`, until Ctrl-C.

    Prints how many, or with a format a line for each session that was imported or updated. The
    exit code is 1 if a session could not be imported.
    """
    results: Counter[str] = Counter()

    async def run(hub: Hub, principal: Principal) -> None:
        importing = hub.import_all.follow if follow else hub.import_all.run
        async for step in importing(principal, source):
            results[step.result] += 1
            _show_step(step, format, quiet=not follow)
            if not follow:
                show_count(results.total(), "sessions", done=False)

    try:
        target.run(run, lasting=follow)
    finally:
        show_count(results.total(), "sessions", done=True)
        counts = [f"{results[name]} {noun}" for name, noun in _NOUNS.items()]
        if results["failed"]:
            counts.append(f"{results['failed']} failed")
        click.echo(f"Sessions of other tools: {', '.join(counts)}.", err=True)
    if results["failed"]:
        sys.exit(1)


def _show_step(step: ImportStep, format: str | None, *, quiet: bool) -> None:
    """Print a failure, and a line for a session that changed; `quiet` leaves it out for people."""
    session = step.session
    if step.result == "failed":
        message = f"segue: {session.source} session {session.id}: {step.error}"
        click.echo(one_line(message), err=True)
    elif step.result == "unchanged":
        return
    elif format is not None:
        # A list would have no end with --follow, and a CSV header would repeat.
        fields = {"result": step.result, **session_fields(session)}
        write_value("jsonl" if format in ("csv", "json") else format, fields)
    elif not quiet:
        title = title_text(session)
        click.echo(f"{session.id}  {step.result}  {session.source}  {title}")
