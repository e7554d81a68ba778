"""Qwen Code as a source: its names, its home and how a session is resumed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from segue.sources.base import ResumeCommand
from segue.sources.kit.definition import ToolDefinition, variables

if TYPE_CHECKING:
    from segue.model.session import Session

    from .reader import QwenReader
    from .session_writer import QwenWriter

_VARIABLES = ("QWEN_RUNTIME_DIR", "QWEN_HOME")


class QwenDefinition(ToolDefinition):
    """The registry's description of Qwen Code."""

    name = "qwen"
    label = "Qwen Code"
    program = "qwen"
    resume_usage = "qwen --resume"
    symbol = "✧"

    def home(self) -> str:
        """Return the directory of $QWEN_RUNTIME_DIR, else that of the settings."""
        return _directory("QWEN_RUNTIME_DIR") or self.settings_directory()

    def settings_directory(self) -> str:
        """Return the directory of $QWEN_HOME, else ~/.qwen."""
        return _directory("QWEN_HOME") or os.path.join(os.path.expanduser("~"), ".qwen")

    def reader(self) -> QwenReader:
        """Return a reader of the current home."""
        from .reader import QwenReader

        return QwenReader(self.home(), self.settings_directory())

    def writer(self) -> QwenWriter:
        """Return a writer of the directory into which Qwen writes its sessions."""
        from . import chats
        from .session_writer import QwenWriter

        # A variable comes before the settings.
        home = _directory("QWEN_RUNTIME_DIR")
        return QwenWriter(home or chats.roots(self.home(), self.settings_directory())[-1])

    def resume_command(self, session: Session, *, local: bool) -> ResumeCommand:
        """Return `qwen --resume ID`, which Qwen looks up in the session's directory."""
        arguments = (self.program, "--resume", session.native_id or session.id)
        return ResumeCommand(arguments, variables(*_VARIABLES, local=local))


def _directory(variable: str) -> str | None:
    value = os.environ.get(variable)
    return os.path.abspath(os.path.expanduser(value)) if value else None


DEFINITION = QwenDefinition()
