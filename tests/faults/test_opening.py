"""A store that cannot be opened gives a clear error; several processes can create one at once."""

import asyncio
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from segue.model import errors, ids
from segue.model.event import Created
from segue.store.sqlite import SQLiteStore
from tests.faults.conftest import LocationFactory
from tests.faults.processes import StoreLocation, child
from tests.store.damage import damage_schema

WORKSPACE = "local"
UNPRIVILEGED_UID = 65534


async def make(location: StoreLocation) -> str:
    """Create a store with one session and return the session's id."""
    store = await location.open()
    session = await store.create(WORKSPACE, ids.new_id(), [Created(cwd="/work")])
    await store.close()
    return session.id


async def holds(location: StoreLocation, *sessions: str) -> bool:
    store = await location.open()
    existing = await store.existing_ids(WORKSPACE, sessions)
    await store.close()
    return existing == set(sessions)


def refused(path: Path) -> errors.StoreError:
    with pytest.raises(errors.StoreError) as caught:
        SQLiteStore.open(path)
    check_message(caught.value.message, path)
    return caught.value


def check_message(message: str, path: Path) -> None:
    """Check that a message is one line that names the file and no internals."""
    assert str(path) in message
    assert "\n" not in message and "Traceback" not in message
    assert "Error" not in message and "sqlite" not in message.lower()


# Several processes at once.


def test_eight_processes_create_the_same_store_at_once(
    make_locations: LocationFactory,
) -> None:
    async def main(locations: list[StoreLocation]) -> None:
        async with AsyncExitStack() as stack:
            openers = [await stack.enter_async_context(child("opener.py")) for _ in range(8)]
            for opener in openers:
                await opener.expect("ready")
            for location in locations:
                directory, url = location.arguments
                at = time.time() + 0.02
                for opener in openers:
                    opener.send_request(directory=directory, url=url, at=at)
                reports = [await opener.expect("done") for opener in openers]
                assert [line for line in reports if "error" in line] == []
                assert await holds(location, *(line["session"] for line in reports))

    # A collision takes microseconds, so the processes get several chances.
    asyncio.run(main(make_locations(8)))


# No permission. Root may write anywhere, so a root user's child gives up its rights first.


@pytest.fixture
def shown() -> Iterator[Path]:
    """A directory that all users can read and only its owner can write."""
    directory = Path(tempfile.mkdtemp(prefix="segue-faults-")).resolve()
    directory.chmod(0o755)
    yield directory
    for name, _, _ in os.walk(directory):
        os.chmod(name, 0o755)
    shutil.rmtree(directory)


def tried(location: StoreLocation) -> dict[str, Any]:
    """Open the store as a user without rights and return the answer."""

    async def main() -> dict[str, Any]:
        user_option = ("--as", UNPRIVILEGED_UID) if os.geteuid() == 0 else ()
        async with child("opener.py", *user_option) as opener:
            directory, url = location.arguments
            return await opener.request(directory=directory, url=url)

    return asyncio.run(main())


def read_only(report: dict[str, Any], path: Path) -> None:
    assert report.get("error") == "StoreReadOnly", report
    check_message(report["message"], path)


def test_a_directory_that_cannot_be_written_gives_a_clear_error(shown: Path) -> None:
    shown.chmod(0o555)
    read_only(tried(StoreLocation(shown)), shown / "segue.db")
    assert list(shown.iterdir()) == []


def test_a_data_directory_that_cannot_be_created_gives_a_clear_error(shown: Path) -> None:
    shown.chmod(0o555)
    read_only(tried(StoreLocation(shown / "new")), shown / "new")


def test_a_directory_that_cannot_be_entered_gives_a_clear_error(shown: Path) -> None:
    (shown / "closed").mkdir()
    asyncio.run(make(StoreLocation(shown / "closed")))
    (shown / "closed").chmod(0o000)
    read_only(tried(StoreLocation(shown / "closed")), shown / "closed" / "segue.db")


def test_unreadable_store_gives_a_clear_error_and_is_not_changed(shown: Path) -> None:
    id = asyncio.run(make(StoreLocation(shown)))
    (shown / "segue.db").chmod(0o000)
    read_only(tried(StoreLocation(shown)), shown / "segue.db")
    (shown / "segue.db").chmod(0o600)
    assert asyncio.run(holds(StoreLocation(shown), id))


@pytest.mark.parametrize("directory", [0o555, 0o777])
@pytest.mark.parametrize("left", ["nothing", "its log and what is shared with it"])
def test_read_only_store_is_read_and_not_changed(shown: Path, directory: int, left: str) -> None:
    whole, cut_off = StoreLocation(shown), StoreLocation(shown / "killed")
    id = asyncio.run(make(whole) if left == "nothing" else killed(cut_off, shown))
    only_read(shown, directory)
    before = sorted(path.name for path in shown.iterdir())
    report = tried(StoreLocation(shown))
    read_only(report, shown / "segue.db")
    assert id in report["found"] and "read-only" in report["message"]
    assert sorted(path.name for path in shown.iterdir()) == before
    shown.chmod(0o755)
    for path in shown.glob("segue.db*"):
        path.chmod(0o600)
    assert asyncio.run(holds(StoreLocation(shown), id))


