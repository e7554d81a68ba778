"""The writer of the SQLite store: operations share a commit, and none of them another's fate."""

import asyncio
from pathlib import Path

import pytest

from segue.model.errors import InvalidInput
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
