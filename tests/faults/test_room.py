"""No room left, or a disk that only reads: a clear error, nothing lost, and on it goes afterwards."""

import asyncio
import json
import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

from segue.model import ids
from segue.model.event import Created, InfoChanged
from segue.store.sqlite import SQLiteStore
from tests.faults import audit
from tests.faults.processes import Place, child

WORKSPACE = "local"


@cache
def namespace() -> list[str]:
    """The command that gives a child mounts of its own, which end with it; empty if forbidden."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", "--mount", *user]
    try:
        tried = subprocess.run([*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True)
    except FileNotFoundError:
        return []
    return command if tried.returncode == 0 else []


@pytest.mark.parametrize("kind", ["tmpfs", "quota", "pages"])
def test_a_full_disk_gives_a_clear_error_and_loses_nothing(tmp_path: Path, kind: str) -> None:
    before = namespace() if kind == "tmpfs" else []
    if kind == "tmpfs" and not before:
        pytest.skip("mounting a small disk is not allowed here")

    async def main() -> None:
        async with child("disk.py", tmp_path, kind, before=before) as filler:
            said = []
            while (line := await filler.hear()) is not None and line["says"] != "done":
                said.append(line)
            assert line is not None
        # Each of eight writers, one that tries again, and on the real disk one new store.
        assert len(said) == (10 if kind == "tmpfs" else 9)
        for line in said:
            assert line["error"] == "StoreFull", line
            assert "full" in line["message"] and ".db" in line["message"]
            assert "\n" not in line["message"]

        path = tmp_path / "copy" / "segue.db"
        store = SQLiteStore.open(path)
        kept = json.loads((tmp_path / "kept.json").read_text())
        for session, acknowledged in kept.items():
            # What was acknowledged is there, and of what was refused there is nothing.
            events = await store.events(WORKSPACE, session)
            assert [event.id for event in events][1:] == acknowledged
        await store.close()
        audit.sqlite_file(path, thorough=True)

    asyncio.run(main())


READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


@pytest.mark.skipif(not namespace(), reason="mounting is not allowed here")
@pytest.mark.parametrize("state", ["new", "closed", "open elsewhere"])
def test_a_disk_that_only_reads_gives_a_clear_error_and_loses_nothing(
    tmp_path: Path, state: str
) -> None:
    place = Place(tmp_path)

    async def main() -> None:
        store = None
        if state != "new":
            store = await place.open()
            session = await store.create(WORKSPACE, ids.new_id(), [Created(cwd="/work")])
            if state == "closed":
                await store.close()
        before = [*namespace(), "sh", "-c", READ_ONLY, str(tmp_path)]
        async with child("opener.py", before=before) as opener:
            said = await opener.ask(directory=str(tmp_path), url="")
        assert said.get("error") == "StoreReadOnly", said
        assert str(place.file) in said["message"] and "\n" not in said["message"]
        if state == "new":
            assert list(tmp_path.iterdir()) == []
            return
        if state == "closed":
            store = await place.open()
        # For whom the disk is not read-only, all is as before.
        assert store is not None
        title = InfoChanged(title="still here")
        after, _ = await store.change(WORKSPACE, session.id, lambda _: [title])
        assert after.title == "still here"
        await store.close()
        audit.sqlite_file(place.file, thorough=True)

    asyncio.run(main())
