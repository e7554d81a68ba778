"""Store the files that a session's agent writes for people, in one directory of the session.

After a turn, each new or changed file is stored as a file of the session. A record per path holds
the id of its file. A file that the agent deletes stays in the store.
"""

from __future__ import annotations

import asyncio
import mimetypes
import os
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from segue.agents.tools import file_tree
from segue.agents.tools.path_guard import PathGuard, ToolError
from segue.hub.resources.files import PART_BYTES, Files
from segue.hub.resources.records import Records
from segue.hub.sessions.directories import OUTPUTS as OUTPUTS_PATH
from segue.model import ids
from segue.model.errors import QuotaExceeded
from segue.model.principal import Principal
from segue.model.record import Record, RecordBody
from segue.model.session import Session

MAX_OUTPUT_BYTES = 500 * 1024 * 1024
MAX_OUTPUTS = 500
_MAX_PATH_CHARACTERS = 255
_MAX_SKIPPED_PROBLEMS = 10  # reported by one turn


class _FileStatus(NamedTuple):
    size: int
    mtime: int


class _Output(NamedTuple):
    """A new or changed output, with the record of its earlier content."""

    path: str
    status: _FileStatus
    record: Record | None


class _Scan(NamedTuple):
    """The status of each output by its path, and why other paths were left out."""

    files: dict[str, _FileStatus]
    skipped: dict[str, str]


class OutputBody(RecordBody, frozen=True):
    """The body of an output's record. `file` is the id of its latest content."""

    path: str
    file: str
    size: int
    mtime: int


class Outputs:
    """The files that agents wrote for people."""

    def __init__(self, records: Records, files: Files) -> None:
        self._records = records
        self._files = files

    async def for_session(self, session: Session) -> list[Record]:
        """Return a record for each path, oldest first."""
        records = self._records.all(session.workspace, _record_kind(session))
        return [record async for record in records][::-1]

    async def collect(self, principal: Principal, session: Session, root: Path) -> list[str]:
        """Store the outputs that are new or changed. Return why others were not stored.

        `principal` started the turn that made them.
        """
        scan = await asyncio.to_thread(_scan, root)
        records = {OutputBody.of(record).path: record for record in await self.for_session(session)}
        problems = [
            f"/{OUTPUTS_PATH}{path}: not stored, {reason}"
            for path, reason in sorted(scan.skipped.items())[:_MAX_SKIPPED_PROBLEMS]
        ]
        too_many = f"/{OUTPUTS_PATH}: at most {MAX_OUTPUTS} files are stored"
        for path, status in sorted(scan.files.items()):
            record = records.get(path)
            if record is not None and _recorded_status(record) == status:
                continue
            if record is None and len(records) >= MAX_OUTPUTS:
                problems += [] if too_many in problems else [too_many]
                continue
            if status.size > MAX_OUTPUT_BYTES:
                problems.append(
                    f"/{OUTPUTS_PATH}{path}: not stored, longer than {MAX_OUTPUT_BYTES} bytes"
                )
                continue
            output = _Output(path, status, record)
            try:
                with suppress(ToolError, OSError):  # deleted since the scan
                    records[path] = await self._store_file(principal, session, root, output)
            except QuotaExceeded as error:
                problems.append(f"/{OUTPUTS_PATH}{path}: not stored, {error.message}")
                break
        return problems

    async def discard(self, session: Session) -> None:
        """Delete all outputs of a purged session."""
        for output in await self.for_session(session):
            await self._delete_file(session, output)
            await self._records.delete(output)

    async def _store_file(
        self, principal: Principal, session: Session, root: Path, scanned: _Output
    ) -> Record:
        """Store a file's content, in place of the one that its record refers to."""
        path, status, record = scanned
        name = path.lstrip("/")
        mime_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        fields = {
            "filename": name,
            "mime_type": mime_type,
            "scope": session.id,
            "expires_at": None,
        }
        with await asyncio.to_thread(_open, root, path) as content:
            file = await self._files.store(principal, _chunks(content), fields)
        output = OutputBody(path=path, file=file.id, size=status.size, mtime=status.mtime)
        body = output.encode()
        if record is None:
            id = ids.derived_id("output", session.id, path)
            return await self._records.create(session.workspace, _record_kind(session), body, id)
        updated = await self._records.update(record, body, drop_earlier=True)
        await self._delete_file(session, record)
        return updated

    async def _delete_file(self, session: Session, output: Record) -> None:
        file = await self._records.find(session.workspace, "file", OutputBody.of(output).file)
        if file is not None:
            await self._files.delete(file)


def make_outputs_directory(root: Path) -> str | None:
    """Create the directory for outputs and return its path; None if a link leads out of `root`."""
    guard = PathGuard([str(root)], strict=True)
    directory = str(root / OUTPUTS_PATH)
    try:
        os.makedirs(root, mode=0o700, exist_ok=True)
        with guard.open_directory(guard.resolve(directory), create=True):
            return directory
    except (ToolError, OSError):
        return None


def _record_kind(session: Session) -> str:
    return f"output:{session.id}"


def _recorded_status(record: Record) -> _FileStatus:
    output = OutputBody.of(record)
    return _FileStatus(output.size, output.mtime)


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    """Yield a file's content, up to MAX_OUTPUT_BYTES."""
    remaining = MAX_OUTPUT_BYTES
    while remaining > 0 and (
        data := await asyncio.to_thread(file.read, min(PART_BYTES, remaining))
    ):
        remaining -= len(data)
        yield data


def _scan(root: Path) -> _Scan:
    """Return the status of each output by its path, and why others are left out."""
    scan = _Scan({}, {})
    guard = PathGuard([str(root)], strict=True)
    try:
        with guard.open_directory(guard.resolve(str(root / OUTPUTS_PATH))) as top:
            for file in file_tree.walk_files(top, scan.skipped):
                with suppress(OSError):
                    status = os.stat(file.name, dir_fd=file.parent, follow_symlinks=False)
                    if _is_output(file, status):
                        scan.files[file.path] = _FileStatus(status.st_size, status.st_mtime_ns)
    except ToolError:  # the directory does not exist
        pass
    return scan


def _is_output(file: file_tree.TreeFile, status: os.stat_result) -> bool:
    """Return whether a file is regular, not temporary, without another hard link and printable."""
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_nlink == 1
        and not file.name.startswith(file_tree.TEMP_PREFIX)
        and file.path.isprintable()
        and len(file.path) < _MAX_PATH_CHARACTERS
    )


def _open(root: Path, path: str) -> BinaryIO:
    """Open an output for reading. Raises ToolError if it may be outside of `root`."""
    return PathGuard([str(root)], strict=True).open_file(str(root / OUTPUTS_PATH) + path)
