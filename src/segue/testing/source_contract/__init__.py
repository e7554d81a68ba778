"""The behaviour that every source promises, as tests."""

from __future__ import annotations

from .edits import EditContract
from .harness import FileState, ToolSessions
from .history import HistoryContract
from .lists import ListContract
from .resilience import ResilienceContract
from .sync import SyncContract

__all__ = ["FileState", "SourceContract", "ToolSessions"]


class SourceContract(
    ListContract,
    HistoryContract,
    EditContract,
    SyncContract,
    ResilienceContract,
):
    """Subclass it with a fixture `tool` that returns a new `ToolSessions` without sessions.

    Tests of edits that the source does not support, and of imports if it has no transcripts, are
    skipped.
    """
