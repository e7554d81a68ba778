"""Goose as a source: its names, its database and how a session is resumed."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from segue.sources.base import ResumeCommand
from segue.sources.kit.definition import ToolDefinition, data_directory, variables

if TYPE_CHECKING:
    from segue.model.session import Session

    from .reader import GooseReader
    from .session_writer import GooseWriter


class GooseDefinition(ToolDefinition):
    """The registry's description of Goose."""

    name = "goose"
    label = "Goose"
    program = "goose"
    resume_usage = "goose session --resume"
    symbol = "◗"

    def home(self) -> str:
        """Return the directory of sessions: in $GOOSE_PATH_ROOT, else in the user's data."""
        if root := os.environ.get("GOOSE_PATH_ROOT"):
            return os.path.join(os.path.abspath(root), "data", "sessions")
        if sys.platform == "win32":
            data = os.environ.get("APPDATA", "")
            return os.path.join(data, "Block", "goose", "data", "sessions")
        return os.path.join(data_directory("goose"), "sessions")

    def reader(self) -> GooseReader:
        """Return a reader of the current home."""
        from .reader import GooseReader

        return GooseReader(self.home())

    def writer(self) -> GooseWriter:
        """Return a writer of the current home."""
        from .session_writer import GooseWriter

        return GooseWriter(self.home())

    def resume_command(self, session: Session, *, local: bool) -> ResumeCommand:
        """Return `goose session --resume --session-id ID`."""
        native_id = session.native_id or session.id
        arguments = (self.program, "session", "--resume", "--session-id", native_id)
        return ResumeCommand(arguments, variables("GOOSE_PATH_ROOT", "XDG_DATA_HOME", local=local))


DEFINITION = GooseDefinition()
