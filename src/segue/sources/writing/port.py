"""The port through which the hub writes a session for a tool: `SessionWriter`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from .conversation import Conversation, Holds
from .tool_names import ToolNames


class NewFile(NamedTuple):
    """A file that a writer creates, with an absolute path."""

    path: str
    data: bytes


class PreparedSession(NamedTuple):
    """A session as it will be written: its id in the tool, its title and its files.

    For a tool that imports sessions with its own command, the file is the one that is imported.
    `cwd` is the directory in which that command runs. `first_record` is the id of the first
    message, if the tool may choose another id for the session.
    """

    native_id: str
    title: str | None
    files: Sequence[NewFile]
    cwd: str
    first_record: str = ""


class SessionWriter(Protocol):
    """Writes sessions of one tool. It holds paths only."""

    names: ToolNames
    deletes_resumed: bool  # whether the tool is known to delete sessions that it resumed

    @property
    def holds(self) -> Holds:
        """What a session of the tool can hold; it may depend on the installed version."""
        ...

    def prepare(self, conversation: Conversation) -> PreparedSession:
        """Encode a conversation; nothing is written."""
        ...

    def write(self, prepared: PreparedSession) -> str:
        """Write a prepared session so that the tool can resume it, and return its native id.

        A process that is killed leaves the whole session or none, unless the writer is an
        ImportingWriter. Raises Conflict if the tool has a session with the id, StoreError if it
        cannot be written.
        """
        ...


@runtime_checkable
class ImportingWriter(Protocol):
    """A writer whose tool imports sessions with its own program.

    If that program is killed, it may leave a part of a session, which `settle` deletes.
    """

    def settle(self, native_id: str, first_record: str) -> str | None:
        """Return the native id of a session if a killed process wrote all of it, else None.

        The arguments are those of the prepared session. Raises SegueError if a part of the session
        cannot be deleted.
        """
        ...
