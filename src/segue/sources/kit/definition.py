"""The registry's description of a tool that is read with the kit. It imports nothing heavy."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from segue.sources.base import ResumeCommand, SourceSetting

if TYPE_CHECKING:
    from segue.model.session import Session
    from segue.model.source_command import SourceCommands
    from segue.sources.base import Progress, Source, Transcripts
    from segue.sources.writing.port import SessionWriter
    from segue.sources.writing.tool_names import ToolNames

    from .reader import Reader


class ToolDefinition(ABC):
    """A tool: its names, where it keeps its sessions, its reader and how it resumes a session."""

    name: str
    label: str
    program: str
    resume_usage: str
    symbol: str
    agent: str | None = None
    answer_setting: str | None = None
    settings: tuple[SourceSetting, ...] = ()

    @abstractmethod
    def home(self) -> str:
        """Return a directory or a file that exists if the tool was used on this machine."""

    @abstractmethod
    def reader(self) -> Reader:
        """Return a reader of the current home; import it here and not with the module."""

    @abstractmethod
    def resume_command(self, session: Session, *, local: bool) -> ResumeCommand:
        """Return how to continue a session in the tool."""

    def open(self, index_dir: Path, *, unused: bool, progress: Progress | None) -> Source | None:
        """Open the source; None if its tool was never used here, unless `unused` is set."""
        if not unused and not os.path.exists(self.home()):
            return None
        from .source import KitSource, index_path

        reader = self.reader()
        return KitSource(reader, index_path(index_dir, reader), self.label, progress=progress)

    def transcripts(self) -> Transcripts:
        """Return the tool's transcripts, which need no open source."""
        from .transcripts import KitTranscripts

        return KitTranscripts(self.reader(), self.label)

    def writer(self) -> SessionWriter | None:
        """Return None: sessions of other tools cannot be written for the tool."""
        return None

    def tool_names(self) -> ToolNames | None:
        """Return what the tools of its agent mean: those of its writer."""
        writer = self.writer()
        return None if writer is None else writer.names

    def commands(self) -> SourceCommands | None:
        """Return None: the tool's files need no maintenance."""
        return None


def home_directory(variable: str, default: str) -> str:
    """Return a tool's home: the value of a variable, else a directory in the user's home."""
    value = os.environ.get(variable)
    return os.path.abspath(value) if value else os.path.join(os.path.expanduser("~"), default)


def data_directory(name: str) -> str:
    """Return a tool's directory in $XDG_DATA_HOME, else in ~/.local/share."""
    base = os.environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(base):  # the standard ignores other values
        base = os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, name)


def variables(*names: str, local: bool) -> dict[str, str]:
    """Return the variables of this process that a resume command needs on this machine."""
    return {name: os.environ[name] for name in names if local and os.environ.get(name)}
