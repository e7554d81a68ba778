"""Record what was done in a session's directory, in a file next to it.

Without the file, resources are mounted again and no memory counts as deleted, so losing it loses
no data.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from segue.model import ids
from segue.model.errors import InvalidInput

from .locks import DIRECTORY_FLAGS
from .memory_sync import SyncState


class DirectoryState(msgspec.Struct, kw_only=True):
    """What was done in a session's directory."""

    attempted: list[str] = []  # ids of resources that were mounted, or that failed to
    memories: dict[str, SyncState] = {}  # by the id of the memory store
    output_problems: list[str] = []  # problems with outputs that the session already reports
    skill_versions: dict[str, str] = {}  # directory → id of the version that is complete in it
    skill_files: dict[str, list[str]] = {}  # directory → paths of the skill's files in it
    bytes: int = 0  # of the directory on the disk, when it was last measured
    used_by_key: bool = False  # whether turns of an API key could write to the directory


# Not created on first use, which may be in several threads at once; see segue.model.codec.
_decode_state = msgspec.json.Decoder(DirectoryState).decode


class StateFile:
    """The file that holds the state of one session's directory."""

    def __init__(self, path: Path, directory: str) -> None:
        self._path = path
        self._directory = directory

    async def read(self) -> DirectoryState:
        """Return the state, empty if the file is missing or damaged."""
        return await asyncio.to_thread(self._read)

    async def update(self, change: Callable[[DirectoryState], None]) -> None:
        """Apply a change to the state, unless the session's directory was deleted.

        Raises InvalidInput if the file cannot be written.
        """
        try:
            await asyncio.to_thread(self._update, change)
        except OSError as error:
            raise InvalidInput(
                f"cannot write {self._path}: {error.strerror}",
                remote_message=f"cannot write the session's directory: {error.strerror}",
            ) from None

    def _read(self) -> DirectoryState:
        try:
            return _decode_state(self._path.read_bytes())
        except (OSError, msgspec.DecodeError):
            return DirectoryState()

    def _update(self, change: Callable[[DirectoryState], None]) -> None:
        if not os.path.isdir(self._directory):
            return
        descriptor = os.open(self._path.parent, DIRECTORY_FLAGS)
        draft = self._path.with_name(f".{ids.new_id()}")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # other processes update such files too
            state = self._read()
            change(state)
            draft.write_bytes(msgspec.json.encode(state))
            os.replace(draft, self._path)
        finally:
            draft.unlink(missing_ok=True)
            os.close(descriptor)
