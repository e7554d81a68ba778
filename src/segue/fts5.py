"""Index and look up words with SQLite's FTS5, in the store and in the indexes of sources.

Both have a table `search` without text of its own. The key of a row is `session << 24 | number`,
where `session` is the primary key of the session or file, and `number` that of the event or text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from segue.model import search_text
from segue.model.search_text import Term

if TYPE_CHECKING:
    import sqlite3

INSERT = "INSERT INTO search (rowid, tokens) VALUES (?, ?)"
DELETE = "INSERT INTO search (search, rowid, tokens) VALUES ('delete', ?, ?)"  # the same tokens
HITS = "SELECT rowid FROM search WHERE search MATCH ?"
RANKED_HITS = "SELECT rowid, -rank FROM search WHERE search MATCH ? ORDER BY rank"

_LETTERS = bytes(ord("a") if chr(code).isalnum() else 0 for code in range(256))
_LONG_WORD = b"a" * (search_text.MAX_TOKEN_CHARS + 1)


def index_tokens(text: str) -> str:
    """Return a text in which FTS5 finds the tokens that `search_text.tokens` finds."""
    # FTS5 splits ASCII into the same words as Python, and faster, but does not cut long words.
    is_ascii = text.isascii() and "\0" not in text
    if is_ascii and _LONG_WORD not in text.encode().translate(_LETTERS):
        return text
    return " ".join(search_text.tokens(text))


def expression(term: Term) -> str:
    """Return a term as an FTS5 query. Tokens contain no quotes, so nothing needs escaping."""
    return f'"{" ".join(term.tokens)}"' + (" *" if term.prefix else "")


def any_term(terms: Iterable[Term]) -> str:
    """Return an FTS5 query for rows in which one of the terms occurs."""
    return " OR ".join(map(expression, terms))


def erase_deleted(connection: sqlite3.Connection, steps: Iterable[object], pages: int) -> bool:
    """Erase deleted words from the full-text index; return False if the steps were too few.

    FTS5 keeps deleted words until all segments are merged. Each step merges some pages. Freed pages
    are zeroed, and the write-ahead log, which has old pages, is emptied unless another connection
    reads it.
    """
    connection.execute("PRAGMA secure_delete = ON")
    pages = -pages  # a negative number begins a merge of all segments
    for _ in steps:
        before = connection.total_changes
        connection.execute("INSERT INTO search (search, rank) VALUES ('merge', ?)", (pages,))
        pages = abs(pages)
        if connection.total_changes - before < 2:  # FTS5 reports that nothing is left to merge
            connection.execute("PRAGMA secure_delete = OFF")
            (timeout,) = connection.execute("PRAGMA busy_timeout").fetchone()
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute(f"PRAGMA busy_timeout = {timeout}")
            return True
    return False


def newest_by_session(rows: Iterable[tuple[int]]) -> dict[int, int]:
    """Return the newest hit of each session. Hits come in ascending order."""
    return {key >> 24: key for (key,) in rows}


def best_by_session(
    hits: Iterable[tuple[int, float]], seen: set[int]
) -> dict[int, tuple[int, float]]:
    """Return the first hit of each session that is not in `seen`, and add these sessions to it."""
    best: dict[int, tuple[int, float]] = {}
    for key, score in hits:
        if key >> 24 not in seen:
            seen.add(key >> 24)
            best[key >> 24] = (key, score)
    return best
