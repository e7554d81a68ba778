"""Add events to the full-text index and remove them.

The index stores no text, so removing an event needs exactly the words it was indexed with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from segue import fts5
from segue.model import search_text
from segue.model.event import AnyBody

Execute = Callable[..., Any]


def add(execute: Execute, key: int, body: AnyBody) -> None:
    """Index an event under its key."""
    if tokens := fts5.index_tokens(search_text.searchable_text(body)):
        execute(fts5.INSERT, (key, tokens))


def remove(execute: Execute, key: int, body: AnyBody) -> None:
    """Remove an event from the index."""
    if tokens := fts5.index_tokens(search_text.searchable_text(body)):
        execute(fts5.DELETE, (key, tokens))
