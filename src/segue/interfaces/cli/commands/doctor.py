"""Check the installation: `segue doctor`."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from typing import TYPE_CHECKING, Literal

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
    """Check the data directory, the store, its sessions, the sources and the model.

    Nothing is changed, and no request is sent to the model.

    The exit code is 1 if there is a problem.

    Example: segue doctor --deep
    """
    from segue.hub.access.diagnostics import Finding

    async def check(hub: Hub, principal: Principal) -> list[Finding]:
        findings = [finding async for finding in hub.diagnostics.run(principal, deep=deep)]
        return [*findings, await _check_model(hub, principal)]

    versions = f"segue {__version__} on Python {platform.python_version()}, {sys.platform}"
    findings = [Finding("program", "ok", versions)]
    try:
        findings += target.read(check)
    except StoreError as error:
        findings.append(Finding("store", "problem", error.message))
    findings.append(_check_programs())
    if format is not None:
        write_rows(format, ((finding._asdict(), finding._asdict()) for finding in findings))
    else:
        for about, state, message in findings:
            click.echo(f"{click.style(f'{state:<8}', fg=_COLORS[state])} {about:<9} {message}")
    if any(finding.state == "problem" for finding in findings):
        sys.exit(1)


async def _check_model(hub: Hub, principal: Principal) -> Finding:
    """Return whether the configured model can be used."""
    from segue.hub.access.config import has_model_packages, next_model_step, unused_key_hint
    from segue.hub.access.diagnostics import Finding

    values = await hub.config.all(principal.workspace)
    model = values.get("model")
    if model is None:
        if hint := unused_key_hint(values, os.environ):
            return Finding("model", "note", f"none is configured; {hint}")
        step = next_model_step(os.environ)
        state: Literal["ok", "note"] = "ok" if has_model_packages() else "note"
        return Finding("model", state, f"none is configured; to use one, {step}")
    problem = await hub.config.model_problem(principal.workspace)
    if problem is not None:
        return Finding("model", "warning", f"{model} cannot be used yet: {problem}")
    return Finding("model", "ok", str(model))


def _check_programs() -> Finding:
    """Return which tools can resume their sessions: all that were used here should."""
    from segue.hub.access.diagnostics import Finding

    tools = all_tools()
    paths = {tool.program: shutil.which(tool.program) for tool in tools}
    used = [tool.program for tool in tools if os.path.exists(tool.home())]
    missing = [program for program in used or paths if paths[program] is None]
    if missing and (used or len(missing) == len(paths)):
        names = ", ".join(missing)
        are = "are" if len(missing) > 1 else "is"
        message = f"{names} {are} not on your PATH, so sessions cannot be resumed there"
        return Finding("resuming", "note", message)
    installed = [f"{program} is {path}" for program, path in paths.items() if path is not None]
    return Finding("resuming", "ok", ", ".join(installed))