def test_unreadable_write_ahead_log_error_says_what_to_do(shown: Path) -> None:
    id = asyncio.run(killed(StoreLocation(shown / "killed"), shown))
    (shown / "segue.db-shm").unlink()
    only_read(shown, 0o555)
    report = tried(StoreLocation(shown))
    read_only(report, shown / "segue.db")
    assert report["found"] == [] and "copy it, together with segue.db-wal" in report["message"]
    copy = shown.parent / f"{shown.name}-copy"
    shutil.copytree(shown, copy)
    copy.chmod(0o755)
    for path in copy.glob("segue.db*"):
        path.chmod(0o600)
    assert asyncio.run(holds(StoreLocation(copy), id))
    shutil.rmtree(copy)


async def killed(location: StoreLocation, destination: Path) -> str:
    """A store as a process leaves it that is killed: the id of a session that its log has."""
    store = await location.open()
    session = await store.create(WORKSPACE, ids.new_id(), [Created(cwd="/work")])
    for path in location.directory.glob("segue.db*"):
        shutil.copy(path, destination)
    await store.close()
    assert (destination / "segue.db-wal").stat().st_size
    return session.id


def only_read(location: Path, mode: int) -> None:
    for path in location.glob("segue.db*"):
        path.chmod(0o444)
    location.chmod(mode)


# Another file in its place.


def test_a_directory_in_place_of_the_store_gives_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "segue.db").mkdir()
    error = refused(tmp_path / "segue.db")
    assert "directory" in error.message


@pytest.mark.parametrize("size", [6, 100_000])
def test_a_text_file_in_place_of_the_store_is_refused_and_not_changed(
    tmp_path: Path, size: int
) -> None:
    path = tmp_path / "segue.db"
    path.write_text("notes " + "x" * (size - 6))
    path.chmod(0o644)
    before = (path.read_bytes(), path.stat().st_mode)
    assert isinstance(refused(path), errors.StoreCorrupt)
    assert (path.read_bytes(), path.stat().st_mode) == before


@pytest.mark.parametrize("version", [0, 3])
def test_database_of_another_program_is_refused_and_not_changed(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "segue.db"
    foreign_database = sqlite3.connect(path)
    foreign_database.execute("CREATE TABLE notes (text)")
    foreign_database.execute(f"PRAGMA user_version = {version}")
    foreign_database.close()
    before = path.read_bytes()
    assert isinstance(refused(path), errors.StoreCorrupt)
    assert path.read_bytes() == before


def overwrite_pages(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))


@pytest.mark.parametrize("damage", [overwrite_pages, damage_schema])
def test_error_of_a_damaged_store_says_that_it_is_damaged(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / "segue.db"
    id = asyncio.run(make(StoreLocation(tmp_path)))
    damage(path)

    async def use() -> None:
        store = SQLiteStore.open(path)
        try:
            await store.events(WORKSPACE, id)
        finally:
            await store.close()

    with pytest.raises(errors.StoreCorrupt) as caught:
        asyncio.run(use())
    check_message(caught.value.message, path)


# A newer program's store.


def test_store_migrated_by_a_newer_version_is_refused_and_unchanged(
    location: StoreLocation,
) -> None:
    async def main() -> None:
        id = await make(location)
        await set_compat(location, 99)
        with pytest.raises(errors.StoreTooNew) as caught:
            await location.open()
        assert "newer" in caught.value.message and "upgrade" in caught.value.message
        assert "\n" not in caught.value.message
        await set_compat(location, 1)
        assert await holds(location, id)

    asyncio.run(main())


def test_running_process_stops_writing_after_a_newer_version_migrates_the_store(
    location: StoreLocation,
) -> None:
    async def main() -> None:
        store = await location.open()
        try:
            session = await store.create(WORKSPACE, ids.new_id(), [Created(cwd="/work")])
            await set_compat(location, 99)
            with pytest.raises(errors.StoreTooNew, match="upgrade"):
                await store.create(WORKSPACE, ids.new_id(), [Created(cwd="/work")])
            assert await store.get(WORKSPACE, session.id) == session  # it may still be read
        finally:
            await store.close()

    asyncio.run(main())


async def set_compat(location: StoreLocation, compat: int) -> None:
    if location.url is not None:
        import asyncpg

        database = await asyncpg.connect(location.url)
        await database.execute(f"UPDATE segue.migrations SET compat = {compat}")
        await database.close()
        return
    connection = sqlite3.connect(location.file, isolation_level=None)
    connection.execute("UPDATE meta SET value = ? WHERE name = 'compat'", (compat,))
    connection.close()
