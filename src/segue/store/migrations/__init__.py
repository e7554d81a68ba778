"""Numbered migrations, one SQL file each, with the reason in its first lines.

Migrations only add. The line `-- compat: N` names the oldest migration that a program must know
to go on writing a store that has this one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Migration(NamedTuple):
    number: int
    name: str
    compat: int
    sql: str


def load(database: str) -> list[Migration]:
    """The migrations of a database, in order."""
    found = []
    for entry in Path(__file__).with_name(database).iterdir():
        if match := re.fullmatch(r"(\d{3})_(\w+)\.sql", entry.name):
            sql = entry.read_text()
            compat = re.search(r"^-- compat: (\d+)$", sql, re.MULTILINE)
            found.append(Migration(int(match[1]), match[2], int(compat[1]) if compat else 1, sql))
    return sorted(found)
