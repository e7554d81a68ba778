"""The bash tool: a persistent shell, in a sandbox if the system supports one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from segue.agents.sandbox import launch
from segue.agents.sandbox.scratch import make_scratch_directory
from segue.model.event import ToolResult

from .base import Status, Tool, ToolContext, ToolError, ToolInput, completed_result, failed_result
from .shell import Shell, ShellPool

DEFAULT_TIMEOUT_SECONDS = 120.0
_INHERITED_VARIABLES = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "USER",
    "LOGNAME",
    "SHELL",
    "HOME",
)
PACKAGES_DIRECTORY = ".packages"  # in the directory of a session
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TEMP_DIRECTORIES = ("/tmp", "/var/tmp", "/dev/shm")
_NO_SANDBOX = (
    "this machine has no sandbox for programs, and only its local user may run them without one;"
    " use the file tools instead"
)


class BashInput(ToolInput, frozen=True):
    command: str | None = None
    restart: Annotated[
        bool, Meta(description="Start a new shell; the state of the old one is lost.")
    ] = False
    timeout_ms: Annotated[int, Meta(ge=1, le=600_000)] | None = None


async def _run_bash(context: ToolContext, arguments: BashInput) -> ToolResult:
    shells: ShellPool = context.shells
    # A shell keeps the sandbox that it was started in.
    port = None if context.egress is None else context.egress.port
    key = (context.session, context.thread, context.local, port, *sorted(context.env.items()))
    if arguments.restart:
        await shells.drop(key)
        if arguments.command is None:
            return completed_result("The shell was restarted.")
    if not arguments.command:
        raise ToolError("a command is needed, or restart")
    if "\0" in arguments.command:
        raise ToolError("a command cannot contain a NUL character")
    await launch.detect_backends()
    shell = shells.get(key, lambda: _make_shell(context))
    if shell.variables != context.variables:  # a credential was added, changed or removed
        await shells.drop(key)
        shell = shells.get(key, lambda: _make_shell(context))
    timeout_ms = arguments.timeout_ms
    seconds = DEFAULT_TIMEOUT_SECONDS if timeout_ms is None else timeout_ms / 1000
    try:
        result = await shell.run(arguments.command, seconds)
    except TimeoutError as error:
        return failed_result(
            f"{error}\n\n[killed after {seconds:g} s; the next command gets a new shell]"
        )
    except OSError as error:
        raise ToolError(f"the shell could not be started: {error}") from None
    output, code, shell_ended = result
    notes = [f"[exit code {code}]"] if code else []
    if shell_ended:
        notes.append("[the shell ended; the next command gets a new one]")
    text = "\n\n".join([output, *notes]).strip() if notes else output or "(no output)"
    status: Status = "failed" if code else "completed"
    return replace(completed_result(text, status=status), exit_code=code)


def _make_shell(context: ToolContext) -> Shell:
    bash = shutil.which("bash")
    if bash is None:
        raise ToolError("bash is not installed on this machine")
    try:
        scratch = make_scratch_directory(context.session)
    except launch.SandboxError as error:
        raise ToolError(str(error)) from None
    env = {**base_environment(scratch, local=not _is_isolated(context)), **context.env}
    command, env = sandboxed_program([bash, "--noprofile", "--norc"], env, context, scratch)
    return Shell(command, context.paths.real_directories[0], env, context.variables)


def sandboxed_program(
    command: list[str],
    env: dict[str, str],
    context: ToolContext,
    scratch: Path,
    *,
    write: Sequence[str] = (),
) -> tuple[list[str], dict[str, str]]:
    """Return a command and its environment in the sandbox that the caller and settings require.

    The program may write to the directories in `write`, too.
    Raises ToolError if this machine cannot provide it. Only the local user's default sandbox is
    optional.
    """
    isolated = _is_isolated(context)
    level = "strict" if isolated else context.config.get("bash.confine", "write")
    if level == "off" or (level == "write" and launch.backend(isolated=False) is None):
        return launch.supervised_command(command, env)
    if launch.backend(isolated=isolated) is None:
        raise ToolError(_NO_SANDBOX)
    write = [*context.paths.real_directories, str(scratch / "home"), *write]
    if not isolated:
        write += map(os.path.realpath, _TEMP_DIRECTORIES)
    if isolated and context.packages:
        env = _with_packages(env, context.paths.real_directories[0])
    proxy_port = None
    if context.egress is not None and launch.supports_proxy():
        proxy_port = context.egress.port
        env = {**env, **context.egress.environment()}
    policy = launch.Policy(
        write=[path for path in dict.fromkeys(write) if os.path.isdir(path)],
        isolated=isolated,
        private=context.private if isolated else (),
        proxy_port=proxy_port,
        shm=str(scratch / "shm"),
        read_only=context.paths.read_only,
        limits=_limits(context.config) if isolated else None,
    )
    try:
        return launch.sandboxed_command(command, env, policy)
    except launch.SandboxError as error:
        raise ToolError(str(error)) from None


def package_program(manager: str, path: str) -> str | None:
    """Return the program that installs packages of a manager; None if it is not installed."""
    return shutil.which("python3" if manager == "pip" else manager, path=path)


def _with_packages(env: dict[str, str], directory: str) -> dict[str, str]:
    """Return an environment in which programs find the packages of a session."""
    pip = os.path.join(directory, PACKAGES_DIRECTORY, "pip")
    modules = os.path.join(directory, PACKAGES_DIRECTORY, "npm", "node_modules")
    path = [os.path.join(pip, "bin"), os.path.join(modules, ".bin"), env.get("PATH", "")]
    return {**env, "PATH": ":".join(path), "PYTHONPATH": pip, "NODE_PATH": modules}


def _is_isolated(context: ToolContext) -> bool:
    """Return whether the programs of a session run in the strict sandbox."""
    limited = context.egress is not None
    return not context.local or limited or context.config.get("bash.confine") == "strict"


def base_environment(scratch: Path, *, local: bool) -> dict[str, str]:
    """Return the environment for programs; it has no API keys and no variables of segue."""
    env = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    home = str(scratch / "home")
    if not local:
        env |= {"HOME": home, "PATH": DEFAULT_PATH, "USER": "segue", "LOGNAME": "segue"}
        env["GIT_CONFIG_NOSYSTEM"] = "1"  # git fails if it cannot read the machine's settings
    return {**env, "TERM": "dumb", "TMPDIR": home, "PAGER": "cat", "GIT_PAGER": "cat"}


def _limits(config: Mapping[str, Any]) -> launch.Limits:
    names = launch.Limits._fields
    values = {name: config[key] for name in names if (key := f"sandbox.{name}") in config}
    return launch.Limits(**values)


BASH = Tool(
    "bash",
    "execute",
    "Run a command in a bash that stays open: it keeps its directory and variables from one command"
    " to the next. Standard input is empty. The middle of a long output is left out.",
    BashInput,
    _run_bash,
)
