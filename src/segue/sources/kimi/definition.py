"""Kimi Code as a source: its names, its home and how a session is resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segue.sources.base import ResumeCommand
from segue.sources.kit.definition import ToolDefinition, home_directory, variables

if TYPE_CHECKING:
    from segue.model.session import Session

    from .reader import KimiReader
    from .session_writer import KimiWriter


class KimiDefinition(ToolDefinition):
    """The registry's description of Kimi Code."""

    name = "kimi"
    label = "Kimi Code"
    program = "kimi"
    resume_usage = "kimi -S"
    symbol = "◐"

    def home(self) -> str:
        """Return the directory of $KIMI_CODE_HOME, else ~/.kimi-code."""
        return home_directory("KIMI_CODE_HOME", ".kimi-code")

    def reader(self) -> KimiReader:
        """Return a reader of the current home."""
        from .reader import KimiReader

        return KimiReader(self.home())

    def writer(self) -> KimiWriter:
        """Return a writer of the current home."""
        from .session_writer import KimiWriter

        return KimiWriter(self.home())

    def resume_command(self, session: Session, *, local: bool) -> ResumeCommand:
        """Return `kimi -S ID`."""
        arguments = (self.program, "-S", session.native_id or session.id)
        return ResumeCommand(arguments, variables("KIMI_CODE_HOME", local=local))


DEFINITION = KimiDefinition()
