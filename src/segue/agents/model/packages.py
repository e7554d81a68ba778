"""Install the packages of an environment into the directory of a session, before its first turn.

pip and npm run in the strict sandbox of the session's programs and reach the network through its
egress proxy only. They share a cache with the other sessions of the workspace, to which no other
program has access. A tool call shows the progress; the model does not see it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from segue.agents.base import Turn
from segue.agents.sandbox import launch
from segue.agents.sandbox.scratch import make_scratch_directory
from segue.agents.tools.base import ToolContext, ToolError, completed_result, failed_result
from segue.agents.tools.bash import (
    PACKAGES_DIRECTORY,
    base_environment,
    package_program,
    sandboxed_program,
)
from segue.model import ids
from segue.model.event import Failed, ToolCall
from segue.model.session import is_session_directory

from .conversation import HIDDEN_CALL

INSTALL_SECONDS = 900.0
MAX_OUTPUT_CHARACTERS = 4_000
TOOL_NAME = "install_packages"
_MARKER = "packages.json"  # in the scratch directory, where programs cannot write
# The operator's own registries.
_INHERITED_VARIABLES = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_CERT"),
    *("NPM_CONFIG_REGISTRY", "NODE_EXTRA_CA_CERTS"),
)


async def install_packages(
    turn: Turn, packages: Mapping[str, Sequence[str]], cache: str, context: ToolContext
) -> None:
    """Install packages by manager, unless that was tried before in this session.

    A failure becomes an event, and the turn continues.
    """
    manifest = msgspec.json.encode(packages, order="sorted")
    scratch = make_scratch_directory(turn.session.id)
    marker = scratch / _MARKER
    if marker.exists() and marker.read_bytes() == manifest:
        return
    for manager, names in packages.items():
        if names:
            await _install(turn, manager, list(names), Path(cache), context, scratch)
    marker.write_bytes(manifest)


async def _install(
    turn: Turn, manager: str, names: list[str], cache: Path, context: ToolContext, scratch: Path
) -> None:
    call = ToolCall(
        call_id=ids.new_id(),
        name=TOOL_NAME,
        kind="execute",
        input={"manager": manager, "packages": names},
        extra=HIDDEN_CALL,
    )
    await turn.emit(call)
    try:
        output, code = await _run(manager, names, cache, context, scratch)
    except (ToolError, OSError, TimeoutError) as error:
        output, code = str(error), 1
    refusals = () if context.egress is None else context.egress.take_refusals()
    text = "\n".join([output.strip(), *(f"[refused connection: {item}]" for item in refusals)])
    result = failed_result(text) if code else completed_result(text)
    events = [msgspec.structs.replace(result, call_id=call.call_id)]
    problems = [Failed(message=f"refused connection: {refusal}") for refusal in refusals]
    if code:
        reason = output.strip().splitlines()[-1:] or ["no output"]
        message = f"{manager} could not install {', '.join(names)}: {reason[0]}"
        problems.append(Failed(message=message))
    await turn.emit(*events, *problems)


async def _run(
    manager: str, names: list[str], cache: Path, context: ToolContext, scratch: Path
) -> tuple[str, int]:
    """Return the end of a manager's output and its exit code."""
    directory = context.paths.real_directories[0]
    if not is_session_directory(directory):
        raise ToolError(f"{directory} is not a directory that segue made for this session")
    cache = cache / manager
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    env = base_environment(scratch, local=False)
    env |= {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    command = _command(manager, names, os.path.join(directory, PACKAGES_DIRECTORY), str(cache), env)
    await launch.detect_backends()
    command, env = sandboxed_program(
        command, env, context.for_other_caller(), scratch, write=[str(cache.resolve())]
    )
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=directory,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(INSTALL_SECONDS):
            output = await _read_end(process)
            return output, await process.wait()
    except TimeoutError:
        raise ToolError(f"{manager} took longer than {INSTALL_SECONDS:.0f} seconds") from None
    finally:
        if process.returncode is None:
            await asyncio.shield(launch.end(process))


async def _read_end(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    end = b""
    while data := await process.stdout.read(65_536):
        end = (end + data)[-MAX_OUTPUT_CHARACTERS:]
    return end.decode("utf-8", "replace")


def _command(
    manager: str, names: list[str], directory: str, cache: str, env: Mapping[str, str]
) -> list[str]:
    """Return the command of a manager. Raises ToolError if it is not installed."""
    program = package_program(manager, env["PATH"])
    if program is None:
        raise ToolError(f"{manager} is not installed on this server")
    target = os.path.join(directory, manager)
    if manager == "pip":
        options = ["--disable-pip-version-check", "--no-input", "--progress-bar=off"]
        options += ["--no-warn-script-location", "--cache-dir", cache, "--target", target]
        return [program, "-m", "pip", "install", *options, "--", *names]
    options = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=warn"]
    return [program, "install", *options, "--cache", cache, "--prefix", target, "--", *names]
