"""A store that cannot be opened says why in one sentence; a new one is made by whoever comes."""

import asyncio
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from segue.model import errors, ids
from segue.model.event import Created
from segue.store.sqlite import SQLiteStore
from tests.faults.conftest import Rooms
from tests.faults.processes import Place, child

WORKSPACE = "local"
NOBODY = 65534


async def make(place: Place) -> str:
    """A store with one session in it: the session's id."""
    store = await place.open()
    session = await store.create(WORKSPACE, ids.new_id(), [Created(cwd="/work")])
    await store.close()
    return session.id


async def holds(place: Place, *sessions: str) -> bool:
    store = await place.open()
    found = await store.existing_ids(WORKSPACE, sessions)
    await store.close()
    return found == set(sessions)


def refused(path: Path) -> errors.StoreError:
    with pytest.raises(errors.StoreError) as caught:
        SQLiteStore.open(path)
    is_a_sentence(caught.value.message, path)
    return caught.value


def is_a_sentence(message: str, path: Path) -> None:
    """What a person is shown: one line that names the file, and nothing of our insides."""
    assert str(path) in message
    assert "\n" not in message and "Traceback" not in message
    assert "Error" not in message and "sqlite" not in message.lower()


# Several processes at once.


def test_eight_processes_that_make_the_same_store_at_once_all_succeed(rooms: Rooms) -> None:
    async def main(places: list[Place]) -> None:
        async with AsyncExitStack() as stack:
            openers = [await stack.enter_async_context(child("opener.py")) for _ in range(8)]
            for opener in openers:
                await opener.expect("ready")
            for place in places:
                directory, url = place.arguments
                at = time.time() + 0.02
                for opener in openers:
                    opener.tell(directory=directory, url=url, at=at)
                said = [await opener.expect("done") for opener in openers]
                assert [line for line in said if "error" in line] == []
                assert await holds(place, *(line["session"] for line in said))

    # Whether two are in each other's way is a matter of microseconds, so they get many chances.
    asyncio.run(main(rooms(8)))


# No permission. Root may write anywhere, so a root user's child becomes nobody first.


@pytest.fixture
def shown() -> Iterator[Path]:
    """A directory that everybody can look into, and only its owner can write."""
    directory = Path(tempfile.mkdtemp(prefix="segue-faults-")).resolve()
    directory.chmod(0o755)
    yield directory
    for name, _, _ in os.walk(directory):
        os.chmod(name, 0o755)
    shutil.rmtree(directory)


def tried(place: Place) -> dict[str, Any]:
    """What a user without any rights is told."""

    async def main() -> dict[str, Any]:
        who = ("--as", NOBODY) if os.geteuid() == 0 else ()
        async with child("opener.py", *who) as opener:
            directory, url = place.arguments
            return await opener.ask(directory=directory, url=url)

    return asyncio.run(main())


def read_only(said: dict[str, Any], path: Path) -> None:
    assert said.get("error") == "StoreReadOnly", said
    is_a_sentence(said["message"], path)


def test_a_directory_that_cannot_be_written_gives_a_clear_error(shown: Path) -> None:
    shown.chmod(0o555)
    read_only(tried(Place(shown)), shown / "segue.db")
    assert list(shown.iterdir()) == []


def test_a_data_directory_that_cannot_be_made_gives_a_clear_error(shown: Path) -> None:
    shown.chmod(0o555)
    read_only(tried(Place(shown / "new")), shown / "new")


def test_a_directory_that_cannot_be_entered_gives_a_clear_error(shown: Path) -> None:
    (shown / "closed").mkdir()
    asyncio.run(make(Place(shown / "closed")))
    (shown / "closed").chmod(0o000)
    read_only(tried(Place(shown / "closed")), shown / "closed" / "segue.db")


def test_a_store_that_cannot_be_read_gives_a_clear_error_and_stays(shown: Path) -> None:
    id = asyncio.run(make(Place(shown)))
    (shown / "segue.db").chmod(0o000)
    read_only(tried(Place(shown)), shown / "segue.db")
    (shown / "segue.db").chmod(0o600)
    assert asyncio.run(holds(Place(shown), id))


@pytest.mark.parametrize("directory", [0o555, 0o777])
@pytest.mark.parametrize("left", ["nothing", "its log and what is shared with it"])
def test_a_store_that_can_only_be_read_is_read_and_stays(
    shown: Path, directory: int, left: str
) -> None:
    whole, cut_off = Place(shown), Place(shown / "killed")
    id = asyncio.run(make(whole) if left == "nothing" else killed(cut_off, shown))
    only_read(shown, directory)
    before = sorted(path.name for path in shown.iterdir())
    said = tried(Place(shown))
    read_only(said, shown / "segue.db")
    assert id in said["found"] and "read-only" in said["message"]
    assert sorted(path.name for path in shown.iterdir()) == before
    shown.chmod(0o755)
    for path in shown.glob("segue.db*"):
        path.chmod(0o600)
    assert asyncio.run(holds(Place(shown), id))


