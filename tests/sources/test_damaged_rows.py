"""A damaged value in a tool's database hides no more than its own record."""

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from segue.sources.goose.reader import GooseReader
from segue.sources.kit.reader import Reader, collect, ignore_report
from segue.sources.opencode.reader import OpencodeReader
from tests.sources.golden import unpack_homes
from tests.sources.mutations import mutate

HERE = Path(__file__).parent
RUNS = 8


class Case(NamedTuple):
    """A home and the columns of its database that hold JSON."""

    home: str
    path: str
    reader: type
    columns: tuple[tuple[str, str], ...]


CASES = [
    Case(
        "goose-1.52.0",
        "home/dev/.local/share/goose/sessions/sessions.db",
        GooseReader,
        (
            ("messages", "content_json"),
            ("messages", "metadata_json"),
            ("sessions", "model_config_json"),
        ),
    ),
    Case(
        "opencode-1.18.34",
        "home/.local/share/opencode/opencode.db",
        OpencodeReader,
        (("message", "data"), ("part", "data"), ("session", "model")),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.home)
def test_sessions_with_damaged_values_are_read(case: Case, tmp_path: Path) -> None:
    tool = case.home.partition("-")[0]
    unpack_homes(HERE / tool / "homes.tar.xz", tmp_path)
    original = (tmp_path / case.home / case.path).parent
    for seed in range(RUNS):
        home = tmp_path / f"run-{seed}"
        shutil.copytree(original, home)
        damage(home / Path(case.path).name, case, random.Random(seed))
        reader: Reader = case.reader(str(home))
        refs = list(reader.discover(ignore_report))
        events = 0
        for ref in refs:
            items, _ = collect(reader.read(ref))
            events += len(items)
            seqs = [item.seq for item in items]
            assert seqs == sorted(set(seqs))
        assert events > 300, f"seed {seed}"


def damage(path: Path, case: Case, chance: random.Random) -> None:
    """Damage one in ten values of each column."""
    with closing(sqlite3.connect(path)) as connection:
        for table, column in case.columns:
            rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
            changes = [
                (mutate(data, chance), id) for id, data in rows if data and chance.random() < 0.1
            ]
            connection.executemany(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", changes)
        connection.commit()
