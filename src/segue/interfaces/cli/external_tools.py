"""Show other tools' sessions in the command line, and resume them in their tools."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

from segue.hub.tools import find_tool

if TYPE_CHECKING:
    from segue.hub.tools import Tool
    from segue.model.session import Session

OTHER_SOURCE_SYMBOL = "◇"


def source_symbol(source: str) -> str:
    """Return the one-column symbol that marks sessions of a source; segue's own have none."""
    if source == "segue":
        return " "
    tool = find_tool(source)
    return OTHER_SOURCE_SYMBOL if tool is None else tool.symbol


def why_not_started(name: str, session: Session) -> str | None:
    """Return why a tool's program cannot start in a session's directory; None if it can."""
    if _path_of(name) is None:
        return f"`{name}` is not on your PATH"
    if not os.path.isdir(session.cwd):
        return f"the session's directory {session.cwd} does not exist"
    return None


def require_program(tool: Tool, session: Session, *, has_model: bool) -> None:
    """Raise InvalidInput if a tool's program or the session's working directory does not exist.

    The message says what to do, and how else the session can be continued.
    """
    import shlex

    from segue.model.errors import InvalidInput

    reason = why_not_started(tool.program, session)
    if reason is None:
        return
    if _path_of(tool.program) is None:
        step = f"install {tool.label}, or add its directory to PATH"
        other = _other_way(tool.program, session, has_model=has_model)
        raise InvalidInput(f"{reason}; {step}; {other}")
    steps = [f"create it with `mkdir -p {shlex.quote(session.cwd)}`"]
    if (relocate := _relocate_hint(session)) is not None:
        steps.append(relocate)
    in_tool = "" if tool.name == session.source else f" --in {tool.name}"
    command = f"segue resume {session.id[:13]}{in_tool} --cwd DIRECTORY"
    steps.append(f"`{command}` starts {tool.label} where the project is now")
    if has_model:
        steps.append(_fork_hint(session, has_model=True))
    raise InvalidInput(f"{reason}; {', or '.join(steps)}")


def start(command: list[str], session: Session) -> NoReturn:
    """Replace this process by the tool, in the session's working directory.

    The caller has called `require_program`, or has another reason to know that both exist.
    """
    # Found before the directory changes: PATH may have directories that are relative to this one.
    program = os.path.abspath(_path_of(command[0]) or command[0])
    sys.stdout.flush()
    os.chdir(session.cwd)
    os.execv(program, command)


def _path_of(program: str) -> str | None:
    import shutil

    return shutil.which(program)


def _relocate_hint(session: Session) -> str | None:
    """Return the command that moves a session to another directory, if its tool has one."""
    tool = find_tool(session.source)
    commands = None if tool is None else tool.commands()
    if tool is None or commands is None:
        return None
    if all(command.name != "relocate" for command in commands.commands):
        return None
    command = f"segue {tool.name} relocate {session.id[:13]} NEW_DIRECTORY"
    return f"`{command}` moves the session to where the project is now"


def _other_way(name: str, session: Session, *, has_model: bool) -> str:
    """Return how to continue a session without a program: in a tool that is there, or a fork."""
    from segue.hub.tools import all_tools

    for tool in all_tools():
        is_there = tool.program != name and _path_of(tool.program) is not None
        if is_there and tool.writer() is not None:
            command = f"segue resume {session.id[:13]} --in {tool.name}"
            return f"`{command}` continues it in {tool.label}"
    return _fork_hint(session, has_model=has_model)


def _fork_hint(session: Session, *, has_model: bool) -> str:
    if has_model:
        return f"`segue resume {session.id[:13]} --here` continues it here in a fork"
    from segue.hub.access.config import next_model_step

    return f"to continue it here with a model, {next_model_step(os.environ)}"
