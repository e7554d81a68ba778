"""Codex as a source: its names, its home and how a session is resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segue.sources.base import ResumeCommand
from segue.sources.kit.definition import ToolDefinition, home_directory, variables

if TYPE_CHECKING:
    from segue.model.session import Session

    from .reader import CodexReader
    from .session_writer import CodexWriter


class CodexDefinition(ToolDefinition):
    """The registry's description of the Codex CLI."""

    name = "codex"
    label = "Codex"
    program = "codex"
    resume_usage = "codex resume"
    symbol = "▲"

    def home(self) -> str:
        """Return the directory of $CODEX_HOME, else ~/.codex."""
        return home_directory("CODEX_HOME", ".codex")

    def reader(self) -> CodexReader:
        """Return a reader of the current home."""
        from .reader import CodexReader

        return CodexReader(self.home())

    def writer(self) -> CodexWriter:
        """Return a writer of the current home."""
        from .session_writer import CodexWriter

        return CodexWriter(self.home())

    def resume_command(self, session: Session, *, local: bool) -> ResumeCommand:
        """Return `codex resume ID`."""
        arguments = (self.program, "resume", session.native_id or session.id)
        return ResumeCommand(arguments, variables("CODEX_HOME", local=local))


DEFINITION = CodexDefinition()
