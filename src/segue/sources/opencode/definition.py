"""opencode as a source: its names, its data directory and how a session is resumed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from segue.sources.base import ResumeCommand
from segue.sources.kit.definition import ToolDefinition, data_directory, variables

if TYPE_CHECKING:
    from segue.model.session import Session

    from .reader import OpencodeReader
    from .session_writer import OpencodeWriter

_DATABASE = "OPENCODE_DB"


class OpencodeDefinition(ToolDefinition):
    """The registry's description of opencode."""

    name = "opencode"
    label = "opencode"
    program = "opencode"
    resume_usage = "opencode --session"
    symbol = "▣"

    def home(self) -> str:
        """Return the data directory: in $XDG_DATA_HOME, else in ~/.local/share."""
        return data_directory("opencode")

    def reader(self) -> OpencodeReader:
        """Return a reader of the current home, or of the database that $OPENCODE_DB names."""
        from .reader import OpencodeReader

        return OpencodeReader(self.home(), self._database())

    def writer(self) -> OpencodeWriter:
        """Return a writer of the current home, or of the database that $OPENCODE_DB names."""
        from .session_writer import OpencodeWriter

        return OpencodeWriter(self.home(), self._database())

    def _database(self) -> str | None:
        path = os.environ.get(_DATABASE)
        return None if not path or path == ":memory:" else os.path.join(self.home(), path)

    def resume_command(self, session: Session, *, local: bool) -> ResumeCommand:
        """Return `opencode --session ID`."""
        arguments = (self.program, "--session", session.native_id or session.id)
        return ResumeCommand(arguments, variables("XDG_DATA_HOME", _DATABASE, local=local))


DEFINITION = OpencodeDefinition()
