"""Add events to the full-text index and remove them.

The index stores no text, so removing an event needs exactly the words it was indexed with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from segue.model import search_text
from segue.model.event import AnyBody

Execute = Callable[..., Any]


def add(execute: Execute, key: int, body: AnyBody) -> None:
    """Index an event under its key."""
    if words := _index_words(body):
        execute("INSERT INTO search (rowid, tokens) VALUES (?, ?)", (key, words))


def remove(execute: Execute, key: int, body: AnyBody) -> None:
    """Remove an event from the index."""
    if words := _index_words(body):
        sql = "INSERT INTO search (search, rowid, tokens) VALUES ('delete', ?, ?)"
        execute(sql, (key, words))


def _index_words(body: AnyBody) -> str:
    text = search_text.searchable_text(body)
    if text.isascii() and max(map(len, text.split()), default=0) <= search_text.MAX_TOKEN_CHARS:
        return text  # FTS5 splits ASCII into the same words as Python, but faster
    return " ".join(search_text.tokens(text))
