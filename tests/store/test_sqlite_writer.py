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


def insert(tx: Transaction, name: str) -> int:
    tx.execute("INSERT INTO settings VALUES ('local', ?, '1')", (name,))
    return tx.touch()


def insert_and_fail(tx: Transaction, name: str) -> int:
    insert(tx, name)
    raise InvalidInput(name)


async def test_operations_of_one_loop_iteration_are_one_commit(
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
    while not store._writer._wake._waiters:  # type: ignore[attr-defined]  # the thread still works
        await asyncio.sleep(0.001)
    await asyncio.gather(*(store.set_setting("local", str(n), n) for n in range(20)))
    await store.close()
    assert groups == [1, 20]


async def test_failed_operation_is_rolled_back_and_the_others_commit(
    tmp_path: Path,
) -> None:
    store = SQLiteStore.open(tmp_path / "segue.db")
    await store.set_setting("local", "first", 1)
    operations = [insert, insert_and_fail, insert, insert_and_fail, insert]
    results = await asyncio.gather(
        *(
            store._writer.run(lambda tx, n=n, operation=operation: operation(tx, str(n)))
            for n, operation in enumerate(operations)
        ),
        return_exceptions=True,
    )
    settings = await store.settings("local")
    await store.close()
    assert [isinstance(result, InvalidInput) for result in results] == [
        operation is insert_and_fail for operation in operations
    ]
    assert settings.keys() == {"first", "0", "2", "4"}
    changes = [result for result in results if isinstance(result, int)]
    assert changes == list(range(changes[0], changes[0] + 3))  # without a gap


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
