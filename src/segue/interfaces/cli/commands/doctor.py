"""`segue doctor`: is everything well, and what to do if not."""

from __future__ import annotations

import platform
import shutil
import sys
from typing import TYPE_CHECKING

import click

from segue import __version__
from segue.interfaces.cli.main import Where, located
from segue.interfaces.cli.output.formats import formatted, write_rows
from segue.model.errors import StoreError

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.hub.access.diagnostics import Finding
    from segue.model.principal import Principal

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command("doctor")
@click.option("--deep", is_flag=True, help="Look at every session, not at the latest.")
@formatted
@located
def doctor_command(where: Where, deep: bool, format: str | None) -> None:
    """Check the data directory, the store, its sessions and the sources. Nothing is changed.

    The exit code is 1 if there is a problem.

    Example: segue doctor --deep
    """
    from segue.hub.access.diagnostics import Finding

    async def check(hub: Hub, principal: Principal) -> list[Finding]:
        return [finding async for finding in hub.diagnostics.run(principal, deep=deep)]

    python = f"segue {__version__} on Python {platform.python_version()}"
    findings = [Finding("program", "ok", f"{python}, {sys.platform}")]
    try:
        findings += where.read(check)
    except StoreError as error:
        findings.append(Finding("store", "problem", error.message))
    claude = shutil.which("claude")
    found = f"claude is {claude}" if claude else "no claude on the PATH to resume its sessions with"
    findings.append(Finding("resuming", "ok", found))
    if format is not None:
        write_rows(format, ((finding._asdict(), finding._asdict()) for finding in findings))
    else:
        for about, state, message in findings:
            click.echo(f"{click.style(f'{state:<8}', fg=_COLOURS[state])} {about:<9} {message}")
    if any(finding.state == "problem" for finding in findings):
        sys.exit(1)
