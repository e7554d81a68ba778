"""The SQLite store's writer commits operations in groups; one that fails affects no other."""

import asyncio
import os
from pathlib import Path

import pytest

from segue.model import errors, ids
from segue.model.errors import InvalidInput
from segue.model.event import Created
from segue.store.sqlite import SQLiteStore
from segue.store.sqlite.writer import Transaction, Writer


def keep(tx: Transaction, name: str) -> int:
    tx.execute("INSERT INTO settings VALUES ('local', ?, '1')", (name,))
    return tx.touch()


def keep_and_fail(tx: Transaction, name: str) -> int:
    keep(tx, name)
    raise InvalidInput(name)


async def test_what_is_asked_for_in_one_round_of_the_loop_is_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    commit = Writer._commit
    monkeypatch.setattr(
        Writer,
        "_commit",
        lambda self, connection, group: (
            groups.append(len(group)) or commit(self, connection, group)
        ),
    )
    store = SQLiteStore.open(tmp_path / "segue.db")
    await store.set_setting("local", "first", 1)  # starts the thread
    await asyncio.gather(*(store.set_setting("local", str(n), n) for n in range(20)))
    await store.close()
    assert groups == [1, 20]


async def test_one_that_fails_when_it_has_written_leaves_nothing_and_the_rest_commit(
    tmp_path: Path,
) -> None:
    store = SQLiteStore.open(tmp_path / "segue.db")
    await store.set_setting("local", "first", 1)
    operations = [keep, keep_and_fail, keep, keep_and_fail, keep]
    results = await asyncio.gather(
        *(
            store._writer.run(lambda tx, n=n, operation=operation: operation(tx, str(n)))
            for n, operation in enumerate(operations)
        ),
        return_exceptions=True,
    )
    kept = await store.settings("local")
    await store.close()
    assert [isinstance(result, InvalidInput) for result in results] == [
        operation is keep_and_fail for operation in operations
    ]
    assert kept.keys() == {"first", "0", "2", "4"}
    changes = [result for result in results if isinstance(result, int)]
    assert changes == list(range(changes[0], changes[0] + 3))  # the counter skips nobody


async def test_a_store_in_a_directory_without_write_permission_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "segue.db"
    writable = SQLiteStore.open(path)
    session = await writable.create("here", ids.new_id(), [Created(cwd="/work")])
    assert not writable.read_only
    await writable.close()
    monkeypatch.setattr(os, "access", lambda file, mode: mode != os.W_OK)
    store = SQLiteStore.open(path)
    assert store.read_only
    assert await store.get("here", session.id) == session
    with pytest.raises(errors.StoreReadOnly):
        await store.set_setting("here", "name", 1)
    await store.close()
