"""Gemini CLI as a source: its names, its home and how a session is resumed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from segue.sources.base import ResumeCommand
from segue.sources.kit.definition import ToolDefinition, home_directory, variables

if TYPE_CHECKING:
    from segue.model.session import Session

    from .reader import GeminiReader
    from .session_writer import GeminiWriter

_HOME_VARIABLE = "GEMINI_CLI_HOME"


class GeminiDefinition(ToolDefinition):
    """The registry's description of Gemini CLI."""

    name = "gemini"
    label = "Gemini CLI"
    program = "gemini"
    resume_usage = "gemini --resume"
    symbol = "✦"

    def home(self) -> str:
        """Return the directory `.gemini` in $GEMINI_CLI_HOME, else in the user's home."""
        return os.path.join(home_directory(_HOME_VARIABLE, ""), ".gemini")

    def reader(self) -> GeminiReader:
        """Return a reader of the current home."""
        from .reader import GeminiReader

        return GeminiReader(self.home())

    def writer(self) -> GeminiWriter:
        """Return a writer of the current home."""
        from .session_writer import GeminiWriter

        return GeminiWriter(self.home())

    def resume_command(self, session: Session, *, local: bool) -> ResumeCommand:
        """Return `gemini --resume ID`, which Gemini looks up in the session's directory."""
        arguments = (self.program, "--resume", session.native_id or session.id)
        return ResumeCommand(arguments, variables(_HOME_VARIABLE, local=local))


DEFINITION = GeminiDefinition()
