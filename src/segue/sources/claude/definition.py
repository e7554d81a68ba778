"""Claude Code as a source: its name, its settings, how it is opened and resumed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from segue.sources.base import ResumeCommand, SourceSetting

from .format.paths import SOURCE, ClaudeHome

if TYPE_CHECKING:
    from segue.model.session import Session
    from segue.model.source_command import SourceCommands
    from segue.sources.base import Progress, Source, Transcripts
    from segue.sources.writing.tool_names import ToolNames

    from .exchange.session_writer import ClaudeWriter


class ClaudeDefinition:
    """The registry's description of Claude Code."""

    name = SOURCE
    label = "Claude Code"
    agent: str | None = "claude_code"
    answer_setting: str | None = "claude.continue"
    program = "claude"
    resume_usage = "claude --resume"
    symbol = "◆"
    settings = (
        SourceSetting(
            "claude.continue",
            "Whether Claude Code itself answers prompts to its sessions, and continues in its own"
            " files (needs claude-agent-sdk).",
            "true",
            bool,
        ),
        SourceSetting(
            "claude.program",
            "The Claude Code program, if it is not the one that comes with claude-agent-sdk.",
            "/usr/local/bin/claude",
        ),
    )

    def home(self) -> str:
        """Return the directory of Claude Code's projects."""
        return ClaudeHome.current().projects

    def open(self, index_dir: Path, *, unused: bool, progress: Progress | None) -> Source | None:
        """Open Claude Code's sessions in its current home."""
        home = ClaudeHome.current()
        if not unused and not os.path.isdir(home.projects):
            return None
        from .source import ClaudeSource

        return ClaudeSource(_index_path(index_dir, home), home, progress=progress)

    def transcripts(self) -> Transcripts:
        """Return the transcripts in Claude Code's current home."""
        from .exchange.transcripts import ClaudeTranscripts

        return ClaudeTranscripts(ClaudeHome.current())

    def resume_command(self, session: Session, *, local: bool) -> ResumeCommand:
        """Return `claude --resume ID`."""
        home = os.environ.get("CLAUDE_CONFIG_DIR") if local else None
        return ResumeCommand(
            (self.program, "--resume", session.native_id or session.id),
            {"CLAUDE_CONFIG_DIR": home} if home else {},
        )

    def writer(self) -> ClaudeWriter:
        """Return a writer of Claude Code's current home."""
        from .exchange.session_writer import ClaudeWriter

        return ClaudeWriter(ClaudeHome.current())

    def tool_names(self) -> ToolNames:
        """Return what the tools of Claude Code mean."""
        from .tool_names import NAMES

        return NAMES

    def commands(self) -> SourceCommands | None:
        """Return the commands that maintain Claude Code's files."""
        from .commands import COMMANDS

        return COMMANDS


DEFINITION = ClaudeDefinition()


def _index_path(index_dir: Path, home: ClaudeHome) -> Path:
    """Return the path of a home's index, and delete its indexes in older formats.

    Each home has an index of its own, and so does each format: an older segue that still runs
    would replace an index in a newer format.
    """
    from hashlib import blake2b

    from segue.sources.index.database import FORMAT

    digest = blake2b(os.fsencode(home.root), digest_size=4).hexdigest()
    path = index_dir / f"claude-{digest}-{FORMAT}.index"
    if not path.exists():
        for old_index in path.parent.glob(f"claude-{digest}*"):
            if not old_index.name.startswith(path.name):
                with suppress(OSError):
                    old_index.unlink()
    return path
