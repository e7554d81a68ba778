"""Fill a store's disk, free space again, and print the errors that the store gave.

    disk.py DIRECTORY tmpfs|quota|pages

`tmpfs` is a real, small disk, for which this must run in a mount namespace of its own. `quota` is
a limit of the system on the size of files, `pages` one of SQLite's own; they need no rights. The
store is on DIRECTORY/disk; in the end it is copied to DIRECTORY/copy, outside of the small disk.
"""

import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

from common import WORKSPACE, report, run

from segue.model import ids
from segue.model.content import as_content
from segue.model.errors import SegueError, StoreError
from segue.model.event import Created, Draft, UserMessage
from segue.store.sqlite import SQLiteStore, connection, writer

SIZE = 6_000_000
WRITERS = 8


class Tmpfs:
    """A disk with a file that takes up its space."""

    def __init__(self, directory: Path) -> None:
        size = f"size={3 * SIZE}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", directory], check=True)
        self._ballast = directory / "ballast"
        # Twice the size of the store: enough for its log to be written into the file.
        self._ballast.write_bytes(bytes(2 * SIZE))

    def free_space(self) -> None:
        self._ballast.unlink()


class Quota:
    def __init__(self, directory: Path) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE, self._before[1]))

    def free_space(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)


class Pages:
    def __init__(self, directory: Path) -> None:
        def limited(path, *, writable):
            self._connection = connection.connect(path, writable=writable)
            self._connection.execute(f"PRAGMA max_page_count = {SIZE // 4096}")
            return self._connection

        writer.connect = limited

    def free_space(self) -> None:
        self._connection.execute(f"PRAGMA max_page_count = {2 * SIZE // 4096}")


async def main() -> None:
    directory, kind = Path(sys.argv[1]), sys.argv[2]
    disk = directory / "disk"
    disk.mkdir()
    limit = {"tmpfs": Tmpfs, "quota": Quota, "pages": Pages}[kind](disk)
    store = SQLiteStore.open(disk / "segue.db")
    sessions = [ids.new_id() for _ in range(WRITERS)]
    for session in sessions:
        await store.create(WORKSPACE, session, [Created(cwd="/work")])
    acknowledged: dict[str, list[str]] = {session: [] for session in sessions}

    async def write(session: str) -> None:
        # Random digits, so that the search index grows too.
        body = UserMessage(content=as_content(os.urandom(4000).hex(" ", 8)))
        id = ids.new_id()
        await store.change(WORKSPACE, session, lambda _: [Draft(id=id, body=body)])
        acknowledged[session].append(id)

    async def fill(session: str) -> StoreError:
        while True:
            try:
                await write(session)
            except SegueError as error:
                return error

    errors = await asyncio.gather(*map(fill, sessions))
    for error in errors:
        report("full", error=type(error).__name__, message=error.message)

    # The full store can be read and still refuses writes.
    for session in sessions:
        events = await store.events(WORKSPACE, session)
        assert {event.id for event in events} >= set(acknowledged[session])
    error = await fill(sessions[0])
    report("full", error=type(error).__name__, message=error.message)

    if kind == "tmpfs":
        try:
            SQLiteStore.open(disk / "new.db")
        except SegueError as error:
            report("full", error=type(error).__name__, message=error.message)

    limit.free_space()
    if kind == "tmpfs":
        await SQLiteStore.open(disk / "new.db").close()
    for session in sessions:
        await write(session)
    await store.close()
    copy = directory / "copy"
    shutil.copytree(disk, copy)
    (directory / "kept.json").write_text(json.dumps(acknowledged))
    report("done")


if __name__ == "__main__":
    run(main)