def test_a_log_that_cannot_be_read_in_its_place_says_what_to_do(shown: Path) -> None:
    id = asyncio.run(killed(Place(shown / "killed"), shown))
    (shown / "segue.db-shm").unlink()
    only_read(shown, 0o555)
    said = tried(Place(shown))
    read_only(said, shown / "segue.db")
    assert said["found"] == [] and "copy it, together with segue.db-wal" in said["message"]
    copy = shown.parent / f"{shown.name}-copy"
    shutil.copytree(shown, copy)
    copy.chmod(0o755)
    for path in copy.glob("segue.db*"):
        path.chmod(0o600)
    assert asyncio.run(holds(Place(copy), id))
    shutil.rmtree(copy)


async def killed(place: Place, to: Path) -> str:
    """A store as a process leaves it that is killed: the id of a session that its log has."""
    store = await place.open()
    session = await store.create(WORKSPACE, ids.new_id(), [Created(cwd="/work")])
    for path in place.directory.glob("segue.db*"):
        shutil.copy(path, to)
    await store.close()
    assert (to / "segue.db-wal").stat().st_size
    return session.id


def only_read(place: Path, mode: int) -> None:
    for path in place.glob("segue.db*"):
        path.chmod(0o444)
    place.chmod(mode)


# Something else in its place.


def test_a_directory_in_place_of_the_store_gives_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "segue.db").mkdir()
    error = refused(tmp_path / "segue.db")
    assert "directory" in error.message


@pytest.mark.parametrize("size", [6, 100_000])
def test_a_text_file_in_place_of_the_store_is_refused_and_left_alone(
    tmp_path: Path, size: int
) -> None:
    path = tmp_path / "segue.db"
    path.write_text("notes " + "x" * (size - 6))
    path.chmod(0o644)
    before = (path.read_bytes(), path.stat().st_mode)
    assert isinstance(refused(path), errors.StoreCorrupt)
    assert (path.read_bytes(), path.stat().st_mode) == before


@pytest.mark.parametrize("version", [0, 3])
def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path, version: int) -> None:
    path = tmp_path / "segue.db"
    theirs = sqlite3.connect(path)
    theirs.execute("CREATE TABLE notes (text)")
    theirs.execute(f"PRAGMA user_version = {version}")
    theirs.close()
    before = path.read_bytes()
    assert isinstance(refused(path), errors.StoreCorrupt)
    assert path.read_bytes() == before


def test_a_damaged_store_is_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "segue.db"
    id = asyncio.run(make(Place(tmp_path)))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))

    async def use() -> None:
        store = SQLiteStore.open(path)
        try:
            await store.events(WORKSPACE, id)
        finally:
            await store.close()

    with pytest.raises(errors.StoreCorrupt) as caught:
        asyncio.run(use())
    is_a_sentence(caught.value.message, path)


# A newer program's store.


def test_a_store_that_a_newer_program_closed_to_us_is_refused_and_left_alone(place: Place) -> None:
    async def main() -> None:
        id = await make(place)
        await set_compat(place, 99)
        with pytest.raises(errors.StoreTooNew) as caught:
            await place.open()
        assert "newer" in caught.value.message and "upgrade" in caught.value.message
        assert "\n" not in caught.value.message
        await set_compat(place, 1)
        assert await holds(place, id)

    asyncio.run(main())


def test_a_process_at_work_stops_writing_when_a_newer_program_closes_the_store_to_it(
    place: Place,
) -> None:
    async def main() -> None:
        store = await place.open()
        try:
            session = await store.create(WORKSPACE, ids.new_id(), [Created(cwd="/work")])
            await set_compat(place, 99)
            with pytest.raises(errors.StoreTooNew, match="upgrade"):
                await store.create(WORKSPACE, ids.new_id(), [Created(cwd="/work")])
            assert await store.get(WORKSPACE, session.id) == session  # it may still be read
        finally:
            await store.close()

    asyncio.run(main())


async def set_compat(place: Place, compat: int) -> None:
    if place.url is not None:
        import asyncpg

        database = await asyncpg.connect(place.url)
        await database.execute(f"UPDATE segue.migrations SET compat = {compat}")
        await database.close()
        return
    connection = sqlite3.connect(place.file, isolation_level=None)
    connection.execute("UPDATE meta SET value = ? WHERE name = 'compat'", (compat,))
    connection.close()
