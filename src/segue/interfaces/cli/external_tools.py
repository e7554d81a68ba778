"""The tools that keep sessions of their own, and how each is told to go on with one."""

from __future__ import annotations

import os
import shutil
import sys
from typing import NoReturn

from segue.model.errors import InvalidInput
from segue.model.session import Session

# By source: the program, and its words before the session's id.
_TOOLS = {"claude": ["claude", "--resume"]}


def command(session: Session) -> list[str] | None:
    """The command that goes on with a session; None for segue's own and for tools not known."""
    words = _TOOLS.get(session.source)
    return None if words is None else [*words, session.native_id or session.id]


def start(command: list[str], session: Session) -> NoReturn:
    """Become the tool, in the session's directory."""
    program = shutil.which(command[0])
    if program is None:
        raise InvalidInput(f"`{command[0]}` is not on your PATH; {_here(session)}")
    if not os.path.isdir(session.cwd):
        raise InvalidInput(f"its directory {session.cwd} is gone; {_here(session)}")
    sys.stdout.flush()
    os.chdir(session.cwd)
    os.execv(program, command)


def _here(session: Session) -> str:
    return f"`segue resume {session.id[:13]} --here` goes on in a fork"
