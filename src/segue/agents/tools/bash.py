"""bash: a persistent shell, confined to the session's directories where the system can do that."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from segue.model.event import ToolResult

from . import sandbox
from .base import Input, Tool, ToolContext, ToolError, done, failed
from .shell import Shell, ShellPool

SECONDS = 120.0
_KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME", "SHELL", "HOME")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REFUSED = (
    "this machine cannot confine programs, and only its local user may run them unconfined;"
    " use the file tools instead"
)


class Bash(Input, frozen=True):
    command: str | None = None
    restart: Annotated[bool, Meta(description="Begin a new shell, all state lost.")] = False
    timeout_ms: Annotated[int, Meta(ge=1, le=600_000)] | None = None


async def _bash(context: ToolContext, given: Bash) -> ToolResult:
    shells: ShellPool = context.shells
    key = (context.session, context.local, *sorted(context.env.items()))
    if given.restart:
        await shells.drop(key)
        if given.command is None:
            return done("The shell was restarted.")
    if not given.command:
        raise ToolError("a command is needed, or restart")
    if "\0" in given.command:
        raise ToolError("a command cannot hold a NUL character")
    shell = shells.get(key, lambda: _shell(context))
    if shell.variables != context.variables:  # a credential has come, changed or gone
        await shells.drop(key)
        shell = shells.get(key, lambda: _shell(context))
    seconds = SECONDS if given.timeout_ms is None else given.timeout_ms / 1000
    try:
        ran = await shell.run(given.command, seconds)
    except TimeoutError as error:
        return failed(f"{error}\n\n[killed after {seconds:g} s; the next command gets a new shell]")
    except OSError as error:
        raise ToolError(f"no shell could be started: {error}") from None
    if ran.code is None:
        return failed(f"{ran.output}\n\n[the shell ended; the next command gets a new one]".strip())
    if ran.code != 0:
        return failed(f"{ran.output}\n\n[exit code {ran.code}]".strip())
    return done(ran.output or "(no output)")


def _shell(context: ToolContext) -> Shell:
    bash = shutil.which("bash")
    if bash is None:
        raise ToolError("there is no bash on this machine")
    place = scratch(context)
    command = launched([bash, "--noprofile", "--norc"], context, place)
    own = {**environment(context.local, place), **context.env}
    return Shell(command, context.roots.real_directories[0], own, context.variables)


def launched(command: list[str], context: ToolContext, scratch: str) -> list[str]:
    """A command, confined as far as who asks for it demands and the machine can."""
    level = context.config.get("bash.confine", "write") if context.local else "strict"
    if level == "off":
        return command
    alone = level == "strict"
    if sandbox.way(alone) is None:
        if context.local and level == "write":
            return command
        raise ToolError(_REFUSED)
    read = (*sandbox.SYSTEM, *context.roots.real_directories) if alone else ("/",)
    write = (
        *context.roots.real_directories,
        scratch,
        *(() if alone else ("/tmp", "/var/tmp", "/dev/shm")),
    )
    return sandbox.confined(command, read=read, write=write, alone=alone)


def environment(local: bool, scratch: str) -> dict[str, str]:
    """What programs are told: nothing of ours, above all no keys."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    if not local:
        kept |= {"HOME": scratch, "PATH": _PATH, "USER": "segue", "LOGNAME": "segue"}
    return {**kept, "TERM": "dumb", "TMPDIR": scratch, "PAGER": "cat", "GIT_PAGER": "cat"}


def scratch(context: ToolContext) -> str:
    """A directory of the session's own for what is temporary, cleared with the machine's."""
    import tempfile

    place = Path(tempfile.gettempdir()) / f"segue-{os.getuid()}" / context.session
    place.parent.mkdir(mode=0o700, exist_ok=True)
    if place.parent.is_symlink() or place.parent.stat().st_uid != os.getuid():
        raise ToolError(f"{place.parent} belongs to somebody else")
    place.mkdir(mode=0o700, exist_ok=True)
    return str(place.resolve())


BASH = Tool(
    "bash",
    "execute",
    "Run a command in a bash that stays open: directory and variables are kept from one command"
    " to the next. Standard input is empty. Long output loses its middle.",
    Bash,
    lambda given: given.command or "Restart the shell",
    _bash,
)
