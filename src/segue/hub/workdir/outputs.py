"""What a session's agent leaves for people to have: files in one place of its directory.

After a turn each that is new or has changed is kept as a file of the session's, like one that was
mounted; a record for each path says which. What is gone from the directory is still to be had.
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

from segue.agents.tools.path_guard import TEMP_PREFIX, PathGuard, ToolError
from segue.hub.resources.files import PART, Files
from segue.hub.resources.records import Records
from segue.hub.sessions.directories import OUTPUTS as PLACE
from segue.model import ids
from segue.model.record import Record
from segue.model.session import Session

MAX_OUTPUT_BYTES = 500 * 1024 * 1024
MAX_OUTPUTS = 500
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def kind(session: str) -> str:
    return f"output:{session}"


class _Seen(NamedTuple):
    size: int
    mtime: int


class Outputs:
    """The files that sessions have made."""

    def __init__(self, records: Records, files: Files) -> None:
        self._records = records
        self._files = files

    async def for_session(self, session: Session) -> list[Record]:
        """A record for each path, oldest first; its `file` is the id of what was there last."""
        found = [each async for each in self._records.all(session.workspace, kind(session.id))]
        return found[::-1]

    async def collect(self, session: Session, root: Path) -> list[str]:
        """Keep what is new since the last time; what of what is there is not kept, and why."""
        seen = await asyncio.to_thread(_scan, root)
        known = {each.body["path"]: each for each in await self.for_session(session)}
        wrong: list[str] = []
        full = f"/{PLACE}: at most {MAX_OUTPUTS} files are kept"
        for path, at in sorted(seen.items()):
            before = known.get(path)
            if before is not None and _Seen(before.body["size"], before.body["mtime"]) == at:
                continue
            if before is None and len(known) >= MAX_OUTPUTS:
                wrong += [] if full in wrong else [full]
                continue
            if at.size > MAX_OUTPUT_BYTES:
                wrong.append(f"/{PLACE}{path}: longer than {MAX_OUTPUT_BYTES} bytes, and not kept")
                continue
            with suppress(ToolError, OSError):  # it is gone again
                known[path] = await self._keep(session, root, path, at, before)
        return wrong

    async def _keep(
        self, session: Session, root: Path, path: str, at: _Seen, before: Record | None
    ) -> Record:
        name = path.lstrip("/")
        mime = mimetypes.guess_type(name)[0] or "application/octet-stream"
        about = {"filename": name, "mime_type": mime, "scope": session.id, "expires_at": None}
        with await asyncio.to_thread(_open, root, path) as file:
            kept = await self._files.keep(session.workspace, _parts(file), about)
        body = {"path": path, "file": kept.id, "size": at.size, "mtime": at.mtime}
        if before is None:
            id = ids.derived_id("output", session.id, path)
            return await self._records.create(session.workspace, kind(session.id), body, id)
        changed = await self._records.update(before, body, drop_earlier=True)
        await self._forget(session, before)
        return changed

    async def _forget(self, session: Session, output: Record) -> None:
        file = await self._records.find(session.workspace, "file", output.body["file"])
        if file is not None:
            await self._files.delete(file)

    async def discard(self, session: Session) -> None:
        """Everything that a purged session has made."""
        for output in await self.for_session(session):
            await self._forget(session, output)
            await self._records.delete(output)


def make_outputs_directory(root: Path) -> str | None:
    """The place in a session's directory, made if need be; None where a link leads out of it."""
    roots = PathGuard([str(root)], strict=True)
    top = str(root / PLACE)
    try:
        os.makedirs(root, mode=0o700, exist_ok=True)
        with roots.open_directory(roots.resolve(top), create=True):
            return top
    except (ToolError, OSError):
        return None


async def _parts(file: BinaryIO) -> AsyncIterator[bytes]:
    left = MAX_OUTPUT_BYTES
    while left > 0 and (data := await asyncio.to_thread(file.read, min(PART, left))):
        left -= len(data)
        yield data


def _scan(root: Path) -> dict[str, _Seen]:
    """Regular files with one name only, by their paths; no link is followed."""
    found: dict[str, _Seen] = {}
    roots = PathGuard([str(root)], strict=True)
    try:
        with roots.open_directory(roots.resolve(str(root / PLACE))) as top:
            for above, _, names, handle in os.fwalk(".", dir_fd=top):
                for name in names:
                    with suppress(OSError):
                        about = os.stat(name, dir_fd=handle, follow_symlinks=False)
                        plain = stat.S_ISREG(about.st_mode) and about.st_nlink == 1
                        if (
                            plain
                            and not name.startswith(TEMP_PREFIX)
                            and _readable(f"{above}/{name}")
                        ):
                            found[f"{above[1:]}/{name}"] = _Seen(about.st_size, about.st_mtime_ns)
    except ToolError:  # there is no such place
        return {}
    return found


def _readable(path: str) -> bool:
    """Whether a path is text that can be shown."""
    return path.isprintable() and len(path) <= 255


def _open(root: Path, path: str) -> BinaryIO:
    roots = PathGuard([str(root)], strict=True)
    place = roots.resolve(str(root / PLACE) + path)
    with roots.open_directory(place._replace(names=place.names[:-1])) as above:
        file = open(os.open(place.names[-1], _READ, dir_fd=above), "rb")  # noqa: SIM115
    if os.fstat(file.fileno()).st_nlink != 1:
        file.close()
        raise ToolError("it has a second name")
    return file
