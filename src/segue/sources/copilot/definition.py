"""Copilot as a source: its names, its home and how a session is resumed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from segue.sources.base import ResumeCommand
from segue.sources.kit.definition import ToolDefinition, home_directory, variables

if TYPE_CHECKING:
    from segue.model.session import Session

    from .reader import CopilotReader
    from .session_writer import CopilotWriter


class CopilotDefinition(ToolDefinition):
    """The registry's description of the GitHub Copilot CLI."""

    name = "copilot"
    label = "Copilot"
    program = "copilot"
    resume_usage = "copilot --resume"
    symbol = "◈"

    def home(self) -> str:
        """Return the directory of $COPILOT_HOME, else ~/.copilot.

        Versions before 1.0 kept their state in $XDG_STATE_HOME/.copilot, if the variable was set.
        """
        home = home_directory("COPILOT_HOME", ".copilot")
        state_home = os.environ.get("XDG_STATE_HOME")
        if state_home and not os.environ.get("COPILOT_HOME") and not os.path.exists(home):
            return os.path.join(os.path.abspath(state_home), ".copilot")
        return home

    def reader(self) -> CopilotReader:
        """Return a reader of the current home."""
        from .reader import CopilotReader

        return CopilotReader(self.home())

    def writer(self) -> CopilotWriter:
        """Return a writer of the current home."""
        from .session_writer import CopilotWriter

        return CopilotWriter(self.home())

    def resume_command(self, session: Session, *, local: bool) -> ResumeCommand:
        """Return `copilot --resume=ID`."""
        arguments = (self.program, f"--resume={session.native_id or session.id}")
        names = ("COPILOT_HOME", "XDG_STATE_HOME")
        return ResumeCommand(arguments, variables(*names, local=local))


DEFINITION = CopilotDefinition()
