"""Numbered migrations, one SQL file each, with the reason in its first lines.

Migrations only add. The line `-- compat: N` names the oldest migration that a program must know
to write to a store that has this one. A store whose migrations are older than the first file here
was made by an unreleased version and is refused.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from segue.model.errors import StoreTooOld

# Formats of unreleased versions that are refused: the newest of each group, and the last commit
# that opens a store of that group.
_OLDER_FORMATS = ((9, "778b382"), (12, "b72ed9a"), (13, "bd86d0b"))


class Migration(NamedTuple):
    """One step that changes the tables of a store."""

    number: int
    name: str
    compat: int
    sql: str


def load(database: str) -> list[Migration]:
    """Return the migrations of a database, in order."""
    migrations = []
    for entry in Path(__file__).with_name(database).iterdir():
        if match := re.fullmatch(r"(\d{3})_(\w+)\.sql", entry.name):
            sql = entry.read_text()
            compat = re.search(r"^-- compat: (\d+)$", sql, re.MULTILINE)
            migrations.append(
                Migration(int(match[1]), match[2], int(compat[1]) if compat else 1, sql)
            )
    return sorted(migrations)


def older_format_error(kind: str, location: str, version: int) -> StoreTooOld:
    """Return the error for a store of an unreleased segue, with the steps to move it."""
    commit = next(commit for newest, commit in _OLDER_FORMATS if version <= newest)
    return StoreTooOld(
        f"{location} is a {kind} store of an unreleased segue (format {version}), which this segue"
        f" neither reads nor changes; to move a session, check out commit {commit}, run `segue"
        " export SESSION -o FILE` there, then `segue import FILE` here with another data directory"
        " or database"
    )
