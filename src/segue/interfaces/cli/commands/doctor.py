"""Check the installation: `segue doctor`."""

from __future__ import annotations

import platform
import shutil
import sys
from typing import TYPE_CHECKING

import click

from segue import __version__
from segue.hub.tools import all_tools
from segue.interfaces.cli.output.formats import format_option, write_rows
from segue.interfaces.cli.target import Target, target_options
from segue.model.errors import StoreError

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.hub.access.diagnostics import Finding
    from segue.model.principal import Principal

_COLORS = {"ok": "green", "note": "cyan", "warning": "yellow", "problem": "red"}


@click.command("doctor")
@click.option("--deep", is_flag=True, help="Check every session, not only the latest.")
@format_option
@target_options
def doctor_command(target: Target, deep: bool, format: str | None) -> None:
    """Check the data directory, the store, its sessions and the sources, without changes.

    The exit code is 1 if there is a problem.

    Example: segue doctor --deep
    """
    from segue.hub.access.diagnostics import Finding

    async def check(hub: Hub, principal: Principal) -> list[Finding]:
        return [finding async for finding in hub.diagnostics.run(principal, deep=deep)]

    versions = f"segue {__version__} on Python {platform.python_version()}, {sys.platform}"
    findings = [Finding("program", "ok", versions)]
    try:
        findings += target.read(check)
    except StoreError as error:
        findings.append(Finding("store", "problem", error.message))
    for tool in all_tools():
        path = shutil.which(tool.program)
        if path is None:
            message = f"{tool.program} is not on your PATH, so its sessions cannot be resumed there"
            findings.append(Finding("resuming", "note", message))
        else:
            findings.append(Finding("resuming", "ok", f"{tool.program} is {path}"))
    if format is not None:
        write_rows(format, ((finding._asdict(), finding._asdict()) for finding in findings))
    else:
        for about, state, message in findings:
            click.echo(f"{click.style(f'{state:<8}', fg=_COLORS[state])} {about:<9} {message}")
    if any(finding.state == "problem" for finding in findings):
        sys.exit(1)
